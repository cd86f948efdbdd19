"""A run in pictures: its learning curve, and what attempt after attempt earns."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from yamame.run.drawing import COLORS, RANDOM, RANDOM_COLOR, figure_axes, compact, plot_random_baseline
from yamame.run.metrics import EVAL_HIGH, EVAL_LOW, EVAL_RETURN, RETURN

TRAINING_COLOR, EVALUATION_COLOR, SUCCESS_COLOR = COLORS[:3]


def plot_learning_curve(
    path: Path, metrics: list[dict[str, Any]], evaluation: Mapping[str, Any], random_return: float | None
) -> None:
    """The return of training and of all evaluations against environment steps; `evaluation` is the final one."""
    with figure_axes(path) as axes:
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
        plot_random_baseline(axes, random_return)
        axes.set(xlabel="environment steps", ylabel="mean return of a trial", title="Learning curve")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.xaxis.set_major_formatter(compact)
        axes.set_xlim(0, 1.03 * max(1, *at, *steps))
        axes.legend(frameon=False)


def plot_attempts(path: Path, evaluation: Mapping[str, Any], random_actions: Mapping[str, Any] | None) -> None:
    """What each attempt of a trial earns and how often it succeeds, with 95 % bands; both are keys of `evaluation`."""
    returns, success = evaluation["return_per_attempt"], evaluation.get("success_per_attempt")
    if len(returns) == 1:
        with figure_axes(path) as axes:
            _draw_one_attempt(axes, evaluation, random_actions["return_mean"] if random_actions else None)
        return
    with figure_axes(path, rows=1 if success is None else 2, height=4.2 if success is None else 6.6) as axes:
        of_return = axes if success is None else axes[0]
        _draw_band(of_return, returns, evaluation["return_per_attempt_ci95"], TRAINING_COLOR)
        share = float(np.mean(random_actions["return_per_attempt"])) if random_actions else None
        plot_random_baseline(of_return, share, "random actions, average attempt")
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
    axes.xaxis.get_major_locator().set_params(integer=True)


def _draw_one_attempt(axes: Any, evaluation: Mapping[str, Any], random_return: float | None) -> None:
    """A trial of one attempt shows no adaptation between attempts: the trained agent beside random actions."""
    mean, (low, high) = evaluation["return_mean"], evaluation["return_ci95"]
    bars = [(RANDOM, random_return, RANDOM_COLOR)] if random_return is not None else []
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


def _series(metrics: list[dict[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """Environment steps and training return of the lines that have one."""
    pairs = [(line["env_steps"], line[RETURN]) for line in metrics if line.get(RETURN) is not None]
    steps, returns = np.array(pairs, float).reshape(-1, 2).T
    return steps, returns


def _evaluations(metrics: list[dict[str, Any]], final: Mapping[str, Any]) -> np.ndarray:
    """Environment steps, mean, lower and upper end of every evaluation, as rows; the final one last."""
    keys = ("env_steps", EVAL_RETURN, EVAL_LOW, EVAL_HIGH)
    earlier = [[line.get(key) for key in keys] for line in metrics if line["env_steps"] < final["env_steps"]]
    last = [final["env_steps"], final["return_mean"], *final["return_ci95"]]
    return np.array([*(point for point in earlier if None not in point), last], float).T


def _smoothed(values: np.ndarray) -> np.ndarray:
    """Centred moving average over a twentieth of the curve; its ends average what there is."""
    ones = np.ones(max(3, len(values) // 20))
    return np.convolve(values, ones, "same") / np.convolve(np.ones(len(values)), ones, "same")
