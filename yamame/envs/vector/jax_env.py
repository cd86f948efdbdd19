"""Interface of environments written in JAX. Does not import JAX, so that their configs work without it."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from gymnasium import spaces

Array = Any
"""A `jax.Array`, traced or not."""


class JaxStep(NamedTuple):
    """Result of stepping one environment. `observation` is the one that the action led to, never that of a reset."""

    state: Any
    observation: Any
    reward: Array
    terminated: Array
    truncated: Array
    success: Array | None


class JaxEnv(ABC):
    """One environment as pure functions that JAX can compile.

    Hashable, and equal to others that behave the same: equal environments share compiled functions. Tasks, states and
    observations are any nesting of arrays.
    """

    @property
    @abstractmethod
    def observation_space(self) -> spaces.Space[Any]:
        """Space of one observation."""

    @property
    @abstractmethod
    def action_space(self) -> spaces.Space[Any]:
        """Space of one action."""

    @abstractmethod
    def sample_task(self, key: Array) -> Any:
        """Return a random task."""

    @abstractmethod
    def reset(self, key: Array, task: Any) -> tuple[Any, Any]:
        """Return state and observation at the start of an episode on a task."""

    @abstractmethod
    def step(self, key: Array, state: Any, action: Array, task: Any) -> JaxStep:
        """Return the result of one transition, without resetting."""
