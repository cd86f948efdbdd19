"""Wrapper that rewards environments with goals for following their instruction."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Bool, Shaped
from typing_extensions import override

from yamame.data.goal_vectors import make_goal_reader
from yamame.data.goals import (
    ACHIEVED_KEY,
    DESIRED_KEY,
    INSTRUCTION_KEY,
    TOLERANCE,
    instruction_observations,
    is_goal,
    is_reached,
    num_sub_goals,
)
from yamame.data.observations import short_value
from yamame.data.step import GoalStep, VectorStep
from yamame.envs.base import EpisodeVectorEnv
from yamame.envs.wrappers.base import VectorEnvWrapper
from yamame.envs.wrappers.trials import TrialWrapper
from yamame.errors import UserError


class InstructionWrapper(VectorEnvWrapper):
    """Wraps environments whose observation has the parts `ACHIEVED_KEY` and `DESIRED_KEY`, see `make_goal_reader`.

    The agent observes `INSTRUCTION_KEY` instead of these two. A transition earns 1 if it achieves the active sub-goal,
    and activates the next one: at most one per step. The episode terminates, with success, when the last sub-goal is
    completed, or when the environment terminates it. The rewards of the environment are ignored.

    Paper: section 3 and appendix B.

    Args:
        hide_future_goals: Show no sub-goal after the active one.
        tolerance: Maximum difference, in each number of a goal, at which it counts as reached.
        is_one_goal: A Box of two dimensions is one goal, instead of one a row.

    Raises:
        UserError: If the two parts are missing or are not goals. From `step`, if a `DESIRED_KEY` changes within an
            episode by more than the tolerance or `TOLERANCE`.
    """

    _STATE = ("_desired", "_shown_goals", "_count", "_completed", "_step")

    def __init__(
        self,
        env: EpisodeVectorEnv,
        *,
        hide_future_goals: bool = False,
        tolerance: float = TOLERANCE,
        is_one_goal: bool = False,
    ) -> None:
        super().__init__(env)
        self.hide_future_goals = hide_future_goals
        self.tolerance = tolerance
        self._goals = make_goal_reader(env.observation_space, is_one_goal=is_one_goal, tolerance=tolerance)
        instruction = self._goals.instruction_space
        assert isinstance(env.observation_space, spaces.Dict)
        others = _without_goals(env.observation_space.spaces)
        self.observation_space = spaces.Dict({**others, INSTRUCTION_KEY: instruction})
        self.slots, goal = instruction.shape
        """Maximum number of sub-goals of an instruction."""
        self._rows = np.arange(self.num_envs)
        self._max_change = min(tolerance, TOLERANCE)
        self._desired = np.zeros((self.num_envs, self.slots, goal), np.float32)
        self._shown_goals = np.zeros((self.num_envs, self.slots + 1, self.slots, goal), np.float32)
        self._count = np.zeros(self.num_envs, np.int64)
        self._completed = np.zeros(self.num_envs, np.int64)
        self._step = np.zeros(self.num_envs, np.int64)

    @override
    def reset(
        self, reset_mask: Bool[np.ndarray, "E"], new_task: Bool[np.ndarray, "E"]
    ) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        observation = self.env.reset(reset_mask, new_task)
        self._start(reset_mask, observation)
        return self._policy_observation(observation)

    @override
    def step(self, action: Shaped[np.ndarray, "E ..."]) -> VectorStep:
        step = self.env.step(action)
        if step.episode_start.any():
            self._start(step.episode_start, step.observation)
        self._step += step.is_transition
        achieved = self._goals.read(ACHIEVED_KEY, step.observation)
        active = self._desired[self._rows, np.minimum(self._completed, self.slots - 1)]
        hit = (is_reached(achieved, active[:, None], self.tolerance) & is_goal(achieved)).any(axis=1)
        hit &= step.is_transition & (self._completed < self._count)
        self._completed += hit
        done = hit & (self._completed == self._count)
        self._check_unchanged(step, step.is_transition & ~done)
        observation = self._policy_observation(step.observation)
        return replace(
            step,
            reward=hit.astype(np.float32),
            terminated=step.terminated | done,
            final_observation=observation,
            observation=observation,
            success=done,
            goals=GoalStep(
                instruction=self._desired.copy(),
                achieved=achieved,
                tolerance=self.tolerance,
                hide_future_goals=self.hide_future_goals,
            ),
        )

    def _start(self, rows: Bool[np.ndarray, "E"], observation: Mapping[str, Shaped[np.ndarray, "E ..."]]) -> None:
        """Read the instructions of the episodes that start in these rows."""
        desired = self._goals.read(DESIRED_KEY, observation)
        self._count = np.where(rows, num_sub_goals(desired), self._count)
        self._completed[rows] = 0
        self._step[rows] = 0
        for row in np.flatnonzero(rows):
            k = int(self._count[row])
            if k == 0:
                raise UserError(f"environment {row} started an episode with an empty {DESIRED_KEY}: give one sub-goal")
            if not is_goal(desired[row, :k]).all():
                raise UserError(
                    f"environment {row} started an episode whose {DESIRED_KEY} has a row of -1 before its last "
                    "sub-goal: give all sub-goals first"
                )
            self._desired[row] = desired[row]
            self._shown_goals[row, : k + 1] = instruction_observations(
                desired[row, :k], slots=self.slots, hide_future_goals=self.hide_future_goals
            )

    def _check_unchanged(self, step: VectorStep, rows: Bool[np.ndarray, "E"]) -> None:
        """Raise `UserError` if the instruction of one of these rows is not that of its episode's first observation."""
        desired = self._goals.read(DESIRED_KEY, step.observation)
        changes = np.abs(desired - self._desired) > self._max_change
        if not changes.any() or not (changed := changes.any(axis=(1, 2)) & rows).any():
            return
        row = int(changed.argmax())
        old, new = (_goal_text(goals[row]) for goals in (self._desired, desired))
        raise UserError(
            f"environment {row} at step {self._step[row]} of its episode changed {DESIRED_KEY!r} from {old} to {new}, "
            "expected that of the first observation: return all sub-goals there, one a row, or rename the key, which "
            "makes it an observation like others and the reward that of the environment"
        )

    def _policy_observation(self, observation: Mapping[str, Shaped[np.ndarray, "E ..."]]) -> dict[str, np.ndarray]:
        return {**_without_goals(observation), INSTRUCTION_KEY: self._shown_goals[self._rows, self._completed]}


