"""The policy to beat: actions drawn uniformly."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Shaped

from yamame.data.actions import ACTION_MASK_KEY, PolicyActionSpace, action_shape, num_choices, sample_uniform_actions
from yamame.data.step import PolicyInput


class RandomPolicy:
    """An `ActingPolicy` that looks at nothing but what is allowed."""

    version = 0
    extras: Mapping[str, Any] = {}

    def __init__(self, action_space: PolicyActionSpace, rng: np.random.Generator) -> None:
        self._shape = action_shape(action_space)
        self._sizes = num_choices(action_space)
        self._rng = rng

    def act(self, step: PolicyInput, *, deterministic: bool) -> Shaped[np.ndarray, "E ..."]:
        """Uniform over the allowed choices of every component, or over [-1, 1] in every dimension."""
        num_envs = len(step.time)
        if not self._sizes:
            return self._rng.uniform(-1.0, 1.0, (num_envs, *self._shape)).astype(np.float32)
        chance_EC = self._rng.random((num_envs, len(self._sizes)))
        mask_EA = step.observation.get(ACTION_MASK_KEY)
        return sample_uniform_actions(chance_EC, self._sizes, mask_EA).reshape(num_envs, *self._shape)
