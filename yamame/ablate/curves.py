"""Learning curves: the evaluations of one run, and their mean over the seeds of an arm."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from yamame.ablate.statistic import mean_over_seeds
from yamame.run.config import RunConfig
from yamame.run.metrics import EVALUATION_RETURN, read_metrics

MOST_POINTS = 200
"""On a curve; more would not be seen."""


@dataclass(frozen=True, kw_only=True)
class RunCurve:
    """Mean return of every evaluation of a finished run, the final one included."""

    env_steps: Float64[np.ndarray, "points"]
    returns: Float64[np.ndarray, "points"]
    solved: bool
    """Whether the run ended before its length, because its task was solved: its last return then holds on."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """The like over several seeds, at common environment steps."""

    env_steps: Float64[np.ndarray, "points"]
    mean: Float64[np.ndarray, "points"]
    ci95: Float64[np.ndarray, "2 points"] | None
    """Both ends of 95 % intervals; None for a single seed."""
    solved: bool
    """Whether it ends because all seeds had solved the task."""


def run_curve(run: Path, result: Mapping[str, Any], config: RunConfig) -> RunCurve:
    """From a run's metrics, its `result.json` and its config.

    The final evaluation has more trials: it also stands for one that was made shortly before.
    """
    end, shortly = result["env_steps"], config.evaluation.every_env_steps / 2
    points = [
        (line["env_steps"], line[EVALUATION_RETURN])
        for line in read_metrics(run)
        if line.get(EVALUATION_RETURN) is not None and line["env_steps"] < end - shortly
    ]
    env_steps, returns = np.array([*points, (end, result["return_mean"])], np.float64).T
    return RunCurve(env_steps=env_steps, returns=returns, solved=end < config.env_steps)


def mean_curve(runs: Sequence[RunCurve]) -> Curve | None:
    """Mean over runs, interpolated, from where all of them have begun to where the first of them ends unsolved.

    None where there is no such place.
    """
    begin, end = max(run.env_steps[0] for run in runs), _end(runs)
    evaluated = np.unique(np.concatenate([run.env_steps for run in runs]))
    env_steps = evaluated[(evaluated >= begin) & (evaluated <= end)]
    if not len(env_steps):
        return None
    if len(env_steps) > MOST_POINTS:
        env_steps = np.linspace(begin, end, MOST_POINTS)
    returns = np.stack([np.interp(env_steps, run.env_steps, run.returns) for run in runs])
    mean, ci95 = mean_over_seeds(returns)
    return Curve(env_steps=env_steps, mean=mean, ci95=ci95, solved=all(run.solved for run in runs))


def _end(runs: Sequence[RunCurve]) -> float:
    unsolved = [run.env_steps[-1] for run in runs if not run.solved]
    return float(min(unsolved, default=max(run.env_steps[-1] for run in runs)))
