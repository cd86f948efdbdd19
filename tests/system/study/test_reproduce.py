"""`yamame reproduce`: every experiment at a tiny budget to its plot, resumed, and with bad input."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_runs import snapshot
from PIL import Image
from sweep_runs import FakeTrain

from yamame.cli import main
from yamame.errors import UserError
from yamame.recipes import config_from_flags, load_recipe
from yamame.runs.directory import RESULT
from yamame.studies import load_study, study_names
from yamame.studies.base import Arm, Panel, Study
from yamame.tools.figure import figure_names
from yamame.tools.study import cost
from yamame.tools.study.execute import PlannedRun, require_planned
from yamame.tools.study.plan import plan
from yamame.tools.study.report import plot_bars, plot_curves
from yamame.tools.study.reproduce import reproduce
from yamame.tools.study.reproduce_report import collect_panels, to_markdown

TINY = [
    *("--num-envs", "2", "--replay.batch-size", "2", "--replay.unrewarded-keep-prob", "1"),
    *("--eval.trials", "2", "--eval.final-trials", "2", "--eval.num-envs", "2"),
]
BUDGETS = {"fig3": 0.001, "fig6": 0.003, "fig13": 0.0005, "fig22": 0.0005, "fig27": 0.02}
QUICK = ("fig12", "fig13")


@pytest.fixture(autouse=True)
def short_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "MEASURE_SECONDS", 0.05)
    monkeypatch.setattr(cost, "MAX_TOKENS", 64)


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.thorough) for name in study_names()]
)
@pytest.mark.timeout(1200)
@pytest.mark.filterwarnings("ignore:builtin type:DeprecationWarning")  # Box2D's bindings
def test_every_experiment_at_a_tiny_budget(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["reproduce", name, "--budget", str(BUDGETS.get(name, 0.002)), "--size", "tiny", "--quiet", "--json"]
    assert main([*words, *TINY, "--output-dir", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    results = json.loads(out.splitlines()[-1])
    assert "on this machine" in err or name == "fig29"
    experiment = load_study(name)
    assert [panel["panel"] for panel in results["panels"]] == [panel.title for panel in experiment.panels]
    assert len(results["plots"]) == bool(experiment.panels) + len(experiment.analyses)
    for path in results["plots"]:
        with Image.open(path) as image:
            assert image.size[0] > 500
    for panel in results["panels"]:
        for arm in panel["arms"]:
            assert arm["scores"] or "changes nothing" in arm["note"] or "goal" in arm["note"], arm
    text = (tmp_path / f"{name}.md").read_text()
    assert all(panel.title in text for panel in experiment.panels)
    assert all(Path(path).name in text for path in results["plots"])


EXAMPLE = Study(
    name="fig7",
    title="Example",
    source="nowhere",
    panels=(
        Panel(
            title="Corridor",
            arms=(
                Arm(label="AMAGO", recipe="passive-tmaze", published=1.0, published_curve=((0.0, 0.0), (90.0, 1.0))),
                Arm(label="GRU", recipe="passive-tmaze", variants=("gru",), published=0.25),
                Arm(label="same", recipe="passive-tmaze", variants=("no-token-shift",)),
            ),
            references=(("oracle", 1.0),),
        ),
    ),
)
FLAGS = [*TINY, "--env.horizon", "4"]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> None:
    """`load_study` returns `EXAMPLE`."""
    monkeypatch.setattr("yamame.studies.load_study", lambda name: EXAMPLE)


@pytest.mark.usefixtures("example")
def test_finished_runs_are_not_trained_again(tmp_path: Path) -> None:
    train = FakeTrain()
    settings: dict[str, Any] = {"budget": 0.001, "size": "tiny", "flags": FLAGS, "output_dir": tmp_path, "quiet": True}
    first = reproduce("fig7", seeds="0,1", train=train, **settings)
    names = [f"passive-tmaze{variant}-seed-{seed}" for variant in ("", "+gru") for seed in (0, 1)]
    assert sorted(title.replace(" ", "-") for title in train.titles) == sorted(names)
    again = reproduce("fig7", seeds="0,1", train=train, **settings)
    assert len(train.titles) == 4
    assert again.results == first.results
    more = reproduce("fig7", seeds="0,1,2", train=train, **settings)
    assert len(train.titles) == 6
    arm = more.results["panels"][0]["arms"][0]
    assert (arm["seeds"], len(arm["scores"]), len(arm["ci95"])) == ([0, 1, 2], 3, 2)
    for number, seed in enumerate(arm["seeds"]):
        result = json.loads((tmp_path / "runs" / f"passive-tmaze-seed-{seed}" / RESULT).read_text())
        assert arm["scores"][number] == result["return_mean"]
    assert more.results["panels"][0]["references"] == {"oracle": 1.0}
    assert "Published for Corridor: oracle 1.000." in more.text
    assert "Corridor, same: no-token-shift changes nothing in the preset small." in more.text


@pytest.mark.usefixtures("example")
def test_a_report_of_runs_that_were_not_planned_is_refused(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"budget": 0.002, "flags": FLAGS, "output_dir": tmp_path, "quiet": True}
    made = reproduce("fig7", size="tiny", train=FakeTrain(), **settings)
    assert reproduce("fig7", size="tiny", report_only=True, **settings).results == made.results
    before = snapshot(tmp_path)
    for changes, problem in (
        ({"budget": 0.001, "size": "tiny"}, "trained with another config"),
        ({"budget": 0.004, "size": "tiny"}, "trained with another config|environment steps, not"),
        ({"size": "small"}, "trained with another config"),
    ):
        with pytest.raises(UserError, match=problem) as refused:
            reproduce("fig7", report_only=True, **(settings | changes))
        assert "\n" not in str(refused.value)
    assert snapshot(tmp_path) == before


@pytest.mark.usefixtures("example")
def test_a_report_with_a_shorter_run_is_refused(tmp_path: Path) -> None:
    (arm, *_) = plan(EXAMPLE, tmp_path, preset="small", seeds=[0])
    (run,) = arm.runs
    require_planned(arm.runs)
    FakeTrain()(replace(run, config=replace(run.config, env_steps=70)), True)
    with pytest.raises(UserError, match=rf"has 70 environment steps, not {run.config.env_steps:,}: leave out"):
        require_planned(arm.runs)


def test_experiments_are_listed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1 and [row["experiment"] for row in json.loads(out)] == list(study_names())
    assert main(["figure", "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1 and [row["figure"] for row in json.loads(out)] == list(figure_names())


@pytest.mark.usefixtures("example")
def test_finished_runs_of_another_directory_are_taken_over(tmp_path: Path) -> None:
    train, elsewhere = FakeTrain(), tmp_path / "elsewhere"
    for number, words in enumerate(
        (
            [
                "--seed",
                "3",
                "--env-steps",
                "500",
                "--eval.trials",
                "7",
                "--learner.lr-decay-updates",
                "9",
            ],  # the arm, with another length
            ["--seed", "4", "--env-steps", "700", "--compute.device", "cpu"],
            ["--seed", "5", "--num-envs", "3"],  # another experiment
            ["--seed", "3", "--env-steps", "400"],  # shorter than the first
        )
    ):
        config = config_from_flags(load_recipe("passive-tmaze"), [], [*FLAGS, *words], size="tiny")
        run = PlannedRun(recipe="passive-tmaze", series="long", config=config, directory=elsewhere / f"run-{number}")
        train(run, True)
    result = elsewhere / "run-1/result.json"
    result.rename(unfinished := result.with_name("result"))
    before = snapshot(elsewhere)
    settings: dict[str, Any] = {"size": "tiny", "flags": FLAGS, "output_dir": tmp_path / "here", "quiet": True}
    made = reproduce("fig7", seeds="3", runs=elsewhere, train=(trained := FakeTrain()), **settings)
    assert trained.titles == ["passive-tmaze+gru seed 3"]
    full, gru = made.results["panels"][0]["arms"][:2]
    assert (full["seeds"], full["env_steps"]) == ([3], 500)
    assert f"runs of 500 environment steps in place of 100,000 taken over from {elsewhere}" in full["note"]
    assert "Corridor, AMAGO: runs of 500 environment steps" in made.text and "note" not in gru
    assert snapshot(elsewhere) == before
    unfinished.rename(result)
    drawn = reproduce("fig7", runs=elsewhere, report_only=True, **settings)
    assert drawn.results["panels"][0]["arms"][0]["seeds"] == [3, 4]
    assert "runs of 500, 700 environment steps" in drawn.text


def test_an_arm_of_shorter_instructions_is_not_compared_at_random_ones(tmp_path: Path) -> None:
    """Its result is that of other instructions: the paper has no bar for it either."""
    fig9 = load_study("fig9")
    fig9 = replace(fig9, panels=fig9.panels[-1:])
    arms = plan(fig9, tmp_path, preset="small", seeds=[0])
    for arm in arms:
        FakeTrain()(arm.runs[0], True)
    (random,) = panels = collect_panels(fig9, arms, tmp_path)
    (single,) = (arm for arm in random.arms if not arm.scores)
    assert (single.arm.label, single.arm.published, len(single.runs)) == ("w/o multi-goal", None, 1)
    note = "not compared, since its instructions have up to 1 sub-goal, those of other arms up to 5"
    assert f"all random instructions, w/o multi-goal: {note}." in to_markdown(fig9, panels)
    assert random.random_score == -0.5 / 3
    assert [arm for arm in random.arms if arm.random_score is None] == [single]
    (axes,) = plot_bars(fig9, panels, [arm.label for arm in fig9.arms]).axes
    assert sum(bar.get_height() != 0 for bar in axes.patches) == 4


@pytest.mark.usefixtures("example")
def test_a_failed_run_ends_with_one_and_keeps_the_others(tmp_path: Path) -> None:
    def train(run: PlannedRun, quiet: bool) -> Any:
        raise UserError("no such thing")

    result = reproduce("fig7", budget=0.001, flags=FLAGS, output_dir=tmp_path, quiet=True, train=train)
    assert result.exit_code == 1
    assert set(result.results["failed"].values()) == {"no such thing"}
    assert (tmp_path / "fig7.md").exists()


@pytest.mark.usefixtures("example")
def test_cost_alone_trains_nothing(tmp_path: Path) -> None:
    result = reproduce("fig7", budget=0.01, flags=FLAGS, output_dir=tmp_path, cost=True)
    assert result.results["num_runs"] == 2
    assert result.results["seconds"] > 0
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("example")
def test_a_stopped_experiment_says_how_to_go_on(tmp_path: Path) -> None:
    result = reproduce("fig7", budget=0.01, flags=FLAGS, output_dir=tmp_path, train=lambda *_: {"stopped_by": "SIGINT"})
    assert result.text == "Stopped by SIGINT; run the same command again to resume."
    assert result.exit_code == 0


@pytest.mark.usefixtures("example")
def test_other_flags_need_another_directory(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"budget": 0.001, "output_dir": tmp_path, "quiet": True, "train": FakeTrain()}
    reproduce("fig7", flags=FLAGS, **settings)
    with pytest.raises(UserError, match="choose another --output-dir"):
        reproduce("fig7", flags=[*FLAGS, "--learner.tau", "0.1"], **settings)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["figg7"], "unknown experiment 'figg7': did you mean 'fig7'?"),
        (["fig7", "--budget", "0"], "--budget 0: give a fraction above 0 and at most 1"),
        (["fig7", "--budget", "x"], "invalid float value"),
        (["fig7", "--preset", "papr"], "unknown preset 'papr'"),
        (["fig7", "--panels", "maze"], "no panel starts with 'maze': choose among w/o multi-gamma; w/ multi-gamma"),
        (["fig7", "--seeds", "a"], "is not a list of numbers"),
        (["fig7", "--learner.tao", "1"], "--learner.tau"),
        (
            ["fig7", "--report-only", "--output-dir", "nowhere"],
            "nowhere does not exist: yamame reproduce fig7",
        ),
        (["fig13", "--output-dir", "/proc/no"], "cannot make /proc/no"),
        (["fig7", "--cost", "--report-only"], "not allowed with"),
    ],
)
def test_bad_input_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", *words]) == 2
    error = capsys.readouterr().err.strip()
    assert message in error
    assert len(error.splitlines()) == 1


def test_the_list_has_every_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(study_names())


def test_pictures_have_the_paper_beside_and_no_runs_are_no_bars(tmp_path: Path) -> None:
    arms = plan(EXAMPLE, tmp_path, preset="small", seeds=[0])
    scores = collect_panels(EXAMPLE, arms, tmp_path)
    colors = list(dict.fromkeys(arm.label for arm in EXAMPLE.arms))
    (axes,) = plot_curves(scores, colors).axes
    labels = axes.get_legend_handles_labels()[1]
    assert labels == ["AMAGO, paper", "GRU, paper", "oracle"]
    (axes,) = plot_bars(EXAMPLE, scores, colors).axes
    assert axes.get_legend_handles_labels()[1] == ["paper", "oracle", "AMAGO", "GRU", "same"]
    table = to_markdown(EXAMPLE, scores)
    assert "Corridor, AMAGO: no finished runs." in table
