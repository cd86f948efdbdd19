"""Plot and table of an experiment, with the paper's numbers beside ours."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from yamame.experiments import AMAGO, Experiment, Score
from yamame.metrics.confidence import Mean, mean_of
from yamame.tools.plots import COLORS, RANDOM_COLOR, color, compact, legend_height, new_figure, plain, plot_band
from yamame.tools.reproduce.results import SCORE_NAMES, ArmScores, PanelScores
from yamame.tools.sweep.report import format_mean, format_number, markdown_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

X_NAMES = {"env_steps": "environment steps", "updates": "gradient updates"}
MAX_COLUMNS = 3
REEVALUATED = "best, re-evaluated"
"""Heading of the return of the best checkpoint on fresh seeds, beside the maximum that chose it."""
_EDGE: dict[str, Any] = {"markeredgecolor": "white", "markeredgewidth": 0.6}
"""Keeps markers apart from bars."""
_STYLES = ("--", ":", "-.")


def to_markdown(experiment: Experiment, panels: Sequence[PanelScores]) -> str:
    """Return the table and the notes of an experiment; published numbers that are not known are `-`."""
    rows = [(panel, arm) for panel in panels for arm in panel.arms]
    lines = [f"# {experiment.title}", "", f"Paper: {experiment.source}.", ""]
    if rows:
        cells = [dict(_cells(panel, arm)) for panel, arm in rows]
        if not any(arm.best_returns for _, arm in rows):
            cells = [{name: cell for name, cell in row.items() if name != REEVALUATED} for row in cells]
        lines += [markdown_table(list(cells[0]), [list(row.values()) for row in cells]), ""]
        lines += [f"{title}: {text}." for title, text in _references(panels)]
        if any(len(arm.scores) > 1 for _, arm in rows):
            lines.append("Means over seeds with 95 % intervals (Student's t).")
        lines += [f"{panel.panel.title}, {arm.arm.label}: {arm.note}." for panel, arm in rows if arm.note]
    return "\n".join([*lines, *experiment.notes]).rstrip() + "\n"


def plot(experiment: Experiment, panels: Sequence[PanelScores]) -> "Figure":
    """Plot learning curves in a panel each, or final scores as bars."""
    return _plot_bars(experiment, panels) if experiment.style == "bars" else _plot_curves(panels)


def _cells(panel: PanelScores, arm: ArmScores) -> Iterator[tuple[str, str]]:
    yield "environment", panel.panel.title
    yield "arm", arm.arm.label
    yield "seeds", str(len(arm.scores))
    yield "score", SCORE_NAMES[panel.panel.score]
    yield "here", format_mean(arm.mean)
    yield REEVALUATED, format_mean(mean_of(arm.best_returns) if arm.best_returns else None)
    yield "paper", format_number(arm.arm.published)
    for key in ("env_steps", "updates", "train_seconds"):
        value = arm.average(key)
        yield key.replace("_", " "), "-" if value is None else f"{value:,.0f}"


def _references(panels: Sequence[PanelScores]) -> Iterator[tuple[str, str]]:
    for each in panels:
        if each.panel.references:
            text = ", ".join(f"{name} {format_number(score)}" for name, score in each.panel.references)
            yield f"Published for {each.panel.title}", text


def _plot_curves(panels: Sequence[PanelScores]) -> "Figure":
    columns = 2 if len(panels) == 4 else min(MAX_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    longest = max(len(panel.arms) + len(panel.panel.references) for panel in panels)
    legend = legend_height(["a label of usual length"] * (2 * longest))
    figure, axes = new_figure(rows=rows, columns=columns, width=5.4 * columns, height=rows * (3.6 + legend))
    for each, panel in zip(axes, panels, strict=False):
        _plot_panel(each, panel)
    for each in axes[len(panels) :]:
        each.set_visible(False)
    return figure


def _plot_panel(axes: "Axes", panel: PanelScores) -> None:
    for number, arm in enumerate(panel.arms):
        label = plain(arm.arm.label)
        if curve := arm.curve:
            plot_band(axes, curve.x, curve.mean, curve.ci95, label=label, number=number, ended=curve.solved)
        published: dict[str, Any] = {"color": color(number), "linestyle": "--", "linewidth": 1.2}
        if arm.arm.published_curve:
            x, y = zip(*arm.arm.published_curve, strict=True)
            axes.plot(x, y, label=f"{label}, paper", **published)
        elif arm.arm.published is not None:
            axes.axhline(arm.arm.published, label=f"{label}, paper", **published)
    for number, (name, score) in enumerate(panel.panel.references):
        axes.axhline(
            score, color=RANDOM_COLOR, linestyle=_STYLES[number % len(_STYLES)], linewidth=1, label=plain(name)
        )
    name_of_curve: Score = "return" if panel.panel.score == "best_return" else panel.panel.score
    axes.set(xlabel=X_NAMES[panel.panel.x_axis], ylabel=SCORE_NAMES[name_of_curve], title=plain(panel.panel.title))
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(compact)
    axes.legend(frameon=False, fontsize=8, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.16))


def _plot_bars(experiment: Experiment, panels: Sequence[PanelScores]) -> "Figure":
    labels = list(dict.fromkeys(arm.arm.label for panel in panels for arm in panel.arms))
    methods = list(dict.fromkeys(name for panel in panels for name, _ in panel.panel.references))
    width = 0.8 / len(labels)
    tilted = len(panels) > 4 or any(len(panel.panel.title) > 24 for panel in panels)
    inches = max(7.2, 0.32 * len(labels) * len(panels), 0.42 * len(panels))
    figure, (axes,) = new_figure(width=inches, height=6.2 if tilted else 4.8)
    for place, panel in enumerate(panels):
        for arm in panel.arms:
            number = labels.index(arm.arm.label)
            at = place - 0.4 + (number + 0.5) * width
            _bar(axes, at, width, arm.mean, color(number))
            if arm.arm.published is not None:
                axes.plot([at], [arm.arm.published], "D", color="black", markersize=5, zorder=4, **_EDGE)
        for name, score in panel.panel.references:
            marker = "sv^<>"[methods.index(name) % 5]
            axes.plot([place], [score], marker, color=RANDOM_COLOR, markersize=5, zorder=4, **_EDGE)
    _legend_of_bars(axes, labels, methods, any(arm.arm.published is not None for each in panels for arm in each.arms))
    titles = [plain(panel.panel.title).replace(", ", ",\n") for panel in panels]
    axes.set_xticks(range(len(panels)), titles, fontsize=8)
    if tilted:
        axes.tick_params(axis="x", rotation=40)
        for label in axes.get_xticklabels():
            label.set(horizontalalignment="right", rotation_mode="anchor")
    axes.set(ylabel=SCORE_NAMES[panels[0].panel.score], title=plain(experiment.title))
    axes.set_xlim(-0.6, len(panels) - 0.4)
    axes.axhline(0, color="black", linewidth=0.8)
    axes.grid(axis="x", visible=False)
    return figure


def _bar(axes: "Axes", at: float, width: float, mean: Mean | None, bar_color: str) -> None:
    if mean is None:
        return
    axes.bar(at, mean.mean, 0.92 * width, color=bar_color)
    if mean.ci95 is not None:
        low, high = mean.ci95
        whiskers = [[max(0.0, mean.mean - low)], [max(0.0, high - mean.mean)]]
        axes.errorbar([at], [mean.mean], whiskers, color="black", capsize=2, linewidth=1, linestyle="none")


def _legend_of_bars(axes: "Axes", labels: Sequence[str], methods: Sequence[str], has_published: bool) -> None:
    for number, label in enumerate(labels):
        axes.bar([0], [0], color=COLORS[number % len(COLORS)], label=plain(label))
    if has_published:
        name = "paper" if len(labels) > 1 or labels != [AMAGO] else f"{AMAGO}, paper"
        axes.plot([], [], "D", color="black", markersize=4, linestyle="none", label=name)
    for number, name in enumerate(methods):
        axes.plot([], [], "sv^<>"[number % 5], color=RANDOM_COLOR, markersize=4, linestyle="none", label=plain(name))
    axes.legend(frameon=False, fontsize=8, ncols=4, loc="lower left", bbox_to_anchor=(0, 1.06))
