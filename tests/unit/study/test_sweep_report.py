"""The report of a sweep: what its tables and figures show is what the runs reached."""

import csv
import json
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from command_runs import output_json
from sweep_runs import FakeTrain, fake_return

from yamame.cli import main
from yamame.studies import find_benchmark
from yamame.studies.base import Arm, Panel
from yamame.tools.palette import COLORS, RANDOM_COLOR
from yamame.tools.study.curves import RunCurve
from yamame.tools.study.report import plot_curves
from yamame.tools.study.results import ArmResults, FinishedRun, PanelResults
from yamame.tools.study.sweep import run_sweep


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def table(text: str) -> list[dict[str, str]]:
    """The rows of a table in Markdown."""
    lines = [line.strip("| ").split("|") for line in text.splitlines() if line.startswith("|")]
    header, _, *rows = [[cell.strip() for cell in line] for line in lines]
    return [dict(zip(header, row, strict=True)) for row in rows]


def test_a_row_for_each_arm(capsys: pytest.CaptureFixture[str]) -> None:
    report = run_sweep("passive-tmaze", variants="gru", seeds="0,1", quiet=True, train=FakeTrain())
    run_sweep("passive-tmaze", variants="no-memory", no_full=True, quiet=True, train=FakeTrain())
    found, _ = output_json(capsys, "sweep", "passive-tmaze", "--report-only")
    full, single, gru = found["arms"]
    for row in (full, gru):
        returns = [fake_return(row["arm"], seed) for seed in (0, 1)]
        assert row["return_per_seed"] == returns and row["return_mean"] == pytest.approx(sum(returns) / 2)
        half = 12.7062 * abs(returns[1] - returns[0]) / 2  # Student's t with one degree of freedom
        assert row["return_ci95"] == pytest.approx([row["return_mean"] - half, row["return_mean"] + half])
    assert (single["arm"], single["return_ci95"], single["success_rate"]) == ("no-memory", None, None)
    assert report.results["arms"] == [full, gru]

    folder = Path("sweeps/passive-tmaze")
    assert json.loads((folder / "results.json").read_text())["arms"] == found["arms"]
    with (folder / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["return_mean"]) for row in rows] == [row["return_mean"] for row in found["arms"]]
    assert rows[1]["return_ci95"] == "" and rows[0]["seeds"] == "0 1"
    assert main(["sweep", "passive-tmaze", "--report-only"]) == 0
    text, _, figure = capsys.readouterr().out.partition("Figure: ")
    assert table(text)[0] == {
        "arm": "full",
        "seeds": "2",
        "final return": "0.090 [-0.545, 0.725]",
        "random": "-0.500",
        "success rate": "-",
        "env steps": "620,000",
        "wall seconds": "2",
    }
    assert text.strip() in (folder / "results.md").read_text() and Path(figure.strip()).is_file()


@pytest.mark.slow
def test_a_benchmark_is_listed_with_its_published_scores(capsys: pytest.CaptureFixture[str]) -> None:
    envs = "MineSweeperEasy,HigherLowerEasy,AutoencodeEasy"
    run_sweep("popgym", envs=envs, variants="gru", seeds="0,1", quiet=True, train=FakeTrain())
    report = run_sweep("popgym", report_only=True)
    rows = {(row["env"], row["arm"]): row for row in report.results["arms"]}
    in_order = ["AutoencodeEasy", "HigherLowerEasy", "MineSweeperEasy"]  # in the order of the benchmark
    assert list(rows) == [(name, arm) for name in in_order for arm in ("full", "gru")]
    for (name, arm), row in rows.items():
        best = [1.5 * fake_return(f"{name}-{arm}", seed) for seed in (0, 1)]  # of all evaluations
        assert row["score_per_seed"] == pytest.approx(best) and row["score_mean"] == pytest.approx(sum(best) / 2)
        benchmark = find_benchmark("popgym")
        assert benchmark is not None
        (panel,) = (panel for panel in benchmark.panels if panel.title == name)
        assert panel.bounds is not None
        assert row["standardized"] == panel.bounds.standardized(row["score_mean"])
        assert row["gru"] == panel.published("GRU") and row["random"] == panel.published("random")
    assert rows["AutoencodeEasy", "full"]["standardized_is_exact"]
    assert not rows["HigherLowerEasy", "full"]["standardized_is_exact"]
    assert rows["MineSweeperEasy", "full"]["standardized"] is None
    for arm in ("full", "gru"):
        found = report.results["aggregates"][arm]
        assert (found["scores"]["num_envs"], found["standardized"]["num_envs"]) == (3, 2)
        assert found["scores"]["mean"] == pytest.approx(np.mean([rows[name, arm]["score_mean"] for name in in_order]))
        low, high = found["scores"]["mean_ci95"]
        assert low <= found["scores"]["mean"] <= high
    by_name = {(row["environment"], row["arm"]): row for row in table(report.text)}
    assert by_name["HigherLowerEasy", "full"]["standardized"].startswith("~")
    assert by_name["MineSweeperEasy", "gru"]["standardized"] == "-"
    assert by_name["AutoencodeEasy", "full"]["paper"] == "0.980" and "0.6293" in report.text
    folder = Path("sweeps/popgym")
    assert {path.name for path in folder.iterdir() if path.is_file()} == {
        *("results.csv", "results.md", "results.json", "curves.png", "scores.png")
    }


