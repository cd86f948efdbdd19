"""What a reproduction trains is listed before it is trained, and its plots and tables say how short the runs were."""

import json
from pathlib import Path

import matplotlib.figure
import pytest
from command_runs import output_json
from sweep_runs import FakeTrain

from yamame.cli import main
from yamame.studies import load_study
from yamame.tools.study.listing import UNKNOWN, list_arms
from yamame.tools.study.plan import plan
from yamame.tools.study.reproduce import reproduce
from yamame.tools.study.sweep import run_sweep


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_arm_is_listed_with_its_steps(capsys: pytest.CaptureFixture[str]) -> None:
    found, _ = output_json(capsys, "reproduce", "fig7", "--list", "--budget", "0.1", "--seeds", "0,1")
    study = load_study("fig7")
    assert [(row["panel"], row["arm"]) for row in found["arms"]] == [
        (panel.title, arm.label) for panel in study.panels for arm in panel.arms
    ]
    skipped = {row["arm"] for row in found["arms"] if row["note"]}
    assert skipped == {"w/o filtered BC"}, "which the recipe leaves out anyway"
    assert {(row["runs"], row["env_steps"]) for row in found["arms"] if not row["note"]} == {(2, 216_000)}
    budgets = {row["panel"]: row["learning_shows_at_budget"] for row in found["arms"]}
    assert budgets["w/o multi-gamma"] == UNKNOWN and budgets["w/ multi-gamma"].startswith("1 (2.96")
    assert main(["reproduce", "fig7", "--list"]) == 0
    text = capsys.readouterr().out
    assert "w/ multi-gamma: 1 (2.96 / 2.97 / 2.94 of 3" in text and "2,160,000" in text
    assert not Path("reproductions").exists()


@pytest.mark.parametrize("name", ["fig5", "fig8", "fig15", "fig29"])
def test_every_study_has_a_list(name: str) -> None:
    study = load_study(name)
    rows = list_arms(study, plan(study, Path("none"), preset="small", seeds=[0]))
    assert len(rows) == len(study.arms)
    assert all(row["learning_shows_at_budget"] for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"), [pytest.param("fig7", {}, marks=pytest.mark.thorough), ("fig3", {"panels": "AutoencodeEasy"})]
)
def test_a_short_budget_and_random_actions_are_in_plot_and_table(
    name: str, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "fig3":
        pytest.importorskip("popgym")
    drawn: list[matplotlib.figure.Figure] = []
    monkeypatch.setattr("yamame.tools.study.reproduce_report.save", lambda figure, path: drawn.append(figure))
    for budget in (0.1, 1.0):
        result = reproduce(name, budget=budget, quiet=True, train=FakeTrain(), **options)
        folder = Path("reproductions") / ("small-0.1" if budget == 0.1 else "small")
        table = (folder / f"{name}.md").read_text()
        assert "random" in table.splitlines()[6 if budget == 0.1 else 4]
        texts = [text.get_text() for text in drawn[-1].texts]
        assert texts == (["budget 10 % of the environment steps"] if budget == 0.1 else [])
        assert ("**budget 10 % of the environment steps**" in table) is (budget == 0.1)
        assert result.results["panels"][0]["random"] is not None


@pytest.mark.slow
def test_attempts_in_a_new_task_are_drawn_beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[matplotlib.figure.Figure] = []
    monkeypatch.setattr("yamame.tools.study.reproduce_report.save", lambda figure, path: drawn.append(figure))
    result = reproduce("fig20", quiet=True, train=FakeTrain())
    (axes,) = drawn[0].axes
    scores = {arm["arm"]: arm["mean"] for arm in result.results["panels"][0]["arms"]}
    lines = {str(line.get_label()): list(zip(*line.get_data(), strict=True)) for line in axes.get_lines()}
    assert list(scores) == ["AMAGO", "Algorithm Distillation"]
    for name, score in scores.items():
        assert lines[name] == [(1.0, 0.25 * score), (2.0, 0.75 * score)]
    assert [height for _, height in lines["random actions"]] == [-0.25, -0.25]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("attempt in a new task", "return of the attempt")


def test_environments_of_a_benchmark_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "popgym", "--list"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 39 and ["AutoencodeEasy", "easy"] in lines
    assert main(["sweep", "popgym", "--list", "--json"]) == 0
    assert {"env": "AutoencodeHard", "difficulty": "hard"} in json.loads(capsys.readouterr().out)
    assert main(["sweep", "wind", "--list"]) == 2
    assert "is a single task" in capsys.readouterr().err
    assert not Path("sweeps").exists()


def test_a_sweep_has_random_actions_beside_each_arm() -> None:
    report = run_sweep("passive-tmaze", quiet=True, train=FakeTrain())
    header, _, row = report.text.splitlines()[:3]
    at = [cell.strip() for cell in header.split("|")].index("random")
    assert float(row.split("|")[at]) == report.results["arms"][0]["random_return"]
