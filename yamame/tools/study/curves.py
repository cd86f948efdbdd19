"""Learning curves of runs: one metric of a run, and its mean over seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from yamame.metrics.confidence import student_ci95
from yamame.metrics.registry import EVAL_RETURN, EVAL_SUCCESS, read_metrics
from yamame.run_config import RunConfig
from yamame.training.state import is_solved

MIN_BAND_SEEDS = 4
"""Fewer seeds are drawn one by one: their interval would be wider than all of them (at two seeds by a factor of 13)."""
MAX_POINTS = 200
"""Points of a mean curve; a figure shows no more."""
_RESULT_KEYS = {EVAL_RETURN: "return_mean", EVAL_SUCCESS: "success_rate"}
"""Metric -> its key in `result.json`, the final evaluation."""


@dataclass(frozen=True, kw_only=True)
class RunCurve:
    """One metric of a run; evaluation metrics include the final evaluation."""

    x: Float64[np.ndarray, "points"]
    """Environment steps, updates or wall seconds."""
    values: Float64[np.ndarray, "points"]
    solved: bool
    """Whether the run stopped early because its task was solved: its last value then holds from there on."""


@dataclass(frozen=True, kw_only=True)
class MeanCurve:
    """Mean over seeds at common points."""

    x: Float64[np.ndarray, "points"]
    mean: Float64[np.ndarray, "points"]
    ci95: Float64[np.ndarray, "2 points"] | None
    """Both ends of 95 % intervals; None for fewer than `MIN_BAND_SEEDS` seeds."""
    solved: bool
    """Whether the curve ends because all seeds had solved the task."""
    seeds: Sequence[tuple[Float64[np.ndarray, "_"], Float64[np.ndarray, "_"]]] = ()
    """Positions and values of each of several seeds where there is no interval."""


def run_curve(
    run: Path,
    result: Mapping[str, Any] | None,
    config: RunConfig,
    *,
    metric: str = EVAL_RETURN,
    x_axis: str = "env_steps",
) -> RunCurve:
    """Return a metric of a run from `metrics.jsonl` and, if the run is finished, `result.json`.

    Args:
        run: Run directory.
        result: Content of `result.json`; None for an unfinished run.
        config: Config of the run.
        metric: Key of `metrics.jsonl`. A run that never logged it has a curve without points.
        x_axis: `env_steps`, `updates` or `wall_seconds`.

    The final evaluation has more trials: it replaces one made less than half an interval before.
    """
    metrics = read_metrics(run)
    lines = [line for line in metrics if line.get(metric) is not None]
    final = None if result is None else result.get(_RESULT_KEYS.get(metric, ""))
    if result is not None and final is not None and x_axis in result:  # policy folders may lack wall seconds
        end = {**result, "env_steps": final_env_steps(result, metrics)}
        last_kept = end["env_steps"] - config.eval.interval_env_steps / 2
        lines = [*(line for line in lines if line["env_steps"] < last_kept), {x_axis: end[x_axis], metric: final}]
    points = [(line[x_axis], line[metric]) for line in lines]
    x, values = np.array(points, np.float64).reshape(-1, 2).T
    solved = result is not None and is_solved(result.get("end_reason"))
    return RunCurve(x=x, values=values, solved=solved)


def final_env_steps(result: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]) -> float:
    """Return the environment steps at the end of a run, on the axis of its metrics.

    A purely offline run logs the steps that it counts, but its result has 0, since it makes none: then the last logged
    ones.
    """
    return float(result["env_steps"] or (metrics[-1]["env_steps"] if metrics else 0))


def mean_curve(runs: Sequence[RunCurve]) -> MeanCurve | None:
    """Return the mean over runs, interpolated, where all of them have values; None where no such point exists.

    The curve ends where the first run ends unsolved.
    """
    if not all(len(run.x) for run in runs):
        return None
    unsolved_ends = [run.x[-1] for run in runs if not run.solved]
    start = max(run.x[0] for run in runs)
    end = float(min(unsolved_ends, default=max(run.x[-1] for run in runs)))
    known = np.unique(np.concatenate([run.x for run in runs]))
    x = known[(known >= start) & (known <= end)]
    if not len(x):
        return None
    if len(x) > MAX_POINTS:
        x = np.linspace(start, end, MAX_POINTS)
    values = np.stack([np.interp(x, run.x, run.values) for run in runs])
    has_band = len(runs) >= MIN_BAND_SEEDS
    return MeanCurve(
        x=x,
        mean=values.mean(axis=0),
        ci95=np.stack(student_ci95(values)) if has_band else None,
        solved=all(run.solved for run in runs),
        seeds=() if has_band or len(runs) == 1 else [(run.x, run.values) for run in runs],
    )
