"""The policy to beat: actions drawn uniformly."""

import numpy as np
from jaxtyping import Shaped

from yamame.records.action_spaces import MASK_LEAF, PolicyActionSpace, action_shape, choices
from yamame.records.step import PolicyInput
from yamame.rollout.uniform import uniform_choices


class RandomPolicy:
    """An `ActingPolicy` that looks at nothing but what is allowed."""

    version = 0

    def __init__(self, action_space: PolicyActionSpace, rng: np.random.Generator) -> None:
        self._shape = action_shape(action_space)
        self._sizes = choices(action_space)
        self._rng = rng

    def act(self, step: PolicyInput, *, deterministic: bool) -> Shaped[np.ndarray, "E ..."]:
        """Uniform over the allowed choices of every component, or over [-1, 1] in every dimension."""
        num_envs = len(step.time)
        if not self._sizes:
            return self._rng.uniform(-1.0, 1.0, (num_envs, *self._shape)).astype(np.float32)
        chance_EC = self._rng.random((num_envs, len(self._sizes)))
        mask_EA = step.observation.get(MASK_LEAF)
        return uniform_choices(chance_EC, self._sizes, mask_EA).reshape(num_envs, *self._shape)
