"""Learning curves: a metric of one run, by default the return of its evaluations, and its mean over several seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from yamame.config import RunConfig
from yamame.metrics import EVAL_RETURN, EVAL_SUCCESS, read_metrics
from yamame.tools.ablate.statistic import mean_over_seeds

MAX_POINTS = 200
"""On a curve; more would not be seen."""
_OF_RESULT = {EVAL_RETURN: "return_mean", EVAL_SUCCESS: "success_rate"}
"""Metric -> what `result.json` calls it in the final evaluation."""


@dataclass(frozen=True, kw_only=True)
class RunCurve:
    """Values of one metric of a run; for the return of evaluations the final one is included."""

    x: Float64[np.ndarray, "points"]
    """Environment steps, or what else the curve goes along."""
    values: Float64[np.ndarray, "points"]
    solved: bool
    """Whether the run ended before its length, because its task was solved: its last value then holds on."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """The like over several seeds, at common places."""

    x: Float64[np.ndarray, "points"]
    mean: Float64[np.ndarray, "points"]
    ci95: Float64[np.ndarray, "2 points"] | None
    """Both ends of 95 % intervals; None for a single seed."""
    solved: bool
    """Whether it ends because all seeds had solved the task."""


def run_curve(
    run: Path,
    result: Mapping[str, Any] | None,
    config: RunConfig,
    *,
    metric: str = EVAL_RETURN,
    along: str = "env_steps",
) -> RunCurve:
    """From a run's metrics, its `result.json` if it is finished, and its config; without points where none is known.

    `along` is `env_steps`, `updates` or `wall_seconds`. The final evaluation has more trials: it also stands for one
    that was made shortly before.
    """
    lines = [line for line in read_metrics(run) if line.get(metric) is not None]
    points = [(line[along], line[metric]) for line in lines]
    final = None if result is None else result.get(_OF_RESULT.get(metric, ""))
    if result is not None and final is not None:
        shortly = config.eval.interval_env_steps / 2
        last_kept = result["env_steps"] - shortly
        points = [point for line, point in zip(lines, points, strict=True) if line["env_steps"] < last_kept]
        points.append((result[along], final))
    x, values = np.array(points, np.float64).reshape(-1, 2).T
    return RunCurve(x=x, values=values, solved=result is not None and result["env_steps"] < config.env_steps)


def mean_curve(runs: Sequence[RunCurve]) -> Curve | None:
    """Mean over runs, interpolated, from where all of them have begun to where the first of them ends unsolved.

    None where there is no such place.
    """
    if not all(len(run.x) for run in runs):
        return None
    begin, end = max(run.x[0] for run in runs), _end(runs)
    known = np.unique(np.concatenate([run.x for run in runs]))
    x = known[(known >= begin) & (known <= end)]
    if not len(x):
        return None
    if len(x) > MAX_POINTS:
        x = np.linspace(begin, end, MAX_POINTS)
    mean, ci95 = mean_over_seeds(np.stack([np.interp(x, run.x, run.values) for run in runs]))
    return Curve(x=x, mean=mean, ci95=ci95, solved=all(run.solved for run in runs))


def _end(runs: Sequence[RunCurve]) -> float:
    unsolved = [run.x[-1] for run in runs if not run.solved]
    return float(min(unsolved, default=max(run.x[-1] for run in runs)))
