"""Runs of experiments: shared, scaled and priced."""

import inspect
import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import paper_rows
import pytest
from results import result_of

from yamame.algorithms.amago.config import AMAGOConfig
from yamame.algorithms.hyperx.config import HyperXConfig
from yamame.algorithms.ppo.config import PPOConfig
from yamame.algorithms.selection import available_algorithms
from yamame.collect import exploration
from yamame.collect.exploration import EpsilonGreedy, ExplorationConfig, NoExploration
from yamame.config.differences import flatten_config
from yamame.config.overrides import apply_overrides
from yamame.config.serialization import to_json
from yamame.data.store import ReplayStore
from yamame.errors import UserError
from yamame.recipes import load_recipe
from yamame.recipes.settings.presets import apply_algorithm
from yamame.run_config import RunConfig
from yamame.studies import load_study
from yamame.studies.base import Arm, Panel, Study
from yamame.tools.study import execute
from yamame.tools.study.cost import Cost, Speed, estimate_cost
from yamame.tools.study.plan import HISTORIES, arm_key, follows_length, plan, run_name, scale_budget, take_over

DISTILLED_FLAGS = (
    *("--env.size", "3", "--env.horizon", "12", "--env.attempt-length", "6", "--offline.total-updates", "400"),
    *("--learner.lr-decay-updates", "400"),
)
DISTILLED = Arm(label="AD", recipe="dark-key-to-door", algorithm="distillation", histories=70, flags=DISTILLED_FLAGS)
WIND = Arm(label="AMAGO", recipe="wind")
GRU = Arm(label="GRU", recipe="wind", variants=("gru",))


def experiment_of(*arms: Arm) -> Study:
    return Study(name="mine", title="t", source="s", panels=(Panel(title="p", arms=arms), Panel(title="q", arms=arms)))


def wind() -> RunConfig:
    recipe = load_recipe("wind")
    return recipe.make_config(recipe.env)


def test_panels_share_the_runs_of_the_same_agent_and_task(tmp_path: Path) -> None:
    arms = plan(experiment_of(WIND, GRU), tmp_path, preset="small", seeds=[0, 2])
    assert [run.directory.name for each in arms for run in each.runs] == [
        "wind-seed-0",
        "wind-seed-2",
        "wind+gru-seed-0",
        "wind+gru-seed-2",
    ]
    assert [run.config.seed for run in arms[1].runs] == [0, 2]


def test_experiments_share_runs(tmp_path: Path) -> None:
    crafter = {name: plan(load_study(name), tmp_path, preset="paper", seeds=[0]) for name in ("fig9", "table1")}
    runs = {name: {run.directory: run.config for each in arms for run in each.runs} for name, arms in crafter.items()}
    common = set(runs["fig9"]) & set(runs["table1"])
    assert len(common) == 5
    assert all(runs["fig9"][directory] == runs["table1"][directory] for directory in common)


def test_an_arm_that_changes_nothing_is_skipped(tmp_path: Path) -> None:
    arm = Arm(label="w/o filtered BC", recipe="package-delivery", variants=("no-filtered-bc",))
    (small,) = plan(experiment_of(arm), tmp_path, preset="small", seeds=[0])
    assert (small.runs, small.skipped) == ((), "no-filtered-bc changes nothing in the preset small")
    (paper,) = plan(experiment_of(arm), tmp_path, preset="paper", seeds=[0])
    assert len(paper.runs) == 1


def test_flags_apply_to_all_arms_and_own_flags_are_refused(tmp_path: Path) -> None:
    arms = plan(experiment_of(WIND, GRU), tmp_path, preset="small", seeds=[0], flags=["--num-envs", "3"])
    assert [each.config.num_envs for each in arms if each.config] == [3, 3]
    for flag in ("--seed", "--env-steps=3", "--variant", "--run-dir"):
        with pytest.raises(UserError, match="is set by the experiment"):
            plan(experiment_of(WIND), tmp_path, preset="small", seeds=[0], flags=[flag, "3"])


def test_a_budget_shortens_the_run_and_its_schedules() -> None:
    config = wind()
    config = replace(config, checkpoint=replace(config.checkpoint, milestone_interval_env_steps=1000))
    short = scale_budget(config, 0.1)
    assert isinstance(config.algorithm, AMAGOConfig)
    assert isinstance(short.algorithm, AMAGOConfig)
    assert isinstance(config.exploration, EpsilonGreedy)
    assert isinstance(short.exploration, EpsilonGreedy)
    pairs = [
        (short.env_steps, config.env_steps),
        (short.learning_starts, config.learning_starts),
        (short.exploration.anneal_env_steps, config.exploration.anneal_env_steps),
        (short.eval.interval_env_steps, config.eval.interval_env_steps),
        (short.algorithm.learner.lr_decay_updates, config.algorithm.learner.lr_decay_updates),
        (short.algorithm.learner.lr_warmup_updates, config.algorithm.learner.lr_warmup_updates),
        (short.checkpoint.milestone_interval_env_steps, 1000),
    ]
    assert all(one == round(other / 10) for one, other in pairs)
    assert short.total_updates == pytest.approx(config.total_updates / 10, abs=1)
    assert scale_budget(config, 1.0) is config
    silent = scale_budget(replace(config, exploration=NoExploration()), 0.1)
    assert silent.exploration == NoExploration()


