"""Interfaces of vector environments (by episode, by trial, and with frames) and of environments written in JAX."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from gymnasium import spaces
from jaxtyping import Bool, Shaped, UInt8

from yamame.data.actions import NativeActionSpace, PolicyActionSpace
from yamame.data.step import VectorStep


@runtime_checkable
class EpisodeVectorEnv(Protocol):
    """E environments stepped together, episode by episode. They never reset on their own.

    Observations are flat dicts of leaves `[E, ...]`; action masks, if there are any, are the leaf `ACTION_MASK_KEY`.
    """

    num_envs: int
    observation_space: spaces.Space[Any]
    action_space: PolicyActionSpace
    """Space of the policy's actions: Discrete, flat MultiDiscrete, or flat Box rescaled to [-1, 1]."""
    env_action_space: NativeActionSpace
    """Action space as the environment declares it."""

    def reset(
        self, reset_mask: Bool[np.ndarray, "E"], new_task: Bool[np.ndarray, "E"]
    ) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        """Start an episode in the environments of `reset_mask`.

        Args:
            reset_mask: Environments to reset. All of them in the first call.
            new_task: Where to sample a new task; elsewhere the task is repeated.

        Returns:
            Observation of all environments; that of the others is unchanged.
        """
        ...

    def step(self, action: Shaped[np.ndarray, "E ..."]) -> VectorStep:
        """Step every environment once. Environments whose episode has ended must be reset first."""
        ...

    def close(self) -> None:
        """Release the resources of all environments."""
        ...


@runtime_checkable
class RenderableVectorEnv(EpisodeVectorEnv, Protocol):
    """Vector environment whose first environment can be rendered."""

    @property
    def render_fps(self) -> float:
        """Frames per second at which the frames should be shown."""
        ...

    def render(self) -> UInt8[np.ndarray, "height width 3"]:
        """Return a frame of the first environment. Raises `UserError` if it cannot be rendered."""
        ...


@runtime_checkable
class TrialVectorEnv(Protocol):
    """E trials stepped together: one task each, memory kept between its attempts, a new task in every trial."""

    num_envs: int
    observation_space: spaces.Space[Any]
    action_space: PolicyActionSpace
    env_action_space: NativeActionSpace
    """Action space as the environment declares it."""
    horizon: int
    """Maximum number of transitions of a trial."""

    def reset(self) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        """Start a new trial in every environment and return the observations."""
        ...

    def step(self, action: Shaped[np.ndarray, "E ..."]) -> VectorStep:
        """Step every trial once. Trials that end are replaced by new ones."""
        ...

    def close(self) -> None:
        """Release the resources of all environments."""
        ...


Array = Any
"""A `jax.Array`, traced or not: JAX is not imported, so that configs work without it."""


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
