"""`Statistics`: how the last training trials went."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from yamame.data.trajectory import Trajectory

MAX_ATTEMPT_METRICS = 10
"""Trials with more attempts report the first so many; `Statistics.return_per_attempt` has them all."""


@dataclass(frozen=True, kw_only=True)
class TrialSummary:
    """What is remembered of one finished trial."""

    length: int
    """Number of transitions."""
    return_per_attempt: list[float]
    """Sum of rewards of each attempt, the last one possibly cut short by the end of the trial."""
    success: bool | None
    """Whether any transition announced success; None where the task announces none."""
    success_per_attempt: list[bool] | None = None
    """The same of each attempt."""

    @property
    def total_return(self) -> float:
        """Sum of all rewards."""
        return float(sum(self.return_per_attempt))


class TrialStats:
    """Running summary of the last `window` finished trials."""

    def __init__(self, window: int = 100) -> None:
        self.trials = 0
        """Trials ever seen."""
        self._recent: deque[TrialSummary] = deque(maxlen=window)

    def add(self, trajectory: Trajectory) -> None:
        """Count a finished trial."""
        self.extend([summarize_trial(trajectory)])

    def extend(self, trials: Iterable[TrialSummary]) -> None:
        """Count finished trials, oldest first."""
        for trial in trials:
            self.trials += 1
            self._recent.append(trial)

    @property
    def return_per_attempt(self) -> list[float]:
        """Mean return of attempt 1, 2, ... each over the trials that began it."""
        return mean_per_attempt([trial.return_per_attempt for trial in self._recent])

    def metrics(self) -> dict[str, float]:
        """Means over the window, by `rollout/...` key; empty before the first trial.

        A trial succeeds if any of its transitions announced success; `rollout/success_rate` is missing where none of
        the trials could. `rollout/return_mean_attempt_<i>` (from 1) appears where trials have several attempts.
        """
        if not self._recent:
            return {}
        metrics = {
            "rollout/num_trials": float(self.trials),
            "rollout/return_mean": float(np.mean([trial.total_return for trial in self._recent])),
            "rollout/trial_length_mean": float(np.mean([trial.length for trial in self._recent])),
        }
        rate = success_rate(self._recent)
        if rate is not None:
            metrics["rollout/success_rate"] = rate
        attempts = self.return_per_attempt
        if len(attempts) > 1:
            shown = enumerate(attempts[:MAX_ATTEMPT_METRICS], start=1)
            metrics |= {f"rollout/return_mean_attempt_{attempt}": mean for attempt, mean in shown}
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """Everything that `load_state_dict` needs, as JSON values."""
        return {"trials": self.trials, "recent": [asdict(trial) for trial in self._recent]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.trials = state["trials"]
        self._recent.clear()
        self._recent.extend(TrialSummary(**trial) for trial in state["recent"])


def summarize_trial(trajectory: Trajectory) -> TrialSummary:
    """The summary of one finished trial."""
    successes = trajectory.success_per_attempt()
    return TrialSummary(
        length=len(trajectory),
        return_per_attempt=trajectory.return_per_attempt().tolist(),
        success=None if successes is None else bool(successes.any()),
        success_per_attempt=None if successes is None else successes.tolist(),
    )


def success_rate(trials: Iterable[TrialSummary]) -> float | None:
    """Part of the trials that succeeded, among those whose task announces success; None where none does."""
    successes = [trial.success for trial in trials if trial.success is not None]
    return float(np.mean(successes)) if successes else None


def mean_per_attempt(returns: Sequence[Sequence[float]]) -> list[float]:
    """Mean of attempt 1, 2, ... of ragged `returns` (trial, attempt), each over the trials that began it."""
    longest = max((len(attempts) for attempts in returns), default=0)
    return [float(np.mean([attempts[i] for attempts in returns if len(attempts) > i])) for i in range(longest)]
