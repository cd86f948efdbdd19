"""The results of a suite for people: a table as text, Markdown and CSV, and a picture."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from yamame.tools.many.markdown import interval, markdown_table, number
from yamame.tools.many.results_files import write_results_files
from yamame.tools.plots import EVALUATION_COLOR, RANDOM_COLOR, SUCCESS_COLOR, TRAINING_COLOR, figure_axes
from yamame.tools.suite.reference import published_summaries
from yamame.tools.suite.results import EnvironmentResult, SuiteResults
from yamame.tools.suite.scores import Aggregate

HEADER = ("environment", "seeds", "MMER", "standardized", "paper", "best baseline", "GRU", "random")


def write_results(directory: Path, results: SuiteResults) -> None:
    """Write `results.csv`, `results.md` and `results.png` into the suite's folder, each whole or not at all."""
    rows = [each.to_json() for each in results.environments]
    write_results_files(
        directory,
        title="POPGym",
        text=markdown(results),
        picture="MMER",
        columns=list(rows[0]) if rows else HEADER,
        rows=rows,
        draw=lambda path: _draw(path, results),
    )


def markdown(results: SuiteResults) -> str:
    """The table, and what all environments come to beside the paper's figures."""
    return "\n".join([markdown_table(HEADER, [_cells(each) for each in results.environments]), "", *_notes(results)])


def _cells(result: EnvironmentResult) -> tuple[str, ...]:
    reference, score = result.reference, number(result.standardized)
    return (
        result.name,
        str(len(result.mmer)),
        number(result.mean),
        score if reference.is_exact or result.standardized is None else f"~{score}",
        number(reference.paper),
        number(reference.best_baseline),
        number(reference.gru),
        number(reference.random),
    )


def _notes(results: SuiteResults) -> Iterator[str]:
    yield _aggregate_line("MMER", results.raw)
    yield _aggregate_line("Standardized", results.standardized)
    published = {(each.scale, each.statistic): each for each in published_summaries()}
    for name, scale in (("MMER", "unstandardized"), ("standardized", "standardized")):
        of_all = published[scale, "mean"]
        yield f"Published mean over all 39 environments, {name}: paper {of_all.paper}, GRU {of_all.gru}."
    yield ""
    yield (
        "MMER: maximum over training of the mean evaluation return, then the mean over seeds. Standardized: 0 for the "
        "worst published baseline, 1 for the best published method, the paper's agent included; ~: random actions "
        "stand for the worst baseline, or the best baseline for the paper's agent, where no figure is known."
    )
    if results.unfinished:
        yield f"Not counted: {results.unfinished} runs that have not come to their end."


def _aggregate_line(name: str, aggregate: Aggregate | None) -> str:
    if aggregate is None:
        return f"{name}: nothing to count yet."
    mean = f"mean {aggregate.mean:.3f}{interval(aggregate.mean_ci95)}"
    middle = f"interquartile mean {aggregate.interquartile_mean:.3f}{interval(aggregate.interquartile_mean_ci95)}"
    return f"{name} over {aggregate.environments} environments, {aggregate.runs} runs: {mean}, {middle}."


def _draw(path: Path, results: SuiteResults) -> None:
    """A bar for each environment, a dot for each seed, and marks for what others reached."""
    rows = list(enumerate(results.environments))
    with figure_axes(path, height=1.4 + 0.26 * len(rows)) as axes:
        axes.barh(range(len(rows)), [each.mean for _, each in rows], color=TRAINING_COLOR, height=0.6, label="here")
        _mark(axes, [(mmer, row) for row, each in rows for mmer in each.mmer.values()], "its seeds", "o", "black", 3)
        _mark(axes, [(each.reference.paper, row) for row, each in rows], "paper", "D", EVALUATION_COLOR)
        _mark(axes, [(each.reference.best_baseline, row) for row, each in rows], "best baseline", "s", SUCCESS_COLOR)
        _mark(axes, [(each.reference.random, row) for row, each in rows], "random", "|", RANDOM_COLOR)
        axes.set_yticks(range(len(rows)), [each.name for _, each in rows])
        axes.invert_yaxis()
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set(xlabel="MMER on POPGym")
        axes.legend(frameon=False, fontsize=9, ncols=5, loc="lower right", bbox_to_anchor=(1, 1), columnspacing=1)


def _mark(
    axes: Any, points: Sequence[tuple[float | None, int]], label: str, mark: str, color: str, size: int = 6
) -> None:
    """A mark at every figure that is known."""
    known = [(value, row) for value, row in points if value is not None]
    values, rows = [value for value, _ in known], [row for _, row in known]
    axes.plot(values, rows, mark, color=color, markersize=size, linestyle="none", label=label if known else None)
