"""Gymnax: classic control, the memory tasks of bsuite, bandits and mazes, written in JAX (Lange 2022)."""

import difflib
import importlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gymnasium import spaces
from typing_extensions import override

from yamame.envs.base import Array, JaxEnv, JaxStep, TrialVectorEnv
from yamame.envs.config import EnvConfig
from yamame.envs.wrappers.restarting import make_jax_vector_env
from yamame.envs.wrappers.trials import TrialWrapper
from yamame.errors import UserError, check_range


@dataclass(frozen=True)
class GymnaxEnv(JaxEnv):
    """A gymnax environment with its default parameters as a `JaxEnv`.

    A task is the key of the reset, so an attempt at the same task starts in the same state: the same bandit, maze or
    goal. Gymnax does not report success. Raises `UserError` for an unknown name.
    """

    name: str

    @cached_property
    def _env_and_params(self) -> tuple[Any, Any]:
        gymnax = importlib.import_module("gymnax")
        if self.name not in gymnax.registered_envs:
            nearest = difflib.get_close_matches(self.name, gymnax.registered_envs, n=1, cutoff=0.0)[0]
            raise UserError(f"gymnax has no environment {self.name!r}: did you mean {nearest!r}?")
        try:
            env_and_params: tuple[Any, Any] = gymnax.make(self.name)
        except OSError as error:  # one of them downloads images
            raise UserError(f"gymnax cannot make {self.name!r} ({error}): choose another environment") from error
        return env_and_params

    @property
    @override
    def observation_space(self) -> spaces.Space[Any]:
        env, params = self._env_and_params
        return _gymnasium_space(env.observation_space(params))

    @property
    @override
    def action_space(self) -> spaces.Space[Any]:
        env, params = self._env_and_params
        return _gymnasium_space(env.action_space(params))

    @override
    def sample_task(self, key: Array) -> Any:
        return key

    @override
    def reset(self, key: Array, task: Any) -> tuple[Any, Any]:
        env, params = self._env_and_params
        observation, state = env.reset_env(task, params)
        return state, observation

    @override
    def step(self, key: Array, state: Any, action: Array, task: Any) -> JaxStep:
        """Do what gymnax's own `step` does before it resets."""
        env, params = self._env_and_params
        observation, state, reward, terminated, _ = env.step_env(key, state, action, params)
        truncated = env.is_truncated(state, params)
        return JaxStep(state, observation, reward, terminated, truncated, None)


@dataclass(frozen=True, kw_only=True)
class GymnaxConfig(EnvConfig):
    """A gymnax environment with its default parameters."""

    name: str = "MemoryChain-bsuite"
    """Name of the environment, such as `CartPole-v1`, `UmbrellaChain-bsuite` or `BernoulliBandit-misc`."""
    horizon: int
    """Maximum number of steps of a trial, over all its attempts."""
    attempts: int | None = 1
    """Episodes of a trial, all on one task; memory is kept between them. None: as many as fit into the horizon."""

    def __post_init__(self) -> None:
        check_range(self, "horizon", "attempts", ge=1)

    @property
    @override
    def required_extra(self) -> str:
        return "jax"

    @property
    @override
    def task_name(self) -> str:
        """Such as `gymnax-CartPole-v1`."""
        return f"gymnax-{self.name}"

    @override
    def build(self, num_envs: int, seed: int) -> TrialVectorEnv:
        name = f"environment {self.name!r}"
        envs = make_jax_vector_env(GymnaxEnv(self.name), num_envs, seed, name=name, package="gymnax")
        return TrialWrapper(envs, horizon=self.horizon, attempts=self.attempts)


def _gymnasium_space(space: Any) -> spaces.Space[Any]:
    module = importlib.import_module("gymnax.environments.spaces")
    converted: spaces.Space[Any] = module.gymnax_space_to_gym_space(space)
    return converted