def test_an_empty_directory_has_an_empty_report(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("passive-tmaze", "popgym"):
        Path(name).mkdir()
        for _ in range(2):  # the second report replaces the first
            assert main(["sweep", name, "--report-only", "--output-dir", name]) == 0
            assert "No finished runs" in capsys.readouterr().out


def pixels_of(figure: Any) -> np.ndarray:
    """The colors of a figure, one pixel a row."""
    figure.savefig("figure.png", dpi=150)
    return np.round(matplotlib.image.imread("figure.png")[..., :3].reshape(-1, 3) * 255).astype(int)


def shows(pixels: np.ndarray, color: str, strength: float = 1.0) -> bool:
    """Whether there are more than a few pixels of a color, over white in this strength."""
    ink = np.array([int(color[at : at + 2], 16) for at in (1, 3, 5)])
    return bool((np.abs(pixels - np.round(255 - strength * (255 - ink))) <= 1).all(-1).sum() > 100)


def arm_result(number: int, seeds: int, random: float | None = None) -> ArmResults:
    runs = [
        FinishedRun(
            seed=seed,
            result={},
            curve=RunCurve(
                x=np.array([0.0, 2e6]), values=np.array([10.0 * number, 10.0 * number + 2 * seed]), solved=False
            ),
        )
        for seed in range(seeds)
    ]
    return ArmResults(arm=Arm(label=f"arm-{number}", recipe="a"), runs=runs, random_score=random)


def panel_of(arms: list[ArmResults], title: str = "a") -> PanelResults:
    return PanelResults(panel=Panel(title=title, arms=tuple(arm.arm for arm in arms)), arms=arms)


LABELS = [f"arm-{number}" for number in range(9)]


@pytest.mark.parametrize(("arms", "seeds"), [(1, 1), (2, 4), (9, 4)])
def test_the_figure_has_a_line_and_a_band_for_each_arm(arms: int, seeds: int) -> None:
    random = -5.0 if seeds == 4 else None
    pixels = pixels_of(plot_curves([panel_of([arm_result(number, seeds, random) for number in range(arms)])], LABELS))
    for number, color in enumerate(COLORS[:-1]):  # the last one is that of the axes
        assert shows(pixels, color) == (number < arms)
        if number < min(arms, 4):
            assert shows(pixels, color, 0.15) == (seeds > 1)
    assert shows(pixels, RANDOM_COLOR) == (random is not None)


def test_each_environment_has_a_panel() -> None:
    panels = [panel_of([arm_result(number, 4) for number in range(2)], env) for env in "abcd"]
    figure = plot_curves(panels, LABELS)
    assert [axes.get_title() for axes in figure.axes if axes.get_visible()] == list("abcd")
    assert all(len(axes.lines) == 2 and len(axes.collections) == 2 for axes in figure.axes[:4])


def test_few_seeds_are_lines_of_their_own() -> None:
    (axes, *_) = plot_curves([panel_of([arm_result(0, 3), arm_result(1, 2)])], LABELS).axes
    assert not axes.collections
    labeled = [line for line in axes.lines if not str(line.get_label()).startswith("_")]
    assert len(labeled) == 2 and len(axes.lines) == 2 + 3 + 2
    seeds = [line for line in axes.lines if line.get_linewidth() == 1]
    assert [line.get_ydata()[-1] for line in seeds] == [0, 2, 4, 10, 12]
    assert [line.get_color() for line in seeds] == [COLORS[0]] * 3 + [COLORS[1]] * 2


def test_an_arm_has_its_color_in_every_panel() -> None:
    """Also where an environment, or the whole figure, lacks other arms."""
    panels = [panel_of([arm_result(1, 1)], "a"), panel_of([arm_result(0, 1), arm_result(1, 1)], "b")]
    first, second = plot_curves(panels, LABELS).axes[:2]
    assert [line.get_color() for line in first.lines] == [COLORS[1]]
    assert [line.get_color() for line in second.lines] == [*COLORS[:2]]


def test_a_curve_of_one_point_is_seen() -> None:
    run = FinishedRun(seed=0, result={}, curve=RunCurve(x=np.array([50.0]), values=np.array([1.0]), solved=False))
    arm = ArmResults(arm=Arm(label="full", recipe="a"), runs=[run])
    assert shows(pixels_of(plot_curves([panel_of([arm])], ["full"])), COLORS[0])
    assert not shows(pixels_of(plot_curves([], [])), COLORS[0])
