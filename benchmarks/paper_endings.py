"""When a run of `paper_runs.py` ends before its last step: a flat curve, or its hours of a core are used up."""

import statistics
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from typing_extensions import override

from yamame.metrics.registry import EVAL_RETURN, read_metrics
from yamame.training.callbacks import Callback, RunProgress

CORE_SECONDS = "time/core_seconds"
"""Metric of `EndEarly`: seconds of a core that the run took so far, in all of its processes."""
MIN_EVALUATIONS, SMOOTHED = 12, 3
MIN_FRACTION, FLAT_FRACTION = 1 / 2, 1 / 3
"""Fractions of the steps of a run: before the first no curve is flat, and over the last it must not have risen."""

Curve = Sequence[tuple[int, float]]
"""Environment steps and mean returns of evaluations."""


class EndEarly(Callback):
    """Ends a run whose curve is flat, or that has taken its hours of a core.

    Decisions depend on `metrics.jsonl` alone, which a resumed run has in the state of its checkpoint.
    """

    def __init__(self, *, hours: float, annealed: int) -> None:
        self.hours, self.annealed = hours, annealed
        self._seconds_before = self._started = 0.0

    @override
    def on_start(self, run: RunProgress) -> None:
        self._seconds_before, self._started = core_seconds(run.directory), time.process_time()

    @override
    def on_iteration(self, run: RunProgress) -> None:
        seconds = self._seconds_before + time.process_time() - self._started
        run.log({CORE_SECONDS: seconds})
        if seconds > 3600 * self.hours:
            run.stop(f"its {self.hours:g} hours of a core are used up")

    @override
    def on_evaluation(self, run: RunProgress) -> None:
        assert run.evaluation is not None
        curve = [*evaluations(run.directory), (run.env_steps, run.evaluation.return_mean)]
        if is_flat(curve, env_steps=run.config.env_steps, annealed=self.annealed):
            run.stop("its curve has been flat for a third of its steps")


def evaluations(directory: Path) -> list[tuple[int, float]]:
    """Return the curve of a run so far."""
    lines = read_metrics(directory)
    return [(line["env_steps"], line[EVAL_RETURN]) for line in lines if line.get(EVAL_RETURN) is not None]


def core_seconds(directory: Path) -> float:
    """Return the seconds of a core that a run took so far."""
    return next((float(line[CORE_SECONDS]) for line in reversed(read_metrics(directory)) if CORE_SECONDS in line), 0.0)


def is_flat(curve: Curve, *, env_steps: int, annealed: int) -> bool:
    """Return whether the best of the last third of a run is not above the best before it by more than the noise.

    Both are means of three evaluations, and the noise is the standard error of such a mean, by the differences of
    neighboring evaluations. False before half of the run, with fewer than 12 evaluations, and while exploration noise
    is still annealed if no mean is above the first one.

    Args:
        curve: Evaluations so far.
        env_steps: Steps of the whole run.
        annealed: Steps after which exploration noise no longer changes.
    """
    if len(curve) < MIN_EVALUATIONS or curve[-1][0] < MIN_FRACTION * env_steps:
        return False
    returns = [value for _, value in curve]
    means = [statistics.fmean(returns[end - SMOOTHED : end]) for end in range(SMOOTHED, len(returns) + 1)]
    changes = [after - before for before, after in pairwise(returns)]
    noise = statistics.pstdev(changes) / (2 * SMOOTHED) ** 0.5
    now, split = curve[-1][0], curve[-1][0] - FLAT_FRACTION * env_steps
    if now < annealed and max(means) <= means[0] + noise:
        return False
    steps = [at for at, _ in curve[SMOOTHED - 1 :]]
    earlier = [mean for at, mean in zip(steps, means, strict=True) if at <= split]
    latest = [mean for at, mean in zip(steps, means, strict=True) if at > split]
    return bool(earlier and latest) and max(latest) <= max(earlier) + noise
