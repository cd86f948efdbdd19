"""Gymnasium environments stepped one after the other in this process."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import gymnasium
import numpy as np
from jaxtyping import Bool, Float, Shaped, UInt8
from typing_extensions import override

from yamame.data.actions import (
    ACTION_MASK_KEY,
    check_action_space,
    policy_action_space,
    split_env_actions,
    to_env_action,
)
from yamame.data.observations import ObservationParser, OutOfSpaceError, copy_arrays
from yamame.data.step import VectorStep
from yamame.envs.base import RenderableVectorEnv
from yamame.envs.rendering import render_fps, render_frame
from yamame.envs.vector.action_masks import ActionMaskExtractor
from yamame.envs.vector.construction import make_envs, not_beside_others
from yamame.envs.vector.faults import (
    ENV_ERRORS,
    InvalidEnvOutputError,
    close_envs,
    fault_from_exception,
    is_recoverable,
    out_of_space_error,
    reraise_env_error,
    reset_seeds,
    restart_seed,
    restart_with_retries,
    stack_flags,
    stack_rewards,
    stack_successes,
    validate_finite,
    validate_infos,
)
from yamame.envs.vector.fixed_spaces import FixedSpaces
from yamame.errors import UserError
from yamame.types import Fault

_ParsedStep = tuple[
    dict[str, np.ndarray],
    Float[np.ndarray, "rows"],
    Bool[np.ndarray, "rows"],
    Bool[np.ndarray, "rows"],
    Bool[np.ndarray, "rows"] | None,
]
"""Observation, reward, terminated, truncated and success."""


class FailedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Environment that failed in a reset: its next step raises the error."""

    def __init__(self, env: gymnasium.Env[Any, Any], error: BaseException) -> None:
        super().__init__(env)
        self._error = error

    @override
    def step(self, action: Any) -> NoReturn:
        raise self._error


