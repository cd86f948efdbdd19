"""What one environment offers that is written in JAX; this file does not import it."""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from gymnasium import spaces
from jax import numpy as jnp
from jaxtyping import Bool, Shaped

from yamame.data.actions import check_action_space, policy_action_space, to_env_action
from yamame.data.spaces import flatten_observation, flatten_space
from yamame.data.step import EpisodeStep
from yamame.envs.vector.validation import validate_finite, validate_shapes

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


os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # or JAX takes most of a GPU's memory from PyTorch


class JaxEnvState(NamedTuple):
    """Everything about E environments, on the device."""

    key: jax.Array
    task: Any
    state: Any
    observation: Any


class JaxVectorEnv:
    """E copies of a `JaxEnv` as `Environments`.

    Row i draws from the key `fold_in(key(seed), i)`, which is split at each of its own steps (one part goes to the
    step) and resets (one to the task, one to the episode): what a row does depends on no other.
    """

    def __init__(self, environment: JaxEnv, num_envs: int, seed: int) -> None:
        self.num_envs = num_envs
        self.observation_space = environment.observation_space
        self.env_action_space = check_action_space(environment.action_space)
        self.action_space = policy_action_space(self.env_action_space)
        self._leaves = flatten_space(self.observation_space)
        self._environment = environment
        self._keys = jax.vmap(partial(jax.random.fold_in, jax.random.key(seed)))(jnp.arange(num_envs))
        self._rows: JaxEnvState | None = None
        self._step = np.zeros(num_envs, np.int64)

    def reset(
        self, reset_mask: Bool[np.ndarray, "E"], new_task: Bool[np.ndarray, "E"]
    ) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        """See `Environments.reset`. The first call begins every environment."""
        first = self._rows is None
        if self._rows is None:
            self._rows = _begin(self._environment, self._keys)
        else:
            self._rows = _reset(self._environment, self._rows, reset_mask, new_task)
        self._step[reset_mask] = 0
        observation = self._flat(jax.device_get(self._rows.observation))
        if first:
            validate_shapes(observation, self._leaves)
        validate_finite(observation, None, self._step)
        return observation

    def step(self, action: Shaped[np.ndarray, "E ..."]) -> EpisodeStep:
        """See `Environments.step`."""
        native = to_env_action(self.env_action_space, action)
        assert self._rows is not None, "reset comes first"
        self._rows, told = _step(self._environment, self._rows, native)
        answer: JaxStep = jax.device_get(told)
        self._step += 1
        observation, reward = self._flat(answer.observation), np.asarray(answer.reward, np.float32)
        validate_finite(observation, reward, self._step)
        return EpisodeStep(
            reward=reward,
            terminated=np.asarray(answer.terminated, np.bool_),
            truncated=np.asarray(answer.truncated, np.bool_),
            is_transition=np.ones(self.num_envs, np.bool_),
            observation=observation,
            success=None if answer.success is None else np.asarray(answer.success, np.bool_),
        )

    def close(self) -> None:
        """Forget what is on the device."""
        self._rows = None

    def _flat(self, observation: Any) -> dict[str, np.ndarray]:
        return flatten_observation(self.observation_space, observation)


@partial(jax.jit, static_argnums=0)
def _begin(environment: JaxEnv, key_E: jax.Array) -> JaxEnvState:
    def begin(key: jax.Array) -> JaxEnvState:
        key, of_task, of_episode = jax.random.split(key, 3)
        task = environment.sample_task(of_task)
        return JaxEnvState(key, task, *environment.reset(of_episode, task))

    return jax.vmap(begin)(key_E)


@partial(jax.jit, static_argnums=0)
def _reset(environment: JaxEnv, rows: JaxEnvState, mask_E: jax.Array, new_task_E: jax.Array) -> JaxEnvState:
    def reset(row: JaxEnvState, begins: jax.Array, new_task: jax.Array) -> JaxEnvState:
        key, of_task, of_episode = jax.random.split(row.key, 3)
        task = _choose(new_task, environment.sample_task(of_task), row.task)
        return _choose(begins, JaxEnvState(key, task, *environment.reset(of_episode, task)), row)

    return jax.vmap(reset)(rows, mask_E, new_task_E)


@partial(jax.jit, static_argnums=0)
def _step(environment: JaxEnv, rows: JaxEnvState, action_E: jax.Array) -> tuple[JaxEnvState, JaxStep]:
    def step(row: JaxEnvState, action: jax.Array) -> tuple[JaxEnvState, JaxStep]:
        key, of_step = jax.random.split(row.key)
        answer = environment.step(of_step, row.state, action, row.task)
        after = row._replace(key=key, state=answer.state, observation=answer.observation)
        return after, answer._replace(state=None)

    return jax.vmap(step)(rows, action_E)


def _choose(condition: jax.Array, new: Any, old: Any) -> Any:
    """`new` where the condition holds, in the types of `old`, so that nothing is compiled again."""

    def choose(one: Any, other: jax.Array) -> jax.Array:
        one = jnp.asarray(one)
        return jnp.where(condition, one if one.dtype == other.dtype else one.astype(other.dtype), other)

    return jax.tree.map(choose, new, old)
