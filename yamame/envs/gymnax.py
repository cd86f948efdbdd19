"""Gymnax: classic control, bsuite's memory tasks, bandits and mazes, written in JAX (Lange 2022)."""

import difflib
import importlib
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from gymnasium import spaces

from yamame.envs.base import TrialVectorEnv
from yamame.envs.config import EnvConfig
from yamame.envs.vector.jax_env import Array, JaxEnv, JaxStep
from yamame.envs.vector.restarting import RestartingVectorEnv
from yamame.envs.wrappers.trials import TrialWrapper
from yamame.errors import UserError, check_range


@dataclass(frozen=True)
class GymnaxEnv(JaxEnv):
    """A gymnax environment with its default parameters as a `JaxEnv`.

    A task is the key that its episodes begin with, so an attempt on the same task begins in the same state: the same
    bandit, maze or goal. Gymnax knows no success. Raises `UserError` for a name that it does not know.
    """

    name: str

    @cached_property
    def _made(self) -> tuple[Any, Any]:
        gymnax = importlib.import_module("gymnax")
        if self.name not in gymnax.registered_envs:
            nearest = difflib.get_close_matches(self.name, gymnax.registered_envs, n=1, cutoff=0.0)[0]
            raise UserError(f"gymnax has no environment {self.name!r}: did you mean {nearest!r}?")
        try:
            made: tuple[Any, Any] = gymnax.make(self.name)
        except OSError as error:  # one of them downloads pictures
            raise UserError(f"gymnax cannot make {self.name!r} ({error}): choose another environment") from error
        return made

    @property
    def observation_space(self) -> spaces.Space[Any]:
        """See `JaxEnv`."""
        environment, parameters = self._made
        return _gymnasium_space(environment.observation_space(parameters))

    @property
    def action_space(self) -> spaces.Space[Any]:
        """See `JaxEnv`."""
        environment, parameters = self._made
        return _gymnasium_space(environment.action_space(parameters))

    def sample_task(self, key: Array) -> Any:
        """The key itself."""
        return key

    def reset(self, key: Array, task: Any) -> tuple[Any, Any]:
        """The state that follows from the task."""
        environment, parameters = self._made
        observation, state = environment.reset_env(task, parameters)
        return state, observation

    def step(self, key: Array, state: Any, action: Array, task: Any) -> JaxStep:
        """What gymnax's own `step` does before it resets."""
        environment, parameters = self._made
        observation, state, reward, terminated, _ = environment.step_env(key, state, action, parameters)
        truncated = environment.is_truncated(state, parameters)
        return JaxStep(state, observation, reward, terminated, truncated, None)


@dataclass(frozen=True, kw_only=True)
class GymnaxConfig(EnvConfig):
    """A gymnax environment with its default parameters."""

    name: str = "MemoryChain-bsuite"
    """Such as `CartPole-v1`, `UmbrellaChain-bsuite` or `BernoulliBandit-misc`."""
    horizon: int
    """Largest number of steps of a trial, all its attempts together."""
    attempts: int | None = 1
    """Episodes on one task that make a trial, through which memory is kept; None: as many as fit into the horizon."""

    def __post_init__(self) -> None:
        check_range(self, "horizon", "attempts", ge=1)

    @property
    def task_name(self) -> str:
        """Such as `gymnax-CartPole-v1`."""
        return f"gymnax-{self.name}"

    @property
    def max_trial_steps(self) -> int:
        """The horizon."""
        return self.horizon

    def build(self, num_envs: int, seed: int) -> TrialVectorEnv:
        """See `EnvConfig.build`; `UserError` for a misspelt name names the nearest one."""
        try:
            from yamame.envs.vector.jax_env import JaxVectorEnv

            importlib.import_module("gymnax")
        except ImportError as error:
            raise UserError(f"environment {self.name!r} needs JAX and gymnax: pip install 'yamame[jax]'") from error
        environments = RestartingVectorEnv(partial(JaxVectorEnv, GymnaxEnv(self.name), num_envs), seed)
        return TrialWrapper(environments, horizon=self.horizon, attempts=self.attempts)


def _gymnasium_space(space: Any) -> spaces.Space[Any]:
    module = importlib.import_module("gymnax.environments.spaces")
    converted: spaces.Space[Any] = module.gymnax_space_to_gym_space(space)
    return converted