class SerialVectorEnv(RenderableVectorEnv):
    """`EpisodeVectorEnv` over E single environments: the fastest for environments below about 30 microseconds a step.

    `reset` gets `options={"new_task": False}` where a task is repeated, and None elsewhere, since some environments
    refuse unknown options. The first reset of each environment also passes its own seed.

    With `env_fn`, an environment that raises, or whose output is not finite or no output of a step, is replaced by a
    new one: its row is `failed`, and the others continue. A failure in a reset is reported by the next step; until then
    the row keeps its last observation. Without `env_fn`, in the first reset, and if it is not recoverable, the error is
    raised, as is the `UserError` of an observation that is not in its space.

    Args:
        envs: The environments.
        seed: The seeds of all environments are derived from it.
        env_fn: Makes a replacement; None: errors are raised.
        first_row: Index of the first environment if these are a part of more: they get the seeds and names they have
            there.
        action_mask_key: See `ActionMaskExtractor`.

    Raises:
        UserError: If spaces are not supported, or differ between environments.
    """

    def __init__(
        self,
        envs: Sequence[gymnasium.Env[Any, Any]],
        seed: int,
        *,
        env_fn: Callable[[], Any] | None = None,
        first_row: int = 0,
        action_mask_key: str = ACTION_MASK_KEY,
    ) -> None:
        if not envs:
            raise UserError("no environment was given: give at least one")
        self.num_envs = len(envs)
        self.observation_space = envs[0].observation_space
        self._first_row = first_row
        for row, env in enumerate(envs):
            self._check_spaces(row, env, envs[0])
        self.env_action_space = check_action_space(envs[0].action_space)
        self.action_space = policy_action_space(self.env_action_space)
        self._masks = ActionMaskExtractor(
            action_mask_key, self.observation_space, self.env_action_space, first_row=first_row
        )
        self._parser = ObservationParser(self.observation_space)
        self._envs = [self._masks.with_method(env) for env in envs]
        self._fixed_spaces = [FixedSpaces(env, f"environment {row}") for row, env in enumerate(envs, first_row)]
        self._env_fn = env_fn
        self._seed = seed
        seeds = reset_seeds(np.random.SeedSequence(seed), first_row + self.num_envs)
        self._seeds: list[int | None] = [*seeds[first_row:]]
        self._observations: list[Any] = [None] * self.num_envs
        self._infos: list[Mapping[str, Any]] = [{}] * self.num_envs
        self._ended = np.zeros(self.num_envs, np.bool_)
        self._step = np.zeros(self.num_envs, np.int64)
        self._reports_success = False
        self._started = False
        self._restarts = [0] * self.num_envs
        self._failed_rows: list[int] = []
        self._faults: list[Fault] = []

    @override
    def reset(
        self, reset_mask: Bool[np.ndarray, "E"], new_task: Bool[np.ndarray, "E"]
    ) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        rows: list[int] = np.flatnonzero(reset_mask).tolist()
        last_observations, last_infos = self._observations.copy(), self._infos.copy()
        self._ended = self._ended & ~reset_mask
        for row in rows:
            try:
                self._observations[row], self._infos[row] = self._reset_env(row, new_task=bool(new_task[row]))
            except ENV_ERRORS as error:
                self._mark_failed(row, error)
        self._step[reset_mask] = 0
        try:
            observation, _ = self._stack(self._observations)
        except InvalidEnvOutputError:
            for row in rows:
                try:
                    self._stack([self._observations[row]], first_row=row)
                except InvalidEnvOutputError as error:
                    self._mark_failed(row, error)
                    self._observations[row], self._infos[row] = last_observations[row], last_infos[row]
            observation, _ = self._stack(self._observations)
        self._started = True
        return self._with_masks(observation)

    @override
    def step(self, action: Shaped[np.ndarray, "E ..."]) -> VectorStep:
        env_actions = to_env_action(self.env_action_space, action)
        self._step += 1
        results = self._step_envs(split_env_actions(self.env_action_space, env_actions))
        try:
            return self._to_step(results)
        except InvalidEnvOutputError:
            return self._to_step(self._replace_invalid(results))

    @property
    def first_env(self) -> gymnasium.Env[Any, Any]:
        """The first environment."""
        return self._envs[0]

    @property
    @override
    def render_fps(self) -> float:
        return render_fps(self._envs[0])

    @override
    def render(self) -> UInt8[np.ndarray, "height width 3"]:
        return render_frame(self._envs[0])

    @override
    def close(self) -> None:
        close_envs(self._envs, first_row=self._first_row)

    def _reset_env(self, row: int, *, new_task: bool) -> tuple[Any, Mapping[str, Any]]:
        """Start an episode; return its first observation and info."""
        seed, self._seeds[row] = self._seeds[row], None
        self._fixed_spaces[row].check()
        try:
            result = self._envs[row].reset(seed=seed, options=None if new_task else {"new_task": False})
        except TypeError as error:
            if "unexpected keyword argument" not in str(error) or (error.__traceback__ and error.__traceback__.tb_next):
                raise
            raise InvalidEnvOutputError(
                "shape_mismatch",
                f"{error}: define reset(self, *, seed=None, options=None), or is it made for old Gym?",
            ) from None
        if not (isinstance(result, tuple) and len(result) == 2):
            raise InvalidEnvOutputError(
                "shape_mismatch", "the environment's reset does not return (observation, info): is it made for old Gym?"
            )
        validate_infos(result[1:])
        self._fixed_spaces[row].check()
        return self._own(result)

    def _step_envs(self, actions: Sequence[Any]) -> list[Any]:
        """Return the unchecked result of each environment; for one that raises, that of its replacement."""
        results: list[Any] = []
        while (row := len(results)) < self.num_envs:
            try:
                for env, action in zip(self._envs[row:], actions[row:], strict=True):
                    results.append(self._own(env.step(action)))
            except ENV_ERRORS as error:
                results.append(self._restart(len(results), error))
        return results

    def _own(self, result: Any) -> Any:
        """Return an unchecked result of `reset` or `step`, with copies of arrays that other environments may share."""
        return result if self.num_envs == 1 else copy_arrays(result)

    def _to_step(self, results: Sequence[Any]) -> VectorStep:
        """Return the step of all environments. Raises `InvalidEnvOutputError` for invalid values."""
        observation, reward, terminated, truncated, success = self._parse(results)
        self._observations, self._infos = [result[0] for result in results], [result[4] for result in results]
        self._ended = terminated | truncated
        observation = self._with_masks(observation)
        step = VectorStep(
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            is_transition=np.ones(self.num_envs, np.bool_),
            final_observation=observation,
            observation=observation,
            episode_start=np.zeros(self.num_envs, np.bool_),
            success=success,
        )
        return self._with_faults(step) if self._failed_rows else step

    def _parse(self, results: Sequence[Any], *, first_row: int = 0) -> _ParsedStep:
        """Return observation, reward, flags and success of rows from `first_row` on. Raises `InvalidEnvOutputError`."""
        try:
            observations, rewards, terminated, truncated, infos = zip(*results, strict=True)
        except (TypeError, ValueError):
            raise InvalidEnvOutputError(
                "shape_mismatch",
                "the environment's step does not return (observation, reward, terminated, truncated, info): "
                "is it made for old Gym?",
            ) from None
        observation, reward = self._stack(observations, rewards, first_row=first_row)
        validate_infos(infos)
        flags = stack_flags("terminated", terminated), stack_flags("truncated", truncated)
        return observation, reward, *flags, self._success(infos)

    def _with_faults(self, step: VectorStep) -> VectorStep:
        """Return the step with the failed rows and their faults, which are reported once."""
        failed = np.zeros(self.num_envs, np.bool_)
        failed[self._failed_rows] = True
        faults, self._faults, self._failed_rows = tuple(self._faults), [], []
        return replace(step, is_transition=~failed, episode_start=failed, failed=failed, faults=faults)

    def _replace_invalid(self, results: Sequence[Any]) -> list[Any]:
        """Return the results with those of replacements for environments whose output is invalid."""
        replaced = list(results)
        for row, result in enumerate(results):
            try:
                self._parse([result], first_row=row)
                self._masks.validate([result[4]])
            except InvalidEnvOutputError as error:
                replaced[row] = self._restart(row, error)
        return replaced

    def _stack(
        self, observations: Sequence[Any], rewards: Sequence[Any] | None = None, *, first_row: int = 0
    ) -> tuple[dict[str, np.ndarray], Float[np.ndarray, "rows"]]:
        """Return observation and reward of rows from `first_row` on.

        Raises `InvalidEnvOutputError`, or `UserError` if an observation is not in its space.
        """
        step = self._step[first_row : first_row + len(observations)]
        try:
            observation = self._parser.stack(observations)
        except OutOfSpaceError as error:
            row = self._first_row + first_row + error.row
            raise out_of_space_error(error, row, int(step[error.row])) from error
        reward = stack_rewards([0.0] * len(observations) if rewards is None else rewards)
        validate_finite(observation, reward, step, self._first_row + first_row)
        return observation, reward

    def _mark_failed(self, row: int, error: BaseException) -> None:
        """Let an environment that failed in a reset fail at the next step, or raise the error."""
        if self._env_fn is None or not self._started or not is_recoverable(error):
            if row and not self._started and not isinstance(error, UserError):
                raise not_beside_others(row, "reset failed in", error) from error
            self._raise(row, error)
        self._envs[row] = FailedEnv(self._envs[row], error)
        self._ended[row] = True

    def _raise(self, row: int, error: BaseException) -> NoReturn:
        name = f"environment {self._first_row + row}"
        error.add_note(f"({name})")
        reraise_env_error(error, name)

    def _restart(self, row: int, error: BaseException) -> tuple[Any, Any, Any, Any, Any]:
        """Replace an environment that failed; return the first observation in the form of a step."""
        if self._env_fn is None or not is_recoverable(error):
            self._raise(row, error)
        name = f"environment {self._first_row + row}"
        self._faults.append(fault_from_exception(error, name))
        self._failed_rows.append(row)
        self._step[row] = 0
        observation, info = restart_with_retries(partial(self._replace, row, self._env_fn), name, self._faults)
        return observation, 0.0, False, False, info

    def _replace(self, row: int, env_fn: Callable[[], Any]) -> tuple[Any, Mapping[str, Any]]:
        with suppress(*ENV_ERRORS):
            self._envs[row].close()
        (env,) = make_envs(env_fn, 1)
        self._check_spaces(row, env, self._envs[row])
        self._restarts[row] += 1
        self._envs[row] = self._masks.with_method(env)
        self._fixed_spaces[row] = FixedSpaces(env, f"environment {self._first_row + row}")
        self._seeds[row] = restart_seed(self._seed, self._first_row + row, self._restarts[row])
        observation, info = self._reset_env(row, new_task=True)
        self._stack([observation], first_row=row)
        return observation, info

    def _check_spaces(self, row: int, env: gymnasium.Env[Any, Any], other: gymnasium.Env[Any, Any]) -> None:
        if (env.observation_space, env.action_space) != (other.observation_space, other.action_space):
            number, first = self._first_row + row, self._first_row
            raise UserError(f"environment {number} has other spaces than environment {first}: make them all alike")

    def _with_masks(self, observation: Mapping[str, Shaped[np.ndarray, "E ..."]]) -> dict[str, np.ndarray]:
        return self._masks.add_to(observation, self._masks.from_infos(self._infos), self._step, self._ended)

    def _success(self, infos: Sequence[Mapping[str, Any]]) -> Bool[np.ndarray, "E"] | None:
        # inline: in every step
        reports_success = any(info.get("success") is not None or info.get("is_success") is not None for info in infos)
        if not (reports_success or self._reports_success):
            return None
        success = stack_successes(infos)
        self._reports_success = True
        return success
