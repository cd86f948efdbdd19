"""`ReturnDeviation`: the size of a reward, by which bonuses are normalized."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float64, Shaped


class ReturnDeviation:
    """Standard deviation, over all steps of all trials so far, of the discounted sum of the rewards of a trial up to a
    step: x_t = r_t + gamma x_(t-1).

    All steps count alike, however old they are, so that a bonus that falls becomes small beside others.

    Args:
        gamma: Discount factor.
    """

    def __init__(self, gamma: float) -> None:
        self.gamma = gamma
        self._count = self._mean = self._square = 0.0

    @property
    def std(self) -> float:
        """Standard deviation; 0 before the first trial."""
        return float(np.sqrt(self._square / self._count)) if self._count else 0.0

    def update(self, trials: Sequence[Shaped[np.ndarray, "_"]]) -> None:
        """Add trials of finite rewards."""
        sums = np.concatenate([self._sums(trial) for trial in trials])
        total, step = self._count + len(sums), float(sums.mean()) - self._mean
        # Chan et al. 1979, equation 1.5: sums of squared differences of two parts and their means
        self._square += float(np.square(sums - sums.mean()).sum()) + step * step * self._count * len(sums) / total
        self._mean += step * len(sums) / total
        self._count = total

    def _sums(self, reward_T: Shaped[np.ndarray, "T"]) -> Float64[np.ndarray, "T"]:
        sum_T, before = np.empty(len(reward_T)), 0.0
        for time, reward in enumerate(reward_T.tolist()):
            before = sum_T[time] = reward + self.gamma * before
        return sum_T

    def state_dict(self) -> dict[str, float]:
        """Return count, mean and sum of the squared differences from it."""
        return {"count": self._count, "mean": self._mean, "square": self._square}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Restore the result of `state_dict`."""
        self._count, self._mean, self._square = state["count"], state["mean"], state["square"]
