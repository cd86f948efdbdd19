"""The results of a comparison for people: a table as text, Markdown and CSV, and a picture."""

from collections.abc import Iterator
from pathlib import Path

from yamame.tools.ablate.figure import draw_curves
from yamame.tools.ablate.results import AblationResults, ArmResult
from yamame.tools.ablate.statistic import Mean
from yamame.tools.many.markdown import interval, markdown_table, number
from yamame.tools.many.results_files import write_results_files

HEADER = ("variant", "seeds", "final return", "success rate", "env steps", "wall seconds")


def write_results(directory: Path, results: AblationResults) -> None:
    """Write `results.csv`, `results.md` and `results.png` into the comparison's folder, each whole or not at all."""
    rows = [arm.to_json() for arm in results.arms]
    write_results_files(
        directory,
        title=f"Ablation of {results.recipe}",
        text=markdown(results),
        picture="Evaluation return against environment steps",
        columns=list(rows[0]) if rows else HEADER,
        rows=rows,
        draw=lambda path: draw_curves(path, results),
    )


def markdown(results: AblationResults) -> str:
    """The table, and how to read it."""
    return "\n".join([markdown_table(HEADER, [_cells(arm) for arm in results.arms]), "", *_notes(results)])


def _cells(arm: ArmResult) -> tuple[str, ...]:
    return (
        arm.arm.name,
        str(len(arm.runs)),
        _mean(arm.final_return),
        _mean(arm.success_rate),
        f"{arm.env_steps:,.0f}",
        f"{arm.wall_seconds:,.0f}",
    )


def _notes(results: AblationResults) -> Iterator[str]:
    if not results.arms:
        yield "Nothing to count yet."
    if results.random_return is not None:
        yield f"Mean return of random actions: {number(results.random_return)}."
    if any(len(arm.runs) > 1 for arm in results.arms):
        yield "Means over seeds with 95 % bootstrap intervals; those of two or three seeds are their range."
    if any(arm.curve and arm.curve.solved for arm in results.arms):
        yield "A curve that ends early, in a dot: all its seeds had solved the task and stopped."
    if results.unfinished:
        yield f"Runs that have not come to their end, not counted: {results.unfinished}."


def _mean(figure: Mean | None) -> str:
    return "-" if figure is None else f"{number(figure.mean)}{interval(figure.ci95)}"