def test_a_budget_shortens_the_schedules_of_every_algorithm(tmp_path: Path) -> None:
    (ppo, hyperx, sac, stored) = plan(
        experiment_of(
            Arm(label="RL2", recipe="wind", algorithm="ppo"),
            Arm(label="HyperX", recipe="wind", algorithm="hyperx"),
            Arm(label="SAC", recipe="wind", algorithm="recurrent_sac"),
            DISTILLED,
        ),
        tmp_path,
        preset="small",
        seeds=[0],
        budget=0.1,
    )
    assert isinstance(ppo.config, RunConfig) and isinstance(ppo.config.algorithm, PPOConfig)
    assert ppo.config.algorithm.learner.lr_decay_env_steps == ppo.config.env_steps == wind().env_steps // 10
    assert isinstance(hyperx.config, RunConfig) and isinstance(hyperx.config.algorithm, HyperXConfig)
    assert hyperx.config.algorithm.learner.bonus_anneal_env_steps == hyperx.config.env_steps
    assert isinstance(sac.config, RunConfig) and isinstance(sac.config.exploration, NoExploration)
    assert sac.config.exploration.random_env_steps == sac.config.learning_starts == wind().env_steps // 500
    assert isinstance(stored.config, RunConfig)
    assert stored.config.offline.total_updates == stored.config.total_updates == 40


def test_every_field_that_counts_steps_or_updates_is_a_schedule_or_known_to_be_none() -> None:
    kinds = [kind for kind in vars(exploration).values() if isinstance(kind, type)]
    explorations = [kind for kind in kinds if issubclass(kind, ExplorationConfig) and not inspect.isabstract(kind)]
    configs = [replace(wind(), exploration=kind()) for kind in explorations]
    configs += [apply_algorithm(wind(), name) for name in available_algorithms()]
    counts = re.compile(r"(.*[._])?(updates|env_steps|learning_starts)|.*(anneal|decay|warmup)_.*")
    paths = {path for config in configs for path in flatten_config(config) if counts.fullmatch(path)}
    assert {"learner.target_entropy_anneal_updates", "learner.entropy_decay_env_steps"} < paths
    assert {path for path in paths if not follows_length(path)} == {
        "learner.max_nonfinite_updates",  # in a row
        "learner.novelty_updates",  # of each iteration
    }


def test_a_budget_shortens_the_anneals_of_entropy_and_pace() -> None:
    sac, ppo = apply_algorithm(wind(), "recurrent_sac"), apply_algorithm(wind(), "ppo")
    for config, path in (
        (sac, "learner.target_entropy_anneal_updates"),
        (sac, "updates_anneal_env_steps"),
        (ppo, "learner.entropy_decay_env_steps"),
        (wind(), "novelty.num_updates"),
    ):
        short = scale_budget(apply_overrides(config, {path: 5000}), 0.1)
        assert flatten_config(short)[path] == 500, path


def test_learning_histories_are_written_once_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[RunConfig] = []

    def train_run(config: RunConfig, *_: Any, **__: Any) -> dict[str, Any]:
        (source,) = config.offline.data
        with ReplayStore(Path(source), capacity_trajectories=1000, cache_bytes=0) as store:
            assert len(store) == DISTILLED.histories
        trained.append(config)
        return {"stopped_by": ""}

    monkeypatch.setattr(execute.start, "train_run", train_run)
    monkeypatch.setattr(execute, "write_report_if_finished", lambda result: None)
    (arm,) = plan(experiment_of(DISTILLED), tmp_path, preset="small", seeds=[0, 1])

    def fail(*_: Any, **__: Any) -> None:
        raise UserError("no space")

    with monkeypatch.context() as broken:
        broken.setattr(execute, "scripted_histories", fail)
        with pytest.raises(UserError, match="no space"):
            execute.train_or_resume(arm.runs[0], True)
    assert not list((tmp_path / HISTORIES).iterdir()), "nothing that a later run could take for the histories"
    for run in arm.runs:
        execute.train_or_resume(run, True)
    (folder,) = (tmp_path / HISTORIES).iterdir()
    assert [config.seed for config in trained] == [0, 1]
    assert {config.offline.data for config in trained} == {(str(folder),)}
    (other,) = plan(experiment_of(DISTILLED), tmp_path, preset="small", seeds=[2], flags=["--env.size", "4"])
    with pytest.raises(UserError, match="has histories of another task: choose another --output-dir"):
        execute.train_or_resume(other.runs[0], True)
    assert len(trained) == 2


