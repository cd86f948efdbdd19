"""`TrialStats`: summary of the last training trials."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from yamame.data.trajectory import Trajectory

MAX_ATTEMPT_METRICS = 10
"""Maximum number of attempts with a metric of their own; `TrialStats.return_per_attempt` has all of them."""


@dataclass(frozen=True, kw_only=True)
class TrialSummary:
    """Summary of a finished trial."""

    length: int
    """Number of transitions."""
    return_per_attempt: list[float]
    """Sum of rewards of each attempt; the end of the trial may truncate the last one."""
    success: bool | None
    """Whether any transition signaled success; None if the task has no success signal."""
    success_per_attempt: list[bool] | None = None
    """The same for each attempt."""

    @property
    def total_return(self) -> float:
        """Sum of all rewards."""
        return float(sum(self.return_per_attempt))


class TrialStats:
    """Running summary of the last `window` finished trials."""

    def __init__(self, window: int = 100) -> None:
        self.trials = 0
        """Number of trials in total."""
        self._recent: deque[TrialSummary] = deque(maxlen=window)

    def extend(self, trials: Iterable[TrialSummary]) -> None:
        """Add finished trials, oldest first."""
        for trial in trials:
            self.trials += 1
            self._recent.append(trial)

    @property
    def return_per_attempt(self) -> list[float]:
        """Mean return of attempts 1, 2, ..., each over the trials that started it."""
        return mean_per_attempt([trial.return_per_attempt for trial in self._recent])

    def metrics(self) -> dict[str, float]:
        """Return means over the window by `rollout/...` key; empty before the first trial.

        `rollout/success_rate` is absent if no trial has a success signal; `rollout/return_mean_attempt_<i>` (from 1) if
        trials have a single attempt.
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
        """Return the state as JSON values."""
        return {"trials": self.trials, "recent": [asdict(trial) for trial in self._recent]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.trials = state["trials"]
        self._recent.clear()
        self._recent.extend(TrialSummary(**trial) for trial in state["recent"])


def summarize_trial(trajectory: Trajectory) -> TrialSummary:
    """Summarize a finished trial."""
    successes = trajectory.success_per_attempt()
    return TrialSummary(
        length=len(trajectory),
        return_per_attempt=trajectory.return_per_attempt().tolist(),
        success=None if successes is None else bool(successes.any()),
        success_per_attempt=None if successes is None else successes.tolist(),
    )


def success_rate(trials: Iterable[TrialSummary]) -> float | None:
    """Fraction of successful trials; None if none has a success signal.

    Trials without a signal count as failed if another has one: environments may signal success alone.
    """
    successes = [trial.success for trial in trials]
    has_signal = any(success is not None for success in successes)
    return float(np.mean([bool(success) for success in successes])) if has_signal else None


def mean_per_attempt(returns: Sequence[Sequence[float]]) -> list[float]:
    """Mean of attempts 1, 2, ... of ragged `returns` (trial, attempt), each over the trials that started it."""
    num_attempts = max((len(attempts) for attempts in returns), default=0)
    return [float(np.mean([attempts[i] for attempts in returns if len(attempts) > i])) for i in range(num_attempts)]
