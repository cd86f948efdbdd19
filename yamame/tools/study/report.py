"""Tables and plots of a study, with published numbers beside ours."""

import csv
import io
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from yamame.errors import wrap_os_errors
from yamame.metrics.confidence import Mean
from yamame.runs.durable_files import replace_atomically
from yamame.studies.base import AMAGO, Score, Study
from yamame.tools.palette import RANDOM_COLOR, color
from yamame.tools.plots import (
    EDGE,
    RANDOM,
    compact,
    legend_height,
    new_figure,
    plain,
    plot_band,
    plot_random_baseline,
    stamp,
)
from yamame.tools.study.curves import MIN_BAND_SEEDS
from yamame.tools.study.results import ArmResults, PanelResults

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SCORE_NAMES: Mapping[Score, str] = {
    "return": "return",
    "best_return": "MMER",
    "success_rate": "success rate",
    "progress": "return per sub-goal",
}
X_NAMES = {"env_steps": "environment steps", "updates": "gradient updates", "attempts": "attempt in a new task"}
REEVALUATED = "best, re-evaluated"
"""Heading of the return of the best checkpoint on fresh seeds, beside the maximum that chose it."""
OVER_SEEDS = "Means over seeds with 95 % intervals (Student's t)."
MAX_COLUMNS = 3
REPORT_LOCK = ".report.lock"
"""Exists while a report is written."""
_STYLES = ("--", ":", "-.")
_MARKERS = "sv^<>"


@contextmanager
def report_lock(directory: Path) -> Iterator[None]:
    """Wait until no other process, which may train other arms there, writes a report in the directory."""
    lock = FileLock(directory / REPORT_LOCK)
    with wrap_os_errors(directory / REPORT_LOCK):
        try:
            lock.acquire(timeout=1.0)
        except Timeout:
            print(f"waiting for another process, which writes a report in {directory}", file=sys.stderr, flush=True)
            lock.acquire()
    try:
        yield
    finally:
        with suppress(OSError):  # Windows removes it on release
            (directory / REPORT_LOCK).unlink()
        lock.release()


def write_texts(directory: Path, texts: Mapping[str, str]) -> None:
    """Write files by name, each whole or not at all. Raises `UserError` if one cannot be written."""
    for name, text in texts.items():
        with wrap_os_errors(directory / name), replace_atomically(directory / name) as partial:
            partial.write_text(text, encoding="utf-8", errors="backslashreplace")  # names of files


def image_links(plots: Iterable[Path]) -> str:
    """Return the Markdown that shows plots beside the file."""
    return "\n".join(f"![{path.name}]({path.name})" for path in plots)


def markdown_table(rows: Sequence[Mapping[str, str]]) -> str:
    """Return rows by heading as a table, padded to the width of its columns: text to the left, numbers to the right."""
    header = list(rows[0])
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in header}

    def line(row: Mapping[str, str]) -> str:
        sides = {name: "<" if name in ("environment", "arm") else ">" for name in header}
        return f"| {' | '.join(f'{row[name]:{sides[name]}{widths[name]}}' for name in header)} |"

    rule = "|".join("-" * (width + 2) for width in widths.values())
    return "\n".join([line({name: name for name in header}), f"|{rule}|", *map(line, rows)])


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as CSV: lists with spaces between their values, None as an empty cell."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else ["arm"])
    writer.writeheader()
    for row in rows:
        lists = {key: " ".join(map(str, value)) for key, value in row.items() if isinstance(value, list)}
        writer.writerow({**row, **lists})
    return text.getvalue()


def format_mean(value: Mean | None) -> str:
    """Format a mean with its interval; `-` for None."""
    if value is None:
        return "-"
    return format_score(value.mean) + ("" if value.ci95 is None else f" [{value.ci95[0]:.3f}, {value.ci95[1]:.3f}]")


def format_score(value: float | None) -> str:
    """Format a number with three digits; `-` for None."""
    return "-" if value is None else f"{value:.3f}"


def format_count(value: int | float | None) -> str:
    """Format a whole number; `-` for None."""
    return "-" if value is None else f"{value:,.0f}"


def ci95_to_json(value: Mean | None) -> list[float] | None:
    """Return the ends of an interval; None without one."""
    return None if value is None or value.ci95 is None else list(value.ci95)