def make_trials(
    env: EpisodeVectorEnv,
    *,
    horizon: int,
    attempts: int | None = 1,
    hide_future_goals: bool = False,
    goal_tolerance: float | None = TOLERANCE,
    is_one_goal: bool = False,
) -> TrialWrapper:
    """Return trials of environments; they reward following an instruction if the environments have goals.

    With `goal_tolerance` None, goals are observations and the rewards are those of the environment. `is_one_goal` is
    that of `InstructionWrapper`.
    """
    if goal_tolerance is not None and is_goal_env(env.observation_space):
        env = InstructionWrapper(
            env, hide_future_goals=hide_future_goals, tolerance=goal_tolerance, is_one_goal=is_one_goal
        )
    return TrialWrapper(env, horizon=horizon, attempts=attempts)


def is_goal_env(space: spaces.Space[Any]) -> bool:
    """Return whether an observation space has the two leaves of goals."""
    return isinstance(space, spaces.Dict) and ACHIEVED_KEY in space.spaces and DESIRED_KEY in space.spaces


def _goal_text(goal: Shaped[np.ndarray, "slots goal"]) -> str:
    return short_value([round(number, 6) for number in goal.ravel().tolist()])


def _without_goals(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Return parts or leaves of an observation without those of goals."""
    return {
        name: leaf for name, leaf in leaves.items() if str(name).partition("/")[0] not in (ACHIEVED_KEY, DESIRED_KEY)
    }
