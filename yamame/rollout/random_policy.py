"""The policy to beat: actions drawn uniformly."""

import numpy as np
from gymnasium import spaces
from jaxtyping import Shaped

from yamame.records.step import PolicyInput


class RandomPolicy:
    """An `ActingPolicy` that looks at nothing."""

    version = 0

    def __init__(self, action_space: spaces.Discrete | spaces.Box, rng: np.random.Generator) -> None:
        self._action_space = action_space
        self._rng = rng

    def act(self, step: PolicyInput, *, deterministic: bool) -> Shaped[np.ndarray, "E ..."]:
        """Uniform over the discrete actions, or over [-1, 1] in every dimension."""
        num_envs = len(step.time)
        if isinstance(self._action_space, spaces.Discrete):
            return self._rng.integers(int(self._action_space.n), size=num_envs)
        return self._rng.uniform(-1.0, 1.0, (num_envs, *self._action_space.shape)).astype(np.float32)
