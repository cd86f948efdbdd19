"""Generalized advantage estimation over one trial, and running moments."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Bool, Float64, Shaped


def generalized_advantages(
    *,
    reward_T: Shaped[np.ndarray, "T"],
    terminal_T: Bool[np.ndarray, "T"],
    value: Shaped[np.ndarray, "timesteps"],
    gamma: float,
    trace_decay: float,
) -> Float64[np.ndarray, "T"]:
    """Return the advantages A_t = delta_t + gamma lambda (1 - terminal_t) A_(t+1), in float64.

    delta_t = r_t + gamma (1 - terminal_t) V_(t+1) - V_t (Schulman et al. 2016, equations 12 and 16). A trial whose last
    transition is not terminal is bootstrapped from its last observation.

    Args:
        reward_T: Rewards.
        terminal_T: Transitions after which no reward follows.
        value: Values of the T + 1 observations.
        gamma: Discount factor.
        trace_decay: lambda. 1: returns minus values; 0: one-step errors.
    """
    value = value.astype(np.float64)
    follows_T = 1.0 - terminal_T
    delta_T = reward_T.astype(np.float64) + gamma * follows_T * value[1:] - value[:-1]
    advantage_T, following = np.empty_like(delta_T), 0.0
    for time in range(len(delta_T) - 1, -1, -1):
        following = delta_T[time] + gamma * trace_decay * follows_T[time] * following
        advantage_T[time] = following
    return advantage_T


class RunningMoments:
    """Mean and standard deviation of numbers that come in batches: of their mixture, with debiased weights that fall
    with age.

    Args:
        rate: Weight of the newest batch.
    """

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._weight = self._mean = self._square = 0.0

    @property
    def mean(self) -> float:
        """Mean; 0 before the first batch."""
        return self._mean / self._weight if self._weight else 0.0

    @property
    def std(self) -> float:
        """Standard deviation; 0 before the first batch."""
        if not self._weight:
            return 0.0
        mean = self._mean / self._weight
        return float(np.sqrt(max(self._square / self._weight - mean * mean, 0.0)))

    def update(self, batch: Shaped[np.ndarray, "n"]) -> None:
        """Add a batch, which must not be empty."""
        self._weight += self.rate * (1.0 - self._weight)
        self._mean += self.rate * (float(batch.mean()) - self._mean)
        self._square += self.rate * (float(np.square(batch).mean()) - self._square)

    def state_dict(self) -> dict[str, float]:
        """Return the averages."""
        return {"weight": self._weight, "mean": self._mean, "square": self._square}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Restore the result of `state_dict`."""
        self._weight, self._mean, self._square = state["weight"], state["mean"], state["square"]
