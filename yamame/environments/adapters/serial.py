"""Plain Gymnasium environments, stepped one after the other in this process."""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Bool, Shaped, UInt8

from yamame.environments.adapters.action_masks import ActionMasks, told_by_infos
from yamame.environments.adapters.actions import native_action, policy_action_space
from yamame.environments.adapters.checks import check_finite
from yamame.environments.adapters.observations import stack_observations
from yamame.environments.drawing import frames_per_second, render
from yamame.records.action_spaces import MASK_LEAF, check_action_space
from yamame.records.errors import UserError
from yamame.records.step import EpisodeStep


class SerialEnvironments:
    """E single environments as `Environments`: the fastest shape for environments under ~30 microseconds a step.

    Every reset passes `options={"new_task": bool}`; the first reset of each environment also passes its own seed,
    drawn from `seed`; `first_row` is the number of the first environment, for parts of a larger whole: its seeds and
    errors are those that it has there. `mask_key` is where they say what they allow (see `ActionMasks`). Raises
    `UserError` for spaces that are not supported or not the same everywhere.
    """

    def __init__(
        self,
        environments: Sequence[gymnasium.Env[Any, Any]],
        seed: int,
        *,
        first_row: int = 0,
        mask_key: str = MASK_LEAF,
    ) -> None:
        if not environments:
            raise UserError("no environment was given: give at least one")
        first = environments[0]
        for row, other in enumerate(environments, first_row):
            if (other.observation_space, other.action_space) != (first.observation_space, first.action_space):
                raise UserError(f"environment {row} has other spaces than environment {first_row}: make them all alike")
        self.num_envs = len(environments)
        self.observation_space = first.observation_space
        self.native_action_space = check_action_space(first.action_space)
        self.action_space = policy_action_space(self.native_action_space)
        self._masks = ActionMasks(mask_key, self.observation_space, self.native_action_space, first_row=first_row)
        self._mask_key = mask_key
        self._environments = list(environments)
        seeds = np.random.SeedSequence(seed).generate_state(first_row + self.num_envs)
        self._seeds: list[int | None] = seeds[first_row:].tolist()
        self._first_row = first_row
        self._seen: list[Any] = [None] * self.num_envs
        self._infos: list[Mapping[str, Any]] = [{}] * self.num_envs
        self._ended = np.zeros(self.num_envs, np.bool_)
        self._step = np.zeros(self.num_envs, np.int64)
        self._announces_success = False

    def reset(
        self, mask: Bool[np.ndarray, "E"], new_task: Bool[np.ndarray, "E"]
    ) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        """See `Environments.reset`."""
        for row in np.flatnonzero(mask):
            options = {"new_task": bool(new_task[row])}
            answer = self._environments[row].reset(seed=self._seeds[row], options=options)
            if not (isinstance(answer, tuple) and len(answer) == 2):
                raise UserError("the environment's reset does not return (observation, info): is it made for old Gym?")
            self._seen[row], self._infos[row] = answer
            self._seeds[row] = None
        self._step[mask] = 0
        self._ended = self._ended & ~mask
        observation = stack_observations(self.observation_space, self._seen)
        check_finite(observation, None, self._step, self._first_row)
        return self._with_masks(observation)

    def step(self, action: Shaped[np.ndarray, "E ..."]) -> EpisodeStep:
        """See `Environments.step`."""
        native = native_action(self.native_action_space, action)
        choices = native.tolist() if native.ndim == 1 else native
        answers = [each.step(choice) for each, choice in zip(self._environments, choices, strict=True)]
        if len(answers[0]) != 5:
            raise UserError(
                "the environment's step does not return (observation, reward, terminated, truncated, info): "
                "is it made for old Gym?"
            )
        observations, rewards, terminated, truncated, infos = zip(*answers, strict=True)
        self._seen, self._infos = list(observations), list(infos)
        self._step += 1
        self._ended = np.logical_or(terminated, truncated)
        observation, reward = stack_observations(self.observation_space, observations), np.array(rewards, np.float32)
        check_finite(observation, reward, self._step, self._first_row)
        return EpisodeStep(
            reward=reward,
            terminated=np.array(terminated, np.bool_),
            truncated=np.array(truncated, np.bool_),
            live=np.ones(self.num_envs, np.bool_),
            observation=self._with_masks(observation),
            success=self._success(infos),
        )

    @property
    def frames_per_second(self) -> float:
        """See `RenderedEnvironments`."""
        return frames_per_second(self._environments[0])

    def render(self) -> UInt8[np.ndarray, "height width 3"]:
        """See `RenderedEnvironments`."""
        return render(self._environments[0])

    def close(self) -> None:
        """Close every environment."""
        for environment in self._environments:
            environment.close()

    def _with_masks(self, observation: Mapping[str, Shaped[np.ndarray, "E ..."]]) -> dict[str, np.ndarray]:
        return self._masks.attach(observation, told_by_infos(self._infos, self._mask_key), self._step, self._ended)

    def _success(self, infos: Sequence[Mapping[str, Any]]) -> Bool[np.ndarray, "E"] | None:
        announced = [info.get("success") for info in infos]
        self._announces_success |= any(each is not None for each in announced)
        if not self._announces_success:
            return None
        return np.array([each is not None and float(each) > 0 for each in announced], np.bool_)
