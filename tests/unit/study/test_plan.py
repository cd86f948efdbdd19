"""Which runs a sweep plans, and which directories it refuses."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from command_runs import refused

from yamame.cli import main
from yamame.config.differences import first_difference
from yamame.errors import UserError
from yamame.recipes import config_from_flags, load_recipe, with_algorithm
from yamame.run_config import RunConfig
from yamame.studies import find_benchmark
from yamame.tools.run_groups import strip_seed_suffix
from yamame.tools.study.execute import PlannedRun, require_same_config
from yamame.tools.study.sweep_runs import choose_arm_flags, choose_arms, choose_panels, plan_sweep, sweep_study

TMAZE = sweep_study("passive-tmaze")
BOTH = "no-popart+no-multi-gamma"
SAC = "RecurrentSACConfig"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def config() -> RunConfig:
    return config_from_flags(load_recipe("passive-tmaze"), (), ["--env-steps", "1000"])


def planned(
    arms: list[str], *flags: str, arm_flags: Sequence[str] = (), size: str | None = None
) -> dict[str, RunConfig]:
    runs = plan_sweep(
        TMAZE,
        Path("here"),
        panels=TMAZE.panels,
        arms=arms,
        seeds=[3],
        flags=flags,
        arm_flags=choose_arm_flags(arm_flags, arms),
        size=size,
    )
    return {run.series: run.config for run in runs}


def test_the_difference_is_the_first_field_with_both_values(config: RunConfig) -> None:
    other = replace(config, num_envs=7, env=replace(config.env, horizon=9))
    assert first_difference(config, config) == ""
    assert first_difference(config, other) == "env.horizon 30, not 9"
    assert first_difference(replace(config, num_envs=5), replace(config, num_envs=7)) == "num_envs 5, not 7"


def test_a_shorter_run_can_be_resumed_and_a_longer_one_cannot_be_shortened(config: RunConfig) -> None:
    run = Path("runs/full-seed-0")
    shorter, longer = replace(config, env_steps=10), replace(config, env_steps=5000)
    require_same_config(run, config, config, allow_longer=False)
    require_same_config(run, shorter, config, allow_longer=False)
    require_same_config(run, longer, config)
    with pytest.raises(UserError, match="env_steps 5000, not 1000"):
        require_same_config(run, longer, config, allow_longer=False)
    for allow_longer in (True, False):  # a length that may differ is never what differs
        with pytest.raises(UserError, match=r"full-seed-0 was .*\(seed 3, not 0\)"):
            require_same_config(run, replace(shorter, seed=3), config, allow_longer=allow_longer)


def test_every_arm_has_every_seed_and_a_directory_named_after_it() -> None:
    runs = plan_sweep(TMAZE, Path("here"), panels=TMAZE.panels, arms=["full", BOTH], seeds=[2, 0])
    assert [run.title for run in runs] == ["full seed 2", f"{BOTH} seed 2", "full seed 0", f"{BOTH} seed 0"]
    assert [run.config.seed for run in runs] == [2, 2, 0, 0]
    assert [strip_seed_suffix(run.directory) for run in runs] == [run.series for run in runs]
    assert strip_seed_suffix(Path("here/results.csv")) is None and strip_seed_suffix(Path("-seed-0")) is None


def test_arms_differ_from_the_full_one_by_their_variants_alone() -> None:
    flags = ["--agent.popart", "--agent.trajectory-encoder.num-heads", "4"]
    configs = planned(["no-memory", BOTH], *flags, size="tiny")
    feedforward, plain = configs["no-memory"], configs[BOTH]
    # a flag for what a variant removes is a flag of the full recipe; the other flags apply to the arm too
    assert type(feedforward.algorithm.agent.trajectory_encoder).__name__ == "FeedForwardConfig"
    assert feedforward.algorithm.agent.trajectory_encoder.state_size == 32
    assert plain.algorithm.agent.trajectory_encoder.num_heads == 4
    # and no flag brings back what a variant removes
    assert (plain.algorithm.agent.popart, plain.algorithm.agent.multi_gamma) == (False, False)
    assert feedforward.algorithm.agent.popart and feedforward.algorithm.agent.multi_gamma
    assert feedforward.seed == plain.seed == 3


def test_an_arm_of_another_algorithm_has_its_settings_for_this_task() -> None:
    flags = ["--env.horizon", "12", "--env-steps", "40000"]
    configs = planned(["full", "ppo", "gru+ppo", "recurrent_sac"], *flags)
    types = {arm: type(config.algorithm).__name__ for arm, config in configs.items()}
    assert types == {"full": "AMAGOConfig", "ppo": "PPOConfig", "gru+ppo": "PPOConfig", "recurrent_sac": SAC}
    encoders = [type(configs[arm].algorithm.agent.trajectory_encoder).__name__ for arm in ("ppo", "gru+ppo")]
    assert encoders == ["TransformerConfig", "GRUConfig"]
    assert {(config.env.horizon, config.env_steps) for config in configs.values()} == {(12, 40_000)}
    alone = config_from_flags(with_algorithm(load_recipe("passive-tmaze"), "ppo"), (), [*flags, "--seed", "3"])
    assert configs["ppo"] == alone


def test_flags_of_an_algorithm_are_for_sweeps_of_it_alone() -> None:
    configs = planned(["ppo", "ppo+gru"], "--learner.entropy-coef", "0.25")
    assert [config.algorithm.learner.entropy_coef for config in configs.values()] == [0.25, 0.25]


def test_flags_of_an_arm_are_those_of_no_other() -> None:
    arms, flags = ["full", "ppo", "ppo+gru", "recurrent_sac"], ("--num-envs", "6", "--env-steps", "1000")
    own = ["ppo+gru --learner.entropy-coef 0.25 --num-envs 8", "full --learner.tau=0.5"]
    configs, without = planned(arms, *flags, arm_flags=own), planned(arms, *flags)
    assert configs["ppo"] == without["ppo"] and configs["recurrent_sac"] == without["recurrent_sac"]
    assert first_difference(replace(configs["ppo+gru"], num_envs=6), without["ppo+gru"]) == (
        "learner.entropy_coef 0.25, not 0.05"
    )
    assert configs["ppo+gru"].num_envs == 8 and configs["full"].algorithm.learner.tau == 0.5


def test_a_benchmark_has_every_environment_with_every_arm() -> None:
    popgym = find_benchmark("popgym")
    assert popgym is not None
    panels = choose_panels(popgym, "MineSweeperEasy, HigherLowerEasy,", None, False)
    names = ["MineSweeperEasy", "HigherLowerEasy"]
    assert [panel.title for panel in panels] == names
    runs = plan_sweep(popgym, Path("here"), panels=panels, arms=choose_arms("gru"), seeds=[0])
    assert [run.series for run in runs] == [f"{name}-{arm}" for name in names for arm in ("full", "gru")]
    assert [run.config.env.name for run in runs] == [names[0]] * 2 + [names[1]] * 2
    hard = choose_panels(popgym, None, "hard", False)
    assert len(hard) == 13 and all(panel.title.endswith("Hard") for panel in hard)
    assert choose_panels(popgym, None, None, True) == list(popgym.panels)


def test_arms_of_an_experiment_are_those_that_nobody_named() -> None:
    assert choose_arms(None) == ["full"] and choose_arms(None, ("gru",)) == ["full", "gru"]
    assert choose_arms("no-memory", ("gru",)) == ["full", "no-memory"]
    assert choose_arms("full,gru") == ["full", "gru"] and choose_arms("gru", no_full=True) == ["gru"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("", "arguments are required: RECIPE"),
        ("pasive-tmaze --variants gru", "did you mean 'passive-tmaze'?"),
        ("--env.horizon 5 passive-tmaze --variants gru", "the recipe comes before its flags: yamame sweep"),
        ("passive-tmaze --no-full", "--variants: name what to compare"),
        ("passive-tmaze --variants ,", "--variants: name what to compare"),
        ("passive-tmaze --variants no-memry", "unknown variant 'no-memry': choose among"),
        ("passive-tmaze --variants gru,no-popart+full", "unknown variant 'full': choose among"),
        ("passive-tmaze --variants gru,no-popart,gru", "gru is named twice"),
        ("passive-tmaze --variants gru+no-popart,no-popart+gru", "gru+no-popart is named twice"),
        ("passive-tmaze --variants gru+gru", "gru+gru names a variant twice"),
        ("passive-tmaze --variants ppo+varibad", "ppo+varibad names several algorithms: an arm has one"),
        ("passive-tmaze --variants amago", "amago is the same as full here"),
        ("passive-tmaze --variants ppo --learner.tau 0.1", "yamame: ppo: unknown flag --learner.tau"),
        ("passive-tmaze --variants ppo --arm-flags 'ppo --learner.tau 0.1'", "yamame: ppo: unknown flag --learner.tau"),
        ("passive-tmaze --arm-flags 'full --learner.taw 0.1'", "full: unknown flag --learner.taw: did you mean"),
        ("passive-tmaze --arm-flags 'gru --num-envs 3'", "'gru' is no arm of this sweep: choose among full"),
        ("passive-tmaze --arm-flags full", "--arm-flags: full has no flags"),
        ("passive-tmaze --arm-flags ''", "--arm-flags '': give an arm and its flags"),
        ('passive-tmaze --arm-flags "full \'"', "give an arm and its flags"),
        ("passive-tmaze --arm-flags 'full --num-envs 3' --arm-flags 'full --num-envs 4'", "full is named twice"),
        ("passive-tmaze --arm-flags 'full --seed 3'", "--seed is set by the sweep: use --seeds"),
        ("passive-tmaze --arm-flags 'full --env.horizon=3'", "full: --env.horizon=3 changes the task"),
        ("passive-tmaze --variants full,gru --no-full", "excluded by --no-full"),
        ("passive-tmaze --variants gru,no-popart --agent.no-popart", "no-popart changes nothing here"),
        ("passive-tmaze --variants no-memory+gru,gru", "gru is the same as no-memory+gru here"),
        ("passive-tmaze --seeds 1,x", "'1,x' is not a list of numbers"),
        ("passive-tmaze --seeds -1", "is not a list of numbers"),
        ("passive-tmaze --seed 3", "--seed is set by the sweep: use --seeds"),
        ("passive-tmaze --variants gru --variant naive", "--variant is set by the sweep: use --variants"),
        ("passive-tmaze --algorithm ppo", "--algorithm is set by the sweep: use --variants"),
        ("passive-tmaze --model gru", "--model is set by the sweep: use --variants"),
        ("passive-tmaze --run-dir=x", "--run-dir is set by the sweep: use --output-dir"),
        ("passive-tmaze --env.horizn 3", "did you mean --env.horizon?"),
        ("passive-tmaze --size giant", "unknown size 'giant'"),
        ("passive-tmaze --envs A", "passive-tmaze is a single task: leave out --envs"),
        ("passive-tmaze --report-only", "sweeps/passive-tmaze does not exist: yamame sweep passive-tmaze makes it"),
        ("passive-tmaze --report-only --env-steps 3", "has no effect with --report-only"),
        *(
            (f"passive-tmaze --report-only {words}", f"{words.partition(' ')[0]} has no effect with --report-only")
            for words in (
                "--seeds 0",
                "--variants gru",
                "--arm-flags 'a --b'",
                "--no-full",
                "--preset small",
                "--size tiny",
            )
        ),
        *(
            (f"popgym --report-only {words}", f"{words.partition(' ')[0]} has no effect with --report-only")
            for words in ("--envs A", "--difficulty easy", "--all")
        ),
        ("popgym --list --bogus 3", "unknown flag --bogus"),
        ("popgym", "choose the environments by one of"),
        ("popgym --all --difficulty easy", "choose the environments by one of"),
        ("popgym --envs AutoencoderEasy", "did you mean 'AutoencodeEasy'?"),
        ("popgym --envs ,", "--envs is empty"),
        ("popgym --difficulty hardest", "choose among easy, medium, hard"),
        ("popgym --envs RepeatFirstEasy --learner.learning-rat 1", "did you mean --learner.learning-rate?"),
        ("popgym --envs RepeatFirstEasy --env.name X", "use --envs"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(args: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in refused(capsys, "sweep", *shlex.split(args))
    assert list(Path().iterdir()) == []


def test_a_directory_of_something_else_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    sweep = ["sweep", "passive-tmaze"]
    (Path("thesis") / "chapters").mkdir(parents=True)
    for args in ([], ["--report-only"]):
        error = refused(capsys, *sweep, *args, "--output-dir", "thesis")
        assert "thesis holds something else (chapters)" in error
    run = Path("others/RepeatFirstEasy-full-seed-0")
    run.mkdir(parents=True)
    (run / "config.json").write_text("{}")
    (Path("others") / "full-seed-0").mkdir()
    error = refused(capsys, *sweep, "--output-dir", "others")
    assert "others holds something else (RepeatFirstEasy-full-seed-0)" in error
    assert "is a run itself" in refused(capsys, *sweep, "--output-dir", str(run))
    Path("file").write_text("precious")
    error = refused(capsys, *sweep, "--output-dir", "file")
    assert "cannot make file" in error and Path("file").read_text() == "precious"
    assert {path.name for path in Path("thesis").iterdir()} == {"chapters"}


def test_help_lists_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["sweep", "passive-tmaze", "--help"])
    assert not exit_.value.code
    out = capsys.readouterr().out
    flags = "--variants --arm-flags --no-full --seeds --envs --difficulty --all --output-dir --report-only --size"
    assert all(flag in out for flag in flags.split())


def test_a_planned_run_has_a_title(config: RunConfig) -> None:
    run = PlannedRun(recipe="passive-tmaze", series="gru", config=config, directory=Path("gru-seed-0"))
    assert run.title == "gru seed 0"
