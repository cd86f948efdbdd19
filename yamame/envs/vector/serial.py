"""Plain Gymnasium environments, stepped one after the other in this process."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv
from jaxtyping import Bool, Float32, Int64, Shaped, UInt8

from yamame.data.actions import ACTION_MASK_KEY, check_action_space, policy_action_space, to_env_action
from yamame.data.step import EpisodeStep
from yamame.envs.rendering import render_fps, render_frame
from yamame.envs.vector.action_masks import ActionMaskExtractor, masks_from_infos
from yamame.envs.vector.obs_filter import stack_observations, stack_rewards
from yamame.envs.vector.restarting import (
    InvalidEnvOutputError,
    fault_from_exception,
    is_recoverable,
    restart_seed,
    restart_with_retries,
)
from yamame.envs.vector.validation import validate_finite
from yamame.errors import UserError
from yamame.types import Fault


def make_envs(make: Callable[[], Any], count: int) -> list[gymnasium.Env[Any, Any]]:
    """`count` new environments; `UserError` for anything that is no `gymnasium.Env` and for the same one twice."""
    made: list[gymnasium.Env[Any, Any]] = []
    for _ in range(count):
        one = make()
        if isinstance(one, VectorEnv):
            raise UserError(f"the factory makes a whole vector environment: set rows to {one.num_envs}")
        validate_env(one)
        made.append(one)
    if len({id(environment) for environment in made}) < count:
        raise UserError("the factory returns the same environment twice: make a new one at each call")
    return made


def validate_env(environment: Any) -> None:
    """Raise `UserError` for anything that is no `gymnasium.Env`."""
    if not isinstance(environment, gymnasium.Env):
        raise UserError(
            f"{type(environment).__name__} is not a gymnasium.Env nor a gymnasium.vector.VectorEnv: wrap it in one"
        )


class FailedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that has failed in a reset: a step raises why."""

    def __init__(self, environment: gymnasium.Env[Any, Any], error: Exception) -> None:
        super().__init__(environment)
        self._error = error

    def step(self, action: Any) -> NoReturn:
        """Raise what the reset raised."""
        raise self._error


