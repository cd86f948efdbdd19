"""Wrapper that restarts a whole vector environment when it fails, such as one written in JAX."""

import importlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np
from jaxtyping import Bool, Shaped
from typing_extensions import override

from yamame.data.step import VectorStep
from yamame.envs.base import EpisodeVectorEnv, JaxEnv
from yamame.envs.vector.faults import (
    ENV_ERRORS,
    fault_from_exception,
    is_recoverable,
    reraise_env_error,
    restart_seed,
    restart_with_retries,
)
from yamame.envs.wrappers.base import VectorEnvWrapper
from yamame.errors import UserError
from yamame.types import State

_NAME = "the vector environment"


class RestartingVectorEnv(VectorEnvWrapper):
    """Replaces a vector environment that fails by another one: all its rows have failed then.

    A failure in a reset is reported by the next step; until then the last observation is returned. The first reset, and
    an error that is not recoverable, raise. Rows that the vector environment itself reports as failed are passed on.

    Args:
        make: Makes the vector environment from a seed.
        seed: Seed of the first one; replacements get others.
    """

    _STATE = ("_observation", "_restarts", "_reports_success")

    def __init__(self, make: Callable[[int], EpisodeVectorEnv], seed: int) -> None:
        super().__init__(make(seed))
        self._make, self._seed = make, seed
        self._observation: Mapping[str, Shaped[np.ndarray, "E ..."]] = {}
        self._error: Exception | SystemExit | None = None
        self._restarts = 0
        self._reports_success = False

    @override
    def reset(
        self, reset_mask: Bool[np.ndarray, "E"], new_task: Bool[np.ndarray, "E"]
    ) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        try:
            self._observation = self.env.reset(reset_mask, new_task)
        except ENV_ERRORS as error:
            if not self._observation or not is_recoverable(error):
                reraise_env_error(error, _NAME)
            self._error = error
        return self._observation

    @override
    def step(self, action: Shaped[np.ndarray, "E ..."]) -> VectorStep:
        step = self._restart_after(self._error) if self._error else self._try_step(action)
        self._observation = step.observation
        self._reports_success |= step.success is not None
        if self._reports_success and step.success is None:
            return replace(step, success=np.zeros(self.num_envs, np.bool_))
        return step

    @override
    def state_dict(self) -> State | None:
        return None if self._error else super().state_dict()

    def _try_step(self, action: Shaped[np.ndarray, "E ..."]) -> VectorStep:
        try:
            return self.env.step(action)
        except ENV_ERRORS as error:
            if not is_recoverable(error):
                raise
            return self._restart_after(error)

    def _restart_after(self, error: Exception | SystemExit) -> VectorStep:
        """Return the step in which all rows have failed."""
        faults = [fault_from_exception(error, _NAME)]
        observation = restart_with_retries(self._restart, _NAME, faults)
        self._error = None
        return VectorStep(
            reward=np.zeros(self.num_envs),
            terminated=np.zeros(self.num_envs, np.bool_),
            truncated=np.zeros(self.num_envs, np.bool_),
            is_transition=np.zeros(self.num_envs, np.bool_),
            final_observation=observation,
            observation=observation,
            episode_start=np.ones(self.num_envs, np.bool_),
            failed=np.ones(self.num_envs, np.bool_),
            faults=faults,
        )

    def _restart(self) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        with suppress(*ENV_ERRORS):
            self.env.close()
        self._restarts += 1
        self.env = self._make(restart_seed(self._seed, 0, self._restarts))
        if (self.env.observation_space, self.env.action_space) != (self.observation_space, self.action_space):
            raise UserError(f"{_NAME} has other spaces after a restart: always make it with the same spaces")
        everywhere = np.ones(self.num_envs, np.bool_)
        return self.env.reset(everywhere, everywhere)


def make_jax_vector_env(env: JaxEnv, num_envs: int, seed: int, *, name: str, package: str) -> RestartingVectorEnv:
    """Return copies of an environment written in JAX. Raises `UserError` if JAX or the package is not installed."""
    try:
        from yamame.envs.vector.jax_vector_env import JaxVectorEnv

        importlib.import_module(package)
    except ImportError as error:
        raise UserError(f"{name} needs JAX and {package}: pip install 'yamame[jax]'") from error
    return RestartingVectorEnv(partial(JaxVectorEnv, env, num_envs), seed)
