"""Report of a sweep: tables in Markdown, CSV and JSON, learning curves, and bars of scores beside published ones."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yamame.metrics.confidence import Aggregate, Mean, mean_of
from yamame.runs.durable_files import replace_atomically
from yamame.tools.plots import (
    COLORS,
    HEIGHT,
    RANDOM,
    compact,
    legend_below,
    legend_height,
    new_figure,
    plot_band,
    plot_random_baseline,
    save,
)
from yamame.tools.sweep.results import ArmResult, SweepResults
from yamame.tools.sweep.runs import CSV, CURVES, JSON, MARKDOWN, SCORES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_COLUMNS = 3
"""Panels side by side in a figure of several environments."""
_MARKERS = ("D", "s", "^", "|", "v", "P")


def write_sweep_report(directory: Path, results: SweepResults) -> list[Path]:
    """Write all files of the report, each whole or not at all; return the paths of the figures."""
    rows = [arm.to_json() for arm in results.arms]
    figures = {CURVES: plot_curves(results)}
    if results.benchmark.scores:
        figures[SCORES] = plot_scores(results)
    images = "\n".join(f"![{name}]({name})" for name in figures)
    texts = {
        CSV: _csv(rows),
        JSON: json.dumps(results.to_json(), indent=1) + "\n",
        MARKDOWN: f"# {results.benchmark.title}\n\n{markdown(results)}\n\n{images}\n",
    }
    for name, text in texts.items():
        with replace_atomically(directory / name) as partial:
            partial.write_text(text, encoding="utf-8")
    for name, figure in figures.items():
        save(figure, directory / name)
    return [directory / name for name in figures]


def markdown(results: SweepResults) -> str:
    """Return the table with its notes, readable as plain text too."""
    rows = [dict(_cells(arm, results)) for arm in results.arms]
    table = markdown_table(list(rows[0]), [list(row.values()) for row in rows]) if rows else "No finished runs."
    return "\n".join([table, "", *_notes(results)]).rstrip()


def plot_curves(results: SweepResults) -> "Figure":
    """Plot evaluation return against environment steps, a panel per environment: mean over seeds with 95 % band."""
    by_env = [list(group) for _, group in groupby(results.arms, key=lambda arm: arm.env_name)] or [[]]
    if len(by_env) == 1:
        labels = [arm.arm for arm in by_env[0]] + [RANDOM]
        figure, (axes,) = new_figure(height=HEIGHT + legend_height(labels))
        _plot_env(axes, by_env[0], results.benchmark.title)
        legend_below(axes)
        return figure
    columns = min(MAX_COLUMNS, len(by_env))
    rows = -(-len(by_env) // columns)
    figure, panels = new_figure(rows=rows, columns=columns, width=4.2 * columns, height=3.2 * rows)
    for axes, arms in zip(panels, by_env, strict=False):
        _plot_env(axes, arms, arms[0].env_name)
    for axes in panels[len(by_env) :]:
        axes.set_visible(False)
    panels[0].legend(frameon=False, fontsize=8)
    return figure


def plot_scores(results: SweepResults) -> "Figure":
    """Plot a bar per environment and arm, a dot per seed and a marker per published score."""
    scores = results.benchmark.scores
    assert scores is not None
    figure, (axes,) = new_figure(height=1.4 + 0.26 * len(results.arms))
    rows = range(len(results.arms))
    axes.barh(rows, [mean_of(arm.scores).mean for arm in results.arms], color=COLORS[0], height=0.6, label="here")
    seeds = [(score, row) for row, arm in enumerate(results.arms) for score in arm.scores]
    _mark(axes, seeds, label="seeds", marker="o", color="black", size=3)
    methods = dict.fromkeys(key for arm in results.arms if arm.reference for key in arm.reference.published)
    for number, method in enumerate(methods):
        points = [(arm.reference.published.get(method), row) for row, arm in enumerate(results.arms) if arm.reference]
        marker, color = _MARKERS[number % len(_MARKERS)], COLORS[(number + 1) % len(COLORS)]
        _mark(axes, points, label=method.replace("_", " "), marker=marker, color=color)
    axes.set_yticks(rows, [" ".join(_labels(arm, results)) for arm in results.arms])
    axes.invert_yaxis()
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set(xlabel=f"{scores.name} on {results.benchmark.title}")
    axes.legend(frameon=False, fontsize=9, ncols=6, loc="lower right", bbox_to_anchor=(1, 1), columnspacing=1)
    return figure


def _plot_env(axes: "Axes", arms: Sequence[ArmResult], title: str) -> None:
    for number, arm in enumerate(arms):
        if curve := arm.curve:
            plot_band(axes, curve.x, curve.mean, curve.ci95, label=arm.arm, number=number, ended=curve.solved)
    plot_random_baseline(axes, arms[0].random_return if arms else None)
    axes.set(xlabel="environment steps", ylabel="mean return of an evaluation", title=title)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(compact)


def _mark(
    axes: "Axes",
    points: Sequence[tuple[float | None, int]],
    *,
    label: str,
    marker: str,
    color: str,
    size: int = 6,
) -> None:
    known = [(value, row) for value, row in points if value is not None]
    values, rows = [value for value, _ in known], [row for _, row in known]
    axes.plot(values, rows, marker, color=color, markersize=size, linestyle="none", label=label if known else None)


def _labels(arm: ArmResult, results: SweepResults) -> list[str]:
    """Name the environment, if there are several to choose from, and the arm, if there are several."""
    several_arms = len({each.arm for each in results.arms}) > 1
    return [*([arm.env_name] if arm.env_name else []), *([arm.arm] if several_arms or not arm.env_name else [])]


def _cells(arm: ArmResult, results: SweepResults) -> Iterator[tuple[str, str]]:
    if arm.env_name:
        yield "environment", arm.env_name
    yield "arm", arm.arm
    yield "seeds", str(len(arm.runs))
    if results.benchmark.scores and arm.reference:
        score = mean_of(arm.scores)
        yield "best, re-evaluated", format_mean(arm.best_return)
        standardized = arm.reference.standardized(score.mean)
        yield results.benchmark.scores.name, format_mean(score)
        yield (
            "standardized",
            ("" if arm.reference.is_exact or standardized is None else "~") + format_number(standardized),
        )
        for method, published in arm.reference.published.items():
            yield method.replace("_", " "), format_number(published)
    yield "final return", format_mean(arm.final_return)
    yield "success rate", format_mean(arm.success_rate)
    yield "env steps", f"{arm.env_steps:,.0f}"
    yield "wall seconds", f"{arm.wall_seconds:,.0f}"


def _notes(results: SweepResults) -> Iterator[str]:
    scores = results.benchmark.scores
    if scores:
        for arm, (of_scores, standardized) in results.aggregates.items():
            yield _aggregate_line(f"{scores.name}, {arm}", of_scores)
            yield _aggregate_line(f"Standardized, {arm}", standardized)
        yield from scores.notes
    elif results.arms and results.arms[0].random_return is not None:
        yield f"Mean return of random actions: {format_number(results.arms[0].random_return)}."
    if any(len(arm.runs) > 1 for arm in results.arms):
        yield "Means over seeds with 95 % intervals (Student's t)."
    if any(arm.curve and arm.curve.solved for arm in results.arms):
        yield "A curve that ends early, in a dot: all its seeds solved the task and stopped."
    if results.num_unfinished:
        yield f"Unfinished runs, not counted: {results.num_unfinished}."


def _aggregate_line(name: str, aggregate: Aggregate | None) -> str:
    if aggregate is None:
        return f"{name}: no environment with known bounds."
    mean = format_mean(Mean(aggregate.mean, aggregate.mean_ci95))
    middle = format_mean(Mean(aggregate.interquartile_mean, aggregate.interquartile_mean_ci95))
    return (
        f"{name}: mean {mean}, interquartile mean {middle} over {aggregate.num_envs} environments, "
        f"{aggregate.num_runs} runs."
    )


def format_mean(value: Mean | None) -> str:
    """Format a mean with its interval; `-` for None."""
    if value is None:
        return "-"
    return format_number(value.mean) + ("" if value.ci95 is None else f" [{value.ci95[0]:.3f}, {value.ci95[1]:.3f}]")


def format_number(value: float | None) -> str:
    """Format a number with three digits; `-` for None."""
    return "-" if value is None else f"{value:.3f}"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table padded to the width of its columns: text columns to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    alignments = ["<" if name in ("environment", "arm") else ">" for name in header]

    def line(cells: Sequence[str]) -> str:
        padded = [f"{cell:{side}{width}}" for cell, side, width in zip(cells, alignments, widths, strict=True)]
        return f"| {' | '.join(padded)} |"

    rule = "|".join("-" * (width + 2) for width in widths)
    return "\n".join([line(header), f"|{rule}|", *map(line, rows)])


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as CSV: lists with spaces between their values, None as an empty cell."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else ["arm"])
    writer.writeheader()
    for row in rows:
        lists = {key: " ".join(map(str, value)) for key, value in row.items() if isinstance(value, list)}
        writer.writerow({**row, **lists})
    return text.getvalue()
