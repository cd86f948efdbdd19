"""Interface of policies, and the random baseline."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Shaped
from typing_extensions import override

from yamame.data.actions import ACTION_MASK_KEY, PolicyActionSpace, action_shape, num_choices, sample_uniform_actions
from yamame.data.step import PolicyInput


@runtime_checkable
class Policy(Protocol):
    """Chooses actions for E environments, with a memory of each one's trial."""

    version: int
    """Number of gradient updates of the acting weights."""

    @property
    def extras(self) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        """Quantities of the last act that learning needs (log-probability, value); stored in `Trajectory.extras`."""
        return {}

    def act(self, step: PolicyInput, *, deterministic: bool) -> Shaped[np.ndarray, "E ..."]:
        """Return actions: integers `[E]` or `[E, C]`, or float32 `[E, A]` in [-1, 1].

        Actions that the observation leaf `ACTION_MASK_KEY` forbids are never returned.
        """
        ...


class RandomPolicy(Policy):
    """Uniform over the allowed choices of every component, or over [-1, 1] in every dimension."""

    version = 0

    def __init__(self, action_space: PolicyActionSpace, rng: np.random.Generator) -> None:
        self._shape = action_shape(action_space)
        self._sizes = num_choices(action_space)
        self._rng = rng

    @override
    def act(self, step: PolicyInput, *, deterministic: bool) -> Shaped[np.ndarray, "E ..."]:
        num_envs = len(step.time)
        if not self._sizes:
            return self._rng.uniform(-1.0, 1.0, (num_envs, *self._shape)).astype(np.float32)
        uniform_EC = self._rng.random((num_envs, len(self._sizes)))
        mask_EA = step.observation.get(ACTION_MASK_KEY)
        return sample_uniform_actions(uniform_EC, self._sizes, mask_EA).reshape(num_envs, *self._shape)
