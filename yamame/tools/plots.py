"""Style of all figures: axes, bands, legends; and the two plots of a run's report.

Without pyplot, so that there is no global state.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64

from yamame.errors import UserError
from yamame.metrics.registry import EVAL_HIGH, EVAL_LOW, EVAL_RETURN, RETURN
from yamame.runs.durable_files import replace_atomically
from yamame.tools.palette import COLORS, RANDOM_COLOR, color
from yamame.tools.study.curves import final_env_steps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RANDOM = "random actions"
WIDTH, HEIGHT = 7.2, 4.2
"""Size in inches of a figure with one pair of axes."""
EDGE: dict[str, Any] = {"markeredgecolor": "white", "markeredgewidth": 0.6}
"""Keeps markers apart from bars."""
_STYLES = ("-", "-.", ":", "--")
_LETTERS_PER_INCH = 12.5
"""Letters of a legend per inch."""


def line_style(number: int) -> str:
    """Return the line style of a line by its number; it changes when the colors repeat."""
    return _STYLES[number // len(COLORS) % len(_STYLES)]


def new_figure(
    *, rows: int = 1, columns: int = 1, width: float = WIDTH, height: float = HEIGHT, **subplots: Any
) -> "tuple[Figure, list[Axes]]":
    """Return a new figure of this size in inches and its axes, row by row; `subplots` are for `Figure.subplots`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="tight")
    FigureCanvasAgg(figure)
    panels = list(figure.subplots(rows, columns, squeeze=False, **subplots).flat)
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#dddddd", linewidth=0.8)
        axes.set_axisbelow(True)
    return figure, panels


def set_whole_ticks(axes: "Axes") -> None:
    """Put ticks at whole numbers of the horizontal axis, on which things are counted."""
    axes.locator_params(axis="x", integer=True)


def save(figure: "Figure", path: Path) -> None:
    """Write a figure in the format of the file name, whole or not at all, without time stamps. Raises `UserError`."""
    _align_titles(figure)
    kind = path.suffix.lower().removeprefix(".")
    options: dict[str, Any] = {
        "png": {"pil_kwargs": {"optimize": True}},
        "svg": {"metadata": {"Date": None}},
        "pdf": {"metadata": {"CreationDate": None}},
    }
    dpi = 150 if figure.get_figwidth() < 9 else 120
    try:
        with replace_atomically(path) as partial:
            figure.savefig(partial, dpi=dpi, format=kind, **options[kind])
    except OSError as problem:
        raise UserError(f"cannot write {path} ({problem.strerror}): choose another --output") from problem


def _align_titles(figure: "Figure") -> None:
    for axes in figure.axes:
        axes.title.set(fontsize=12, fontweight="bold", horizontalalignment="left", position=(0, 1))


@contextlib.contextmanager
def figure_axes(path: Path, *, rows: int = 1, height: float = HEIGHT) -> Iterator[Any]:
    """Yield the axes of a new figure (a list of them if there are several rows) and save it at the end."""
    figure, panels = new_figure(rows=rows, height=height)
    yield panels[0] if rows == 1 else panels
    _align_titles(figure)
    figure.savefig(path, dpi=150)


def plot_band(
    axes: "Axes",
    x: Float64[np.ndarray, "points"],
    mean: Float64[np.ndarray, "points"],
    ci95: Float64[np.ndarray, "2 points"] | None,
    *,
    seeds: Sequence[tuple[Float64[np.ndarray, "_"], Float64[np.ndarray, "_"]]] = (),
    label: str,
    number: int = 0,
    ended: bool = False,
) -> None:
    """Plot a line with a band, if there is one. Lines are drawn above bands, the first line on top.

    `seeds` are positions and values of the curves of single seeds, thin lines below that of their mean. `number` gives
    the color and style of the line; `ended` marks its last point with a dot.
    """
    if ci95 is not None:
        axes.fill_between(x, *ci95, color=color(number), alpha=0.15, linewidth=0)
    style: dict[str, Any] = {"color": color(number), "linestyle": line_style(number)}
    for places, values in seeds:
        axes.plot(places, values, linewidth=1, alpha=0.5, zorder=2 - number / 100, **style)
    axes.plot(x, mean, linewidth=2, label=label, zorder=3 - number / 100, **style)
    if ended or len(mean) == 1:
        axes.plot(x[-1:], mean[-1:], "o", markersize=6, color=color(number), zorder=3 - number / 100)


def plot_random_baseline(axes: "Axes", value: float | None, label: str = RANDOM) -> None:
    """Draw a dashed horizontal line at a reference value; none if it is unknown."""
    if value is not None:
        axes.axhline(value, color=RANDOM_COLOR, linestyle="--", linewidth=1.2, label=label)


def stamp(figure: "Figure", text: str) -> None:
    """Write what limits the results of a figure into its lower right corner; nothing for an empty text."""
    if text:
        figure.text(0.995, 0.005, text, color=RANDOM_COLOR, fontsize=8, ha="right", va="bottom")


def plain(text: str) -> str:
    """Escape dollar signs, which would start a formula, and bytes of file names that are no text."""
    return text.encode(errors="backslashreplace").decode().replace("$", r"\$")


