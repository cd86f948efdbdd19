"""A run's results in words and pictures, for people: `report.md` and two figures beside it."""

import contextlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from yamame.run.metrics import EVALUATION_HIGH, EVALUATION_LOW, EVALUATION_RETURN, RETURN, read_metrics
from yamame.run.run_directory import CONFIG, REPORT

CURVE, ATTEMPTS = "learning_curve.png", "return_per_attempt.png"

TRAINING_COLOR, EVALUATION_COLOR, RANDOM_COLOR = "#4477aa", "#cc3311", "#777777"


def write_report(
    directory: Path,
    *,
    evaluation: Mapping[str, Any],
    summary: Mapping[str, Any],
    random_actions: Mapping[str, Any] | None,
    expected: str,
) -> None:
    """Write `report.md`, `learning_curve.png` and `return_per_attempt.png` into a run's folder.

    `evaluation` and `summary` are what `yamame eval --json` and `yamame train --json` print; `random_actions` is the
    like of `evaluation` for random actions, where it is known; `expected` says in words what the recipe should reach.
    """
    random_return = random_actions["return_mean"] if random_actions else None
    _draw_learning_curve(directory / CURVE, read_metrics(directory), evaluation, random_return)
    _draw_attempts(directory / ATTEMPTS, evaluation, random_actions)
    text = "\n".join(_report_lines(directory, evaluation, summary, random_return, expected))
    (directory / REPORT).write_text(text + "\n", encoding="utf-8")


def format_attempts_table(return_per_attempt: Sequence[float], width: int = 40) -> str:
    """Mean return of every attempt as a bar chart in plain text; bars begin at 0, or at the least value below it."""
    low, high = min([0.0, *return_per_attempt]), max([0.0, *return_per_attempt])
    lines = ["attempt  mean return"]
    for attempt, value in enumerate(return_per_attempt, start=1):
        filled = round(width * (value - low) / (high - low)) if high > low else 0
        lines.append(f"{attempt:7d}  {value:11.3f}  {'█' * filled}".rstrip())
    return "\n".join(lines)


def _report_lines(
    directory: Path,
    evaluation: Mapping[str, Any],
    summary: Mapping[str, Any],
    random_return: float | None,
    expected: str,
) -> Iterator[str]:
    yield from (f"# {directory.resolve().name}", "", f"Expected: {expected}", "", "## Results", "")
    yield from _table(("", ""), _result_rows(evaluation, summary, random_return))
    yield from ("", f"![Return against environment steps]({CURVE})")
    yield from ("", f"![Return of each attempt]({ATTEMPTS})", "")
    settings = list(_highlights(directory / CONFIG))
    if settings:
        yield from ("## Settings", "", f"The main ones; all of them are in `{CONFIG}`.", "")
        yield from _table(("setting", "value"), settings)
        yield ""
    yield from ("## Go on", "", "```", f"yamame eval {directory} --trials 256", f"yamame resume {directory}", "```")


def _result_rows(
    evaluation: Mapping[str, Any], summary: Mapping[str, Any], random_return: float | None
) -> Iterator[tuple[str, str]]:
    low, high = evaluation["return_ci95"]
    mean = _number(evaluation["return_mean"])
    yield "mean return", f"**{mean}** (95 % confidence: {_number(low)} to {_number(high)})"
    if random_return is not None:
        yield "mean return of random actions", _number(random_return)
    attempts = evaluation["return_per_attempt"]
    if len(attempts) > 1:
        yield "first and last attempt", f"{_number(attempts[0])} and {_number(attempts[-1])}"
    if evaluation.get("success_rate") is not None:
        yield "success rate", f"{100 * evaluation['success_rate']:.1f} %"
    yield "evaluation trials", f"{evaluation['trials']:,}"
    yield "environment steps", f"{evaluation['env_steps']:,}"
    yield "updates", f"{evaluation['updates']:,}"
    if "seed" in evaluation:
        yield "seed", str(evaluation["seed"])
    for key, name, unit in (
        ("wall_seconds", "wall time", " s"),
        ("train_seconds", "of it training", " s"),
        ("env_steps_per_second", "environment steps per second", ""),
        ("updates_per_second", "updates per second", ""),
    ):
        if summary.get(key) is not None:
            yield name, f"{_number(summary[key])}{unit}"


def _table(header: tuple[str, str], rows: Iterator[tuple[str, str]] | list[tuple[str, str]]) -> Iterator[str]:
    yield f"| {header[0]} | {header[1]} |"
    yield "|---|---|"
    for name, value in rows:
        yield f"| {name} | {value} |"