class SerialVectorEnv:
    """E single environments as `Environments`: the fastest shape for environments under ~30 microseconds a step.

    Every reset passes `options={"new_task": bool}`; the first reset of each environment also passes its own seed,
    drawn from `seed`; `first_row` is the number of the first environment, for parts of a larger whole: its seeds and
    errors are those that it has there. `action_mask_key` is where they say what they allow (see `ActionMaskExtractor`). Raises
    `UserError` for spaces that are not supported or not the same everywhere.

    `make` makes another environment in place of one that raises, or gives what is not finite or not of its space: the
    row has `failed`, and the others go on. What fails in a reset has failed at the next step; until then its row shows
    what it last did. Without `make`, in the first reset of all, and where it is a `UserError`, it is raised.
    """

    def __init__(
        self,
        environments: Sequence[gymnasium.Env[Any, Any]],
        seed: int,
        *,
        make: Callable[[], Any] | None = None,
        first_row: int = 0,
        action_mask_key: str = ACTION_MASK_KEY,
    ) -> None:
        if not environments:
            raise UserError("no environment was given: give at least one")
        first = environments[0]
        self.num_envs = len(environments)
        self.observation_space = first.observation_space
        self._first_row = first_row
        for row, other in enumerate(environments):
            self._check_spaces(row, other, first)
        self.env_action_space = check_action_space(first.action_space)
        self.action_space = policy_action_space(self.env_action_space)
        self._masks = ActionMaskExtractor(
            action_mask_key, self.observation_space, self.env_action_space, first_row=first_row
        )
        self._mask_key = action_mask_key
        self._environments = list(environments)
        self._make = make
        self._seed = seed
        seeds = np.random.SeedSequence(seed).generate_state(first_row + self.num_envs)
        self._seeds: list[int | None] = seeds[first_row:].tolist()
        self._seen: list[Any] = [None] * self.num_envs
        self._infos: list[Mapping[str, Any]] = [{}] * self.num_envs
        self._ended = np.zeros(self.num_envs, np.bool_)
        self._step = np.zeros(self.num_envs, np.int64)
        self._announces_success = False
        self._started = False
        self._restarts = [0] * self.num_envs
        self._failed: list[int] = []
        self._faults: list[Fault] = []

    def reset(
        self, reset_mask: Bool[np.ndarray, "E"], new_task: Bool[np.ndarray, "E"]
    ) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        """See `Environments.reset`."""
        rows: list[int] = np.flatnonzero(reset_mask).tolist()
        seen, infos = self._seen.copy(), self._infos.copy()
        self._ended = self._ended & ~reset_mask
        for row in rows:
            try:
                self._seen[row], self._infos[row] = self._start(row, new_task=bool(new_task[row]))
            except Exception as error:
                self._break(row, error)
        self._step[reset_mask] = 0
        try:
            observation = self._observation(slice(0, self.num_envs))
        except InvalidEnvOutputError:
            for row in rows:
                try:
                    self._observation(slice(row, row + 1))
                except InvalidEnvOutputError as error:
                    self._break(row, error)
                    self._seen[row], self._infos[row] = seen[row], infos[row]
            observation = self._observation(slice(0, self.num_envs))
        self._started = True
        return self._with_masks(observation)

    def step(self, action: Shaped[np.ndarray, "E ..."]) -> EpisodeStep:
        """See `Environments.step`."""
        native = to_env_action(self.env_action_space, action)
        self._step += 1
        answers = self._answers(native.tolist() if native.ndim == 1 else list(native))
        try:
            return self._read(answers)
        except InvalidEnvOutputError:
            return self._read(self._mended(answers))

    @property
    def render_fps(self) -> float:
        """See `RenderableVectorEnv`."""
        return render_fps(self._environments[0])

    def render(self) -> UInt8[np.ndarray, "height width 3"]:
        """See `RenderableVectorEnv`."""
        return render_frame(self._environments[0])

    def close(self) -> None:
        """Close every environment."""
        for environment in self._environments:
            environment.close()

    def _start(self, row: int, *, new_task: bool) -> tuple[Any, Mapping[str, Any]]:
        """The first observation and info of an episode."""
        seed, self._seeds[row] = self._seeds[row], None
        answer = self._environments[row].reset(seed=seed, options={"new_task": new_task})
        if not (isinstance(answer, tuple) and len(answer) == 2):
            raise UserError("the environment's reset does not return (observation, info): is it made for old Gym?")
        return answer

    def _answers(self, choices: Sequence[Any]) -> list[Any]:
        """What the environments answer to an action each, unread; in place of one that raises, what has been begun."""
        answers: list[Any] = []
        while (row := len(answers)) < self.num_envs:
            try:
                for environment, choice in zip(self._environments[row:], choices[row:], strict=True):
                    answers.append(environment.step(choice))
            except Exception as error:
                answers.append(self._restarted(len(answers), error))
        return answers

    def _read(self, answers: Sequence[Any]) -> EpisodeStep:
        """The step that all environments have answered. Raises `InvalidEnvOutputError` for what nobody can use."""
        try:
            observations, rewards, terminated, truncated, infos = zip(*answers, strict=True)
        except (TypeError, ValueError):
            raise UserError(
                "the environment's step does not return (observation, reward, terminated, truncated, info): "
                "is it made for old Gym?"
            ) from None
        observation, reward = self._numbers(observations, rewards, self._step, 0)
        self._seen, self._infos = list(observations), list(infos)
        self._ended = np.logical_or(terminated, truncated)
        step = EpisodeStep(
            reward=reward,
            terminated=np.array(terminated, np.bool_),
            truncated=np.array(truncated, np.bool_),
            is_transition=np.ones(self.num_envs, np.bool_),
            observation=self._with_masks(observation),
            success=self._success(infos),
        )
        return self._with_faults(step) if self._failed else step

    def _with_faults(self, step: EpisodeStep) -> EpisodeStep:
        """What went wrong is told once."""
        failed = np.zeros(self.num_envs, np.bool_)
        failed[self._failed] = True
        faults, self._faults, self._failed = tuple(self._faults), [], []
        return replace(step, is_transition=~failed, failed=failed, faults=faults)

    def _mended(self, answers: Sequence[Any]) -> list[Any]:
        """`answers`, with what has been begun anew in place of those that nobody can use."""
        mended = list(answers)
        for row, (observation, reward, *_) in enumerate(answers):
            try:
                self._numbers([observation], [reward], self._step[row : row + 1], row)
            except InvalidEnvOutputError as error:
                mended[row] = self._restarted(row, error)
        return mended

    def _numbers(
        self, observations: Sequence[Any], rewards: Sequence[Any], step: Int64[np.ndarray, "rows"], first_row: int
    ) -> tuple[dict[str, np.ndarray], Float32[np.ndarray, "rows"]]:
        """Observation and reward of some rows. Raises `InvalidEnvOutputError` for what is not finite or not of its space."""
        observation, reward = stack_observations(self.observation_space, observations), stack_rewards(rewards)
        validate_finite(observation, reward, step, self._first_row + first_row)
        return observation, reward

    def _observation(self, rows: slice) -> dict[str, np.ndarray]:
        """What was last seen in some rows, checked as in `_numbers`."""
        observation = stack_observations(self.observation_space, self._seen[rows])
        validate_finite(observation, None, self._step[rows], self._first_row + rows.start)
        return observation

    def _break(self, row: int, error: Exception) -> None:
        """Let an environment that has failed in a reset fail at the next step."""
        if self._make is None or not self._started or not is_recoverable(error):
            error.add_note(f"(environment {self._first_row + row})")
            raise error
        self._environments[row] = FailedEnv(self._environments[row], error)
        self._ended[row] = True

    def _restarted(self, row: int, error: Exception) -> tuple[Any, Any, Any, Any, Any]:
        """What an environment begun in place of one that has failed answers first."""
        if self._make is None or not is_recoverable(error):
            raise error
        who = f"environment {self._first_row + row}"
        self._faults.append(fault_from_exception(error, who))
        self._failed.append(row)
        self._step[row] = 0
        observation, info = restart_with_retries(partial(self._replace, row, self._make), who, self._faults)
        return observation, 0.0, False, False, info

    def _replace(self, row: int, make: Callable[[], Any]) -> tuple[Any, Mapping[str, Any]]:
        """Begin with another environment in a row."""
        with suppress(Exception):
            self._environments[row].close()
        (made,) = make_envs(make, 1)
        self._check_spaces(row, made, self._environments[row])
        self._restarts[row] += 1
        self._environments[row] = made
        self._seeds[row] = restart_seed(self._seed, self._first_row + row, self._restarts[row])
        observation, info = self._start(row, new_task=True)
        self._numbers([observation], [0.0], self._step[row : row + 1], row)
        return observation, info

    def _check_spaces(self, row: int, one: gymnasium.Env[Any, Any], other: gymnasium.Env[Any, Any]) -> None:
        if (one.observation_space, one.action_space) != (other.observation_space, other.action_space):
            number, first = self._first_row + row, self._first_row
            raise UserError(f"environment {number} has other spaces than environment {first}: make them all alike")

    def _with_masks(self, observation: Mapping[str, Shaped[np.ndarray, "E ..."]]) -> dict[str, np.ndarray]:
        return self._masks.add_to(observation, masks_from_infos(self._infos, self._mask_key), self._step, self._ended)

    def _success(self, infos: Sequence[Mapping[str, Any]]) -> Bool[np.ndarray, "E"] | None:
        announced = [info.get("success") for info in infos]
        self._announces_success |= any(each is not None for each in announced)
        if not self._announces_success:
            return None
        return np.array([each is not None and float(each) > 0 for each in announced], np.bool_)