def legend_below(axes: "Axes") -> None:
    """Add a legend below the axes of a figure of the usual width, in as many columns as fit."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        axes.legend(
            handles, labels, frameon=False, fontsize=9, ncols=legend_columns(labels),
            loc="upper center", bbox_to_anchor=(0.5, -0.14),
        )  # fmt: skip


def legend_columns(labels: Sequence[str]) -> int:
    """Return the number of columns of a legend as wide as a figure."""
    longest = max(map(len, labels), default=1) + 6  # the line before the text
    return max(1, min(len(labels), int(_LETTERS_PER_INCH * WIDTH / longest)))


def legend_height(labels: Sequence[str]) -> float:
    """Return the height in inches of a legend as wide as a figure."""
    return 0.25 * -(-len(labels) // legend_columns(labels))


def compact(value: float | int, _: object = None) -> str:
    """Format 1500000 as 1.5M. Can be used as a tick formatter."""
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}" if value % 1 else f"{value:.0f}"


TRAINING_COLOR, EVALUATION_COLOR, SUCCESS_COLOR = COLORS[:3]


def plot_learning_curve(
    path: Path, metrics: list[dict[str, Any]], evaluation: Mapping[str, Any], random_return: float | None
) -> None:
    """Plot the return of training and of all evaluations, the final one last, against environment steps."""
    with figure_axes(path) as axes:
        steps, returns = _series(metrics)
        if len(steps) > 10:
            axes.plot(steps, returns, color=TRAINING_COLOR, alpha=0.25, linewidth=1)
            returns = _smoothed(returns)
        if len(steps):
            axes.plot(steps, returns, color=TRAINING_COLOR, linewidth=2, label="training, with exploration")
        at, mean, low, high = _evaluations(metrics, evaluation)
        whiskers = np.maximum(0, [mean - low, high - mean])
        axes.errorbar(
            at, mean, whiskers, color=EVALUATION_COLOR, marker="o", markersize=5, capsize=3, label="evaluation, 95 % CI"
        )
        plot_random_baseline(axes, random_return)
        axes.set(xlabel="environment steps", ylabel="mean return of a trial", title="Learning curve")
        set_whole_ticks(axes)
        axes.xaxis.set_major_formatter(compact)
        axes.set_xlim(0, 1.03 * max(1, *at, *steps))
        axes.legend(frameon=False)


def plot_attempts(path: Path, evaluation: Mapping[str, Any], random_actions: Mapping[str, Any] | None) -> None:
    """Plot return and success of each of several attempts with 95 % bands."""
    returns, success = evaluation["return_per_attempt"], evaluation.get("success_per_attempt")
    with figure_axes(path, rows=1 if success is None else 2, height=4.2 if success is None else 6.6) as axes:
        of_return = axes if success is None else axes[0]
        _draw_band(of_return, returns, evaluation["return_per_attempt_ci95"], TRAINING_COLOR)
        per_attempt = float(np.mean(random_actions["return_per_attempt"])) if random_actions else None
        plot_random_baseline(of_return, per_attempt, "random actions, average attempt")
        of_return.set(ylabel="mean return of the attempt", title="Adaptation within a trial")
        of_return.legend(frameon=False)
        if success is not None:
            _draw_band(axes[1], success, evaluation["success_per_attempt_ci95"], SUCCESS_COLOR)
            axes[1].set(ylabel="success rate of the attempt", ylim=(-0.03, 1.03))


def _draw_band(axes: Any, means: Sequence[float], ci95: Sequence[Sequence[float]], color: str) -> None:
    attempts = np.arange(1, len(means) + 1)
    low, high = np.array(ci95, float).T
    axes.fill_between(attempts, low, high, color=color, alpha=0.2, linewidth=0)
    axes.plot(
        attempts, means, color=color, linewidth=2, marker="o", markersize=4 if len(means) <= 24 else 0,
        label="mean, 95 % band",
    )  # fmt: skip
    axes.set(xlabel="attempt of a trial")
    set_whole_ticks(axes)


def _series(metrics: list[dict[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """Return environment steps and training returns of the lines that have one."""
    pairs = [(line["env_steps"], line[RETURN]) for line in metrics if line.get(RETURN) is not None]
    steps, returns = np.array(pairs, float).reshape(-1, 2).T
    return steps, returns


def _evaluations(metrics: list[dict[str, Any]], final: Mapping[str, Any]) -> np.ndarray:
    """Return environment steps, mean, lower and upper end of every evaluation as rows, the final one last."""
    keys, end = ("env_steps", EVAL_RETURN, EVAL_LOW, EVAL_HIGH), final_env_steps(final, metrics)
    earlier = [[line.get(key) for key in keys] for line in metrics if line["env_steps"] < end]
    last = [end, final["return_mean"], *final["return_ci95"]]
    return np.array([*(point for point in earlier if None not in point), last], float).T


def _smoothed(values: np.ndarray) -> np.ndarray:
    """Return the centered moving average over a twentieth of the curve, over fewer points at its ends."""
    ones = np.ones(max(3, len(values) // 20))
    return np.convolve(values, ones, "same") / np.convolve(np.ones(len(values)), ones, "same")
