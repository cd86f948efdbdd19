"""Vector environment over environments written in JAX. Imports JAX."""

import os
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import numpy as jnp
from jaxtyping import Bool, Shaped
from typing_extensions import override

from yamame.data.actions import check_action_space, policy_action_space, to_env_action
from yamame.data.observations import ObservationParser, OutOfSpaceError
from yamame.data.step import VectorStep
from yamame.envs.base import EpisodeVectorEnv, JaxEnv, JaxStep
from yamame.envs.vector.faults import out_of_space_error, validate_finite

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # or JAX takes most of a GPU's memory from PyTorch


class JaxEnvState(NamedTuple):
    """State of E environments on the device."""

    key: jax.Array
    task: Any
    state: Any
    observation: Any


class JaxVectorEnv(EpisodeVectorEnv):
    """`EpisodeVectorEnv` over E copies of a `JaxEnv`.

    Row i uses the key `fold_in(key(seed), i)`, which is split at each of its own steps (one part for the step) and
    resets (one for the task, one for the episode), so that rows are independent.
    """

    def __init__(self, env: JaxEnv, num_envs: int, seed: int) -> None:
        self.num_envs = num_envs
        self.observation_space = env.observation_space
        self.env_action_space = check_action_space(env.action_space)
        self.action_space = policy_action_space(self.env_action_space)
        self._parser = ObservationParser(self.observation_space)
        self._env = env
        self._keys = jax.vmap(partial(jax.random.fold_in, jax.random.key(seed)))(jnp.arange(num_envs))
        self._state: JaxEnvState | None = None
        self._step = np.zeros(num_envs, np.int64)

    @override
    def reset(
        self, reset_mask: Bool[np.ndarray, "E"], new_task: Bool[np.ndarray, "E"]
    ) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        if self._state is None:
            self._state = _reset_all(self._env, self._keys)
        else:
            self._state = _reset(self._env, self._state, reset_mask, new_task)
        self._step[reset_mask] = 0
        observation = self._flatten(jax.device_get(self._state.observation))
        validate_finite(observation, None, self._step)
        return observation

    @override
    def step(self, action: Shaped[np.ndarray, "E ..."]) -> VectorStep:
        assert self._state is not None, "call reset before step"
        self._state, on_device = _step(self._env, self._state, to_env_action(self.env_action_space, action))
        step: JaxStep = jax.device_get(on_device)
        self._step += 1
        observation, reward = self._flatten(step.observation), np.asarray(step.reward, np.float64)
        validate_finite(observation, reward, self._step)
        return VectorStep(
            reward=reward,
            terminated=np.asarray(step.terminated, np.bool_),
            truncated=np.asarray(step.truncated, np.bool_),
            is_transition=np.ones(self.num_envs, np.bool_),
            final_observation=observation,
            observation=observation,
            episode_start=np.zeros(self.num_envs, np.bool_),
            success=None if step.success is None else np.asarray(step.success, np.bool_),
        )

    @override
    def close(self) -> None:
        self._state = None

    def _flatten(self, observation: Any) -> dict[str, np.ndarray]:
        try:
            return self._parser.split(observation)
        except OutOfSpaceError as error:
            raise out_of_space_error(error, error.row, int(self._step[error.row])) from error


@partial(jax.jit, static_argnums=0)
def _reset_all(env: JaxEnv, key_E: jax.Array) -> JaxEnvState:
    def reset(key: jax.Array) -> JaxEnvState:
        key, task_key, episode_key = jax.random.split(key, 3)
        task = env.sample_task(task_key)
        return JaxEnvState(key, task, *env.reset(episode_key, task))

    return jax.vmap(reset)(key_E)


@partial(jax.jit, static_argnums=0)
def _reset(env: JaxEnv, state_E: JaxEnvState, mask_E: jax.Array, new_task_E: jax.Array) -> JaxEnvState:
    def reset(state: JaxEnvState, is_reset: jax.Array, new_task: jax.Array) -> JaxEnvState:
        key, task_key, episode_key = jax.random.split(state.key, 3)
        task = _where(new_task, env.sample_task(task_key), state.task)
        return _where(is_reset, JaxEnvState(key, task, *env.reset(episode_key, task)), state)

    return jax.vmap(reset)(state_E, mask_E, new_task_E)


@partial(jax.jit, static_argnums=0)
def _step(env: JaxEnv, state_E: JaxEnvState, action_E: jax.Array) -> tuple[JaxEnvState, JaxStep]:
    def step(state: JaxEnvState, action: jax.Array) -> tuple[JaxEnvState, JaxStep]:
        key, step_key = jax.random.split(state.key)
        result = env.step(step_key, state.state, action, state.task)
        after = state._replace(key=key, state=result.state, observation=result.observation)
        return after, result._replace(state=None)

    return jax.vmap(step)(state_E, action_E)


def _where(condition: jax.Array, new: Any, old: Any) -> Any:
    """Return `new` where the condition holds, cast to the types of `old` to avoid recompilation."""

    def select(new_leaf: Any, old_leaf: jax.Array) -> jax.Array:
        new_leaf = jnp.asarray(new_leaf)
        cast = new_leaf if new_leaf.dtype == old_leaf.dtype else new_leaf.astype(old_leaf.dtype)
        return jnp.where(condition, cast, old_leaf)

    return jax.tree.map(select, new, old)
