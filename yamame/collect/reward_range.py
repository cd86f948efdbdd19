"""Whether the rewards of an environment differ by enough for float32, in which the agent has them."""

import numpy as np
from jaxtyping import Float

MIN_LARGEST = 1e-15
"""If all rewards are smaller, the squares of returns are 0 in float32."""
MAX_ROUNDING = 0.01
"""Largest change of a reward by rounding to float32, as a fraction of the range of rewards, that is not reported."""
_NOISE = 1e-12
"""Relative differences of rewards up to this one are rounding errors of the environment."""


class RewardRange:
    """Range of the rewards of several trials, and what float32 loses of it."""

    def __init__(self) -> None:
        self._low, self._high, self._rounding = np.inf, -np.inf, 0.0

    def record(self, reward_T: Float[np.ndarray, "T"]) -> None:
        """Take the rewards of a trial into account, as the environment returned them."""
        self._low = min(self._low, float(reward_T.min()))
        self._high = max(self._high, float(reward_T.max()))
        self._rounding = max(self._rounding, float(np.abs(reward_T.astype(np.float32) - reward_T).max()))

    def finding(self) -> str | None:
        """Return what is wrong with the size of the rewards, in one sentence; None: nothing."""
        largest, difference = max(abs(self._low), abs(self._high)), self._high - self._low
        if 0 < largest < MIN_LARGEST:
            return f"no reward is larger than {largest:.3g} in size, whose square is 0 in float32: scale rewards"
        if self._rounding > MAX_ROUNDING * difference > MAX_ROUNDING * _NOISE * largest:
            return (
                f"rewards from {self._low:.12g} to {self._high:.12g} differ by {difference:.3g}, and float32 rounds "
                f"them by up to {self._rounding:.2g}: subtract a constant, so that they are near 0"
            )
        return None