def _highlights(config_path: Path) -> Iterator[tuple[str, str]]:
    """The settings of a run's first two levels: its own and those of its parts that hold a few plain values."""
    try:
        config = json.loads(config_path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    for name, value in config.items():
        section = value if isinstance(value, dict) else {"": value}
        for path, part in ((f"{name}.{key}".rstrip("."), part) for key, part in section.items()):
            if isinstance(part, str | int | float) and not path.endswith("type"):
                yield f"`{path}`", f"`{part}`"


def _number(value: float) -> str:
    """Three decimals for small numbers, thousands separated for large ones."""
    if value is None or not math.isfinite(value):
        return "not known"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _draw_learning_curve(
    path: Path, metrics: list[dict[str, Any]], evaluation: Mapping[str, Any], random_return: float | None
) -> None:
    with _axes(path) as axes:
        steps, returns = _series(metrics)
        if len(steps) > 10:
            axes.plot(steps, returns, color=TRAINING_COLOR, alpha=0.25, linewidth=1)
            returns = _smoothed(returns)
        if len(steps):
            axes.plot(steps, returns, color=TRAINING_COLOR, linewidth=2, label="training, exploring")
        at, mean, low, high = _evaluations(metrics, evaluation)
        whiskers = np.maximum(0, [mean - low, high - mean])
        axes.errorbar(
            at, mean, whiskers, color=EVALUATION_COLOR, marker="o", markersize=5, capsize=3, label="evaluation, 95 % CI"
        )
        _draw_random(axes, random_return, "random actions")
        axes.set(xlabel="environment steps", ylabel="mean return of a trial", title="Learning curve")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.xaxis.set_major_formatter(lambda value, _: _compact(value))
        axes.set_xlim(0, 1.03 * max(1, *at, *steps))
        axes.legend(frameon=False)


def _draw_attempts(path: Path, evaluation: Mapping[str, Any], random_actions: Mapping[str, Any] | None) -> None:
    returns = np.array(evaluation["return_per_attempt"], float)
    attempts = np.arange(1, len(returns) + 1)
    with _axes(path) as axes:
        if len(returns) == 1:
            _draw_one_attempt(axes, evaluation, random_actions["return_mean"] if random_actions else None)
            return
        if len(returns) <= 24:
            bars = axes.bar(attempts, returns, color=TRAINING_COLOR, width=0.7)
            axes.set_xticks(attempts)
            if len(returns) <= 12:
                axes.bar_label(bars, fmt="%.3g", padding=2, fontsize=9)
            if np.any(returns < 0):
                axes.axhline(0, color="black", linewidth=0.8)
        else:
            axes.plot(attempts, returns, color=TRAINING_COLOR, linewidth=2)
        share = float(np.mean(random_actions["return_per_attempt"])) if random_actions else None
        _draw_random(axes, share, "random actions, average attempt")
        axes.margins(y=0.12)
        axes.set(xlabel="attempt of a trial", ylabel="mean return of the attempt", title="Adaptation within a trial")
        axes.grid(axis="x", visible=False)
        if share is not None:
            axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1))


def _draw_one_attempt(axes: Any, evaluation: Mapping[str, Any], random_return: float | None) -> None:
    """A trial of one attempt shows no adaptation between attempts: the trained agent beside random actions."""
    mean, (low, high) = evaluation["return_mean"], evaluation["return_ci95"]
    bars = [("random actions", random_return, RANDOM_COLOR)] if random_return is not None else []
    for name, value, color in (*bars, ("trained, 95 % CI", mean, TRAINING_COLOR)):
        axes.bar_label(
            axes.bar([name], [value], color=color, width=0.5), fmt="%.3g", label_type="center", color="white"
        )
    whiskers = np.maximum(0, [[mean - low], [high - mean]])
    axes.errorbar(["trained, 95 % CI"], [mean], whiskers, color="black", capsize=5, linestyle="none")
    axes.axhline(0, color="black", linewidth=0.8)
    axes.margins(x=0.4, y=0.12)
    axes.set(ylabel="mean return of a trial", title="Return (a trial of this task is one attempt)")
    axes.grid(axis="x", visible=False)


@contextlib.contextmanager
def _axes(path: Path) -> Iterator[Any]:
    """Axes in the style of all our figures, saved on leaving. No pyplot: nothing global to set or to close."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.2), layout="tight")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    yield axes
    axes.title.set(fontsize=12, fontweight="bold", horizontalalignment="left", position=(0, 1))
    figure.savefig(path, dpi=150)


def _draw_random(axes: Any, value: float | None, label: str) -> None:
    if value is not None:
        axes.axhline(value, color=RANDOM_COLOR, linestyle="--", linewidth=1.2, label=label)


def _series(metrics: list[dict[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """Environment steps and training return of the lines that have one."""
    pairs = [(line["env_steps"], line[RETURN]) for line in metrics if line.get(RETURN) is not None]
    steps, returns = np.array(pairs, float).reshape(-1, 2).T
    return steps, returns


def _evaluations(metrics: list[dict[str, Any]], final: Mapping[str, Any]) -> np.ndarray:
    """Environment steps, mean, lower and upper end of every evaluation, as rows; the final one last."""
    keys = ("env_steps", EVALUATION_RETURN, EVALUATION_LOW, EVALUATION_HIGH)
    earlier = [[line.get(key) for key in keys] for line in metrics if line["env_steps"] < final["env_steps"]]
    last = [final["env_steps"], final["return_mean"], *final["return_ci95"]]
    return np.array([*(point for point in earlier if None not in point), last], float).T


def _smoothed(values: np.ndarray) -> np.ndarray:
    """Centred moving average over a twentieth of the curve; its ends average what there is."""
    ones = np.ones(max(3, len(values) // 20))
    return np.convolve(values, ones, "same") / np.convolve(np.ones(len(values)), ones, "same")


def _compact(value: float) -> str:
    """1500000 -> 1.5M."""
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.0f}"
