"""What one environment offers that is written in JAX; this file does not import it."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from gymnasium import spaces

Array = Any
"""A `jax.Array`, traced or not."""


class JaxStep(NamedTuple):
    """What one environment answers to an action: `observation` is what it led to, never a reset's."""

    state: Any
    observation: Any
    reward: Array
    terminated: Array
    truncated: Array
    success: Array | None


class JaxEnv(ABC):
    """One environment as pure functions that JAX can compile, for one row.

    Hashable, and equal to others that do the same: they share what was compiled. Tasks, states and observations are any
    nesting of arrays.
    """

    @property
    @abstractmethod
    def observation_space(self) -> spaces.Space[Any]:
        """The space of one observation."""

    @property
    @abstractmethod
    def action_space(self) -> spaces.Space[Any]:
        """The space of one action."""

    @abstractmethod
    def sample_task(self, key: Array) -> Any:
        """A task drawn at random."""

    @abstractmethod
    def reset(self, key: Array, task: Any) -> tuple[Any, Any]:
        """State and observation with which an episode on a task begins."""

    @abstractmethod
    def step(self, key: Array, state: Any, action: Array, task: Any) -> JaxStep:
        """One transition; nothing resets itself."""