def plot_curves(panels: Sequence[PanelResults], arms: Sequence[str], *, note: str = "") -> "Figure":
    """Plot learning curves in axes for each panel; equal legends are drawn once.

    Means over seeds have a 95 % band, or the curves of the seeds where they are too few. `arms` are the labels of all
    arms in the order of their colors. `note` is written into the corner.
    """
    columns = 2 if len(panels) == 4 else min(MAX_COLUMNS, max(1, len(panels)))
    rows = max(1, -(-len(panels) // columns))
    longest = max((len(panel.arms) + len(panel.panel.references) for panel in panels), default=0)
    legend = legend_height(["a label of usual length"] * (2 * longest))
    width = 7.2 if len(panels) < 2 else 5.4 * columns
    figure, axes = new_figure(rows=rows, columns=columns, width=width, height=rows * (3.6 + legend))
    legends: list[list[str]] = []
    for each, panel in zip(axes, panels, strict=False):
        _plot_panel(each, panel, arms)
        labels = each.get_legend_handles_labels()[1]
        if labels and labels not in legends:
            each.legend(frameon=False, fontsize=8, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.16))
            legends.append(labels)
    for each in axes[len(panels) :]:
        each.set_visible(False)
    stamp(figure, note)
    return figure


def plot_bars(study: Study, panels: Sequence[PanelResults], arms: Sequence[str], *, note: str = "") -> "Figure":
    """Plot a group of bars of scores for each panel, a dot for each seed, and lines and markers of random actions and
    published scores.

    `arms` are the labels of all arms in the order of their colors. `note` is written into the corner.
    """
    found = {arm.arm.label for panel in panels for arm in panel.arms}
    labels = [label for label in arms if label in found]
    methods = list(dict.fromkeys(name for panel in panels for name, _ in panel.panel.references))
    width = 0.8 / max(1, len(labels))
    tilted = len(panels) > 4 or any(len(panel.panel.title) > 24 for panel in panels)
    inches = max(7.2, 0.32 * len(labels) * len(panels), 0.42 * len(panels))
    figure, (axes,) = new_figure(width=inches, height=6.2 if tilted else 4.8)
    for place, panel in enumerate(panels):
        for arm in panel.arms:
            number = labels.index(arm.arm.label)
            at = place - 0.4 + (number + 0.5) * width
            _plot_bar(axes, at, width, arm, color(arms.index(arm.arm.label)))
            if arm.arm.published is not None:
                axes.plot([at], [arm.arm.published], "D", color="black", markersize=5, zorder=4, **EDGE)
        if (random := panel.random_score) is not None:
            axes.plot([place - 0.4, place + 0.4], [random] * 2, color=RANDOM_COLOR, linestyle="--", linewidth=1.2)
        for name, score in panel.panel.references:
            if score is not None:
                marker = _MARKERS[methods.index(name) % len(_MARKERS)]
                axes.plot([place], [score], marker, color=RANDOM_COLOR, markersize=5, zorder=4, **EDGE)
    _add_legend_of_bars(axes, {label: color(arms.index(label)) for label in labels}, methods, panels)
    axes.set_xticks(range(len(panels)), [plain(panel.panel.title).replace(", ", ",\n") for panel in panels], fontsize=8)
    if tilted:
        axes.tick_params(axis="x", rotation=40)
        for label in axes.get_xticklabels():
            label.set(horizontalalignment="right", rotation_mode="anchor")
    scores = dict.fromkeys(SCORE_NAMES[panel.panel.score] for panel in panels)
    axes.set(ylabel=", ".join(scores), title=plain(study.title))
    axes.set_xlim(-0.6, max(1, len(panels)) - 0.4)
    axes.axhline(0, color="black", linewidth=0.8)
    axes.grid(axis="x", visible=False)
    stamp(figure, note)
    return figure


def _plot_panel(axes: "Axes", results: PanelResults, arms: Sequence[str]) -> None:
    panel = results.panel
    for arm in results.arms:
        number, label = arms.index(arm.arm.label), plain(arm.arm.label)
        if curve := arm.curve:
            plot_band(
                axes, curve.x, curve.mean, curve.ci95, seeds=curve.seeds, label=label, number=number, ended=curve.solved
            )
        published: dict[str, Any] = {"color": color(number), "linestyle": "--", "linewidth": 1.2}
        if arm.arm.published_curve:
            x, y = zip(*arm.arm.published_curve, strict=True)
            axes.plot(x, y, label=f"{label}, paper", **published)
        elif arm.arm.published is not None:
            axes.axhline(arm.arm.published, label=f"{label}, paper", **published)
    known = [(name, score) for name, score in panel.references if score is not None]
    for number, (name, score) in enumerate(known):
        style: dict[str, Any] = {"color": RANDOM_COLOR, "linestyle": _STYLES[number % len(_STYLES)], "linewidth": 1}
        axes.axhline(score, label=plain(name), **style)
    plot_random_baseline(axes, results.random_on_curves)
    of_curve: Score = "return" if panel.score == "best_return" else panel.score
    of_attempt = " of the attempt" if panel.x_axis == "attempts" else ""
    axes.set(xlabel=X_NAMES[panel.x_axis], ylabel=f"{SCORE_NAMES[of_curve]}{of_attempt}", title=plain(panel.title))
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(compact)


def _plot_bar(axes: "Axes", at: float, width: float, arm: ArmResults, bar_color: str) -> None:
    mean = arm.mean
    if mean is None:
        return
    axes.bar(at, mean.mean, 0.92 * width, color=bar_color)
    if mean.ci95 is not None:
        if len(arm.scores) >= MIN_BAND_SEEDS:
            low, high = mean.ci95
            whiskers = [[max(0.0, mean.mean - low)], [max(0.0, high - mean.mean)]]
            axes.errorbar([at], [mean.mean], whiskers, color="black", capsize=2, linewidth=1, linestyle="none")
        axes.plot([at] * len(arm.scores), arm.scores, "o", color="black", markersize=2.5)


def _add_legend_of_bars(
    axes: "Axes", labels: Mapping[str, str], methods: Sequence[str], panels: Sequence[PanelResults]
) -> None:
    """Add the legend. `labels`: color of each arm by its label."""
    for label, bar_color in labels.items():
        axes.bar([0], [0], color=bar_color, label=plain(label))
    if any(arm.arm.published is not None for panel in panels for arm in panel.arms):
        name = "paper" if len(labels) > 1 or list(labels) != [AMAGO] else f"{AMAGO}, paper"
        axes.plot([], [], "D", color="black", markersize=4, linestyle="none", label=name)
    if any(panel.random_score is not None for panel in panels):
        axes.plot([], [], color=RANDOM_COLOR, linestyle="--", linewidth=1.2, label=RANDOM)
    for number, name in enumerate(methods):
        marker = _MARKERS[number % len(_MARKERS)]
        axes.plot([], [], marker, color=RANDOM_COLOR, markersize=4, linestyle="none", label=plain(name))
    if labels:
        axes.legend(frameon=False, fontsize=8, ncols=4, loc="lower left", bbox_to_anchor=(0, 1.06))