@pytest.mark.parametrize(
    "arm",
    [
        Arm(label="RL2", recipe="passive-tmaze", algorithm="ppo", flags=("--env.horizon", "6")),
        Arm(label="AD", recipe="dark-key-to-door", algorithm="distillation", histories=5, flags=DISTILLED_FLAGS),
    ],
)
def test_the_cost_of_other_algorithms_is_measured(arm: Arm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yamame.tools.study.cost.MEASURE_SECONDS", 0.05)
    flags = ["--env-steps-per-iteration", "64"] if arm.algorithm == "ppo" else []
    arms = plan(experiment_of(arm), tmp_path, preset="small", seeds=[0], flags=flags, size="tiny", budget=0.01)
    cost = estimate_cost(arms)
    assert cost.num_runs == 1 and cost.seconds > 0 and cost.updates > 0
    assert cost.env_steps == (0 if arm.histories else arms[0].runs[0].config.env_steps)
    assert not list(tmp_path.iterdir())


def test_names_of_runs_are_short_and_distinct() -> None:
    arms = [arm for name in ("fig3", "fig18", "table2") for arm in load_study(name).arms]
    names = {run_name(arm) for arm in arms}
    assert len(names) == len(set(map(arm_key, arms)))
    assert max(map(len, names)) <= 110
    assert run_name(Arm(label="", recipe="crafter", flags=("--env.horizon", "2000"), variants=("gru",))) == (
        "crafter-env.horizon-2000+gru"
    )
    assert run_name(Arm(label="", recipe="wind", algorithm="ppo", variants=("gru",))) == "wind-ppo+gru"


def test_the_cost_measures_each_kind_of_run_once(tmp_path: Path) -> None:
    measured: list[RunConfig] = []

    def measure(config: RunConfig) -> Speed:
        measured.append(config)
        return Speed(env_steps_per_second=1000.0, updates_per_second=10.0)

    popgym = [
        Arm(label=name, recipe="popgym", flags=("--env.name", name)) for name in ("CountRecallEasy", "RepeatFirstEasy")
    ]
    flags = ["--env-steps-per-iteration", "100"]
    arms = plan(experiment_of(WIND, GRU, *popgym), tmp_path, preset="small", seeds=[0, 1], flags=flags)
    cost = estimate_cost(arms, measure)
    assert len(measured) == 3
    configs = [run.config for each in arms for run in each.runs]
    assert cost.num_runs == 8
    assert cost.env_steps == sum(config.env_steps for config in configs)
    assert cost.updates == sum(config.total_updates for config in configs)
    least = cost.env_steps / 1000 + cost.updates / 10
    assert least < cost.seconds < 3 * least


def test_the_cost_in_words() -> None:
    cost = Cost(num_runs=2, env_steps=3_000_000, updates=10, seconds=5400.0)
    assert cost.to_text() == "2 runs, 3,000,000 environment steps, 10 updates: about 1.5 hours on this machine"
    assert "about 3.0 minutes" in Cost(num_runs=1, env_steps=1, updates=1, seconds=180.0).to_text()
    assert Cost(num_runs=0, env_steps=0, updates=0, seconds=0.0).to_text() == "all runs are finished"


@pytest.mark.parametrize(
    ("name", "label", "rows"),
    [
        pytest.param("fig5", "Dark Key-To-Door 9x9", ["dark-key-to-door-9x9-seed0"], marks=pytest.mark.thorough),
        pytest.param("fig5", "Half-Cheetah-Velocity", ["half-cheetah-velocity-seed2"], marks=pytest.mark.thorough),
        ("fig8", "MazeRunner 15x15", [f"maze-runner-15-seed{seed}" for seed in (0, 1, 2)]),
    ],
)
def test_figures_take_over_the_runs_of_the_papers_lengths(
    name: str, label: str, rows: list[str], tmp_path: Path
) -> None:
    for run in paper_rows.all_runs():
        directory = tmp_path / "long" / run.name
        directory.mkdir(parents=True)
        contents = {"config": to_json(run.config()), "metadata": asdict(run.metadata()), "result": result_of([1.0])}
        for file, content in contents.items():
            (directory / f"{file}.json").write_text(json.dumps(content))
    study = load_study(name)
    study = replace(study, panels=tuple(panel for panel in study.panels if panel.title == label))
    arms = take_over(plan(study, tmp_path, preset="small", seeds=[0, 1]), tmp_path / "long")
    assert sorted(run.name for run in arms[0].taken_over) == rows
    assert [run.config.seed for run in arms[0].runs] == [seed for seed in (0, 1) if f"seed{seed}" not in str(rows)]
    assert not any(arm.taken_over for arm in arms[1:]) and all(len(arm.runs) == 2 for arm in arms[1:])
