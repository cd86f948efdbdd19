"""`GoalEnvConfig`: what the configs of tasks with instructions have in common."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Bool, Float32, Shaped, UInt8

from yamame.data.goals import (
    ACHIEVED_KEY,
    COMPLETED,
    DESIRED_KEY,
    INSTRUCTION_KEY,
    TOLERANCE,
    instruction_observations,
    is_reached,
    num_sub_goals,
)
from yamame.data.step import EpisodeStep, GoalStep
from yamame.envs.base import EpisodeVectorEnv, RenderableVectorEnv
from yamame.envs.config import EnvConfig
from yamame.envs.wrappers.trials import TrialWrapper
from yamame.errors import UserError, check_range
from yamame.types import State, load_nested_state_dict, nested_state_dict


@dataclass(frozen=True, kw_only=True)
class GoalEnvConfig(EnvConfig):
    """A task whose agents follow instructions: sequences of sub-goals."""

    max_goals: int
    """Sub-goals of the longest instruction; 1: the ablation "w/o multi-goal"."""
    hide_future_goals: bool = False
    """Show no sub-goal after the active one: the ablation "w/o full instruction"."""

    def __post_init__(self) -> None:
        check_range(self, "max_goals", ge=1)

    def with_instruction(self, text: str) -> "GoalEnvConfig":
        """The task with this instruction in every trial. Raises `UserError` where it cannot be had."""
        raise UserError(f"instructions belong to the tasks that {self.task_name} draws: leave --instruction out")

    def goal_text(self, goal: Float32[np.ndarray, "goal"]) -> str:
        """A sub-goal for people to read."""
        return "(" + ", ".join(f"{number:g}" for number in goal) + ")"


def apply_instruction(env: EnvConfig, instruction: str) -> EnvConfig:
    """The task with this instruction in every trial, as it is if that is empty. Raises `UserError` as above."""
    if not instruction:
        return env
    if not isinstance(env, GoalEnvConfig):
        raise UserError(f"{env.task_name} has no instructions: leave --instruction out")
    return env.with_instruction(instruction)


_STATE = ("_desired", "_displays", "_count", "_completed")


class InstructionWrapper:
    """`Environments` over others whose observation has the leaves `ACHIEVED_KEY` and `DESIRED_KEY`.

    The agent sees `INSTRUCTION_KEY` in place of these two. A transition earns 1 if the active sub-goal is among what
    it achieved, and makes the next one active: at most one a step. The episode terminates when the last is completed,
    which is its success, or when the environment terminates it. The environment's own rewards are not used.

    Source: paper section 3 and appendix B. Raises `UserError` where the two leaves are not as they have to be.
    """

    def __init__(
        self, environments: EpisodeVectorEnv, *, hide_future_goals: bool = False, tolerance: float = TOLERANCE
    ) -> None:
        self.environments = environments
        self.hide_future_goals = hide_future_goals
        self.tolerance = tolerance
        self.num_envs = environments.num_envs
        self.action_space = environments.action_space
        self.env_action_space = environments.env_action_space
        desired = _desired_leaf(environments.observation_space)
        self.slots, goal = desired.shape
        """Sub-goals that an instruction can have."""
        self.observation_space = _shown_space(environments.observation_space, desired)
        self._rows = np.arange(self.num_envs)
        self._desired = np.zeros((self.num_envs, *desired.shape), np.float32)
        self._displays = np.zeros((self.num_envs, self.slots + 1, self.slots, goal), np.float32)
        self._count = np.zeros(self.num_envs, np.int64)
        self._completed = np.zeros(self.num_envs, np.int64)

    def reset(
        self, reset_mask: Bool[np.ndarray, "E"], new_task: Bool[np.ndarray, "E"]
    ) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        """See `Environments.reset`."""
        observation = self.environments.reset(reset_mask, new_task)
        self._begin(reset_mask, observation)
        return self._shown(observation)

    def step(self, action: Shaped[np.ndarray, "E ..."]) -> EpisodeStep:
        """See `Environments.step`."""
        episode = self.environments.step(action)
        late = ~episode.is_transition
        if late.any():
            self._begin(late, episode.observation)
        achieved = _as_rows(episode.observation[ACHIEVED_KEY])
        active = self._desired[self._rows, np.minimum(self._completed, self.slots - 1)]
        hit = is_reached(achieved, active[:, None], self.tolerance).any(axis=1)
        hit &= episode.is_transition & (self._completed < self._count)
        self._completed += hit
        done = hit & (self._completed == self._count)
        return replace(
            episode,
            reward=hit.astype(np.float32),
            terminated=episode.terminated | done,
            observation=self._shown(episode.observation),
            success=done,
            goals=GoalStep(
                instruction=self._desired.copy(),
                achieved=achieved,
                tolerance=self.tolerance,
                hide_future_goals=self.hide_future_goals,
            ),
        )

    @property
    def render_fps(self) -> float:
        """See `RenderableVectorEnv`."""
        return self._rendered().render_fps

    def render(self) -> UInt8[np.ndarray, "height width 3"]:
        """See `RenderableVectorEnv`."""
        return self._rendered().render()

    def close(self) -> None:
        """Close the environments."""
        self.environments.close()

    def state_dict(self) -> State | None:
        """See `Resumable`: where the environments are."""
        return nested_state_dict(self.environments, self, _STATE)

    def load_state_dict(self, state: State) -> None:
        """See `Resumable`."""
        load_nested_state_dict(self.environments, self, state)

    def _begin(self, rows: Bool[np.ndarray, "E"], observation: Mapping[str, Shaped[np.ndarray, "E ..."]]) -> None:
        """Take over the instructions of episodes that begin."""
        desired = _as_rows(observation[DESIRED_KEY])
        self._count = np.where(rows, num_sub_goals(desired), self._count)
        self._completed[rows] = 0
        for row in np.flatnonzero(rows):
            k = int(self._count[row])
            if k == 0:
                raise UserError(f"environment {row} began an episode with an empty {DESIRED_KEY}: give one sub-goal")
            self._desired[row] = desired[row]
            self._displays[row, : k + 1] = instruction_observations(
                desired[row, :k], slots=self.slots, hide_future_goals=self.hide_future_goals
            )

    def _shown(self, observation: Mapping[str, Shaped[np.ndarray, "E ..."]]) -> dict[str, np.ndarray]:
        seen = {name: leaf for name, leaf in observation.items() if name not in (ACHIEVED_KEY, DESIRED_KEY)}
        return {**seen, INSTRUCTION_KEY: self._displays[self._rows, self._completed]}

    def _rendered(self) -> RenderableVectorEnv:
        if not isinstance(self.environments, RenderableVectorEnv):
            raise UserError("this environment cannot be filmed: it has no pictures")
        return self.environments


def make_instruction_trials(
    environments: EpisodeVectorEnv, *, horizon: int, hide_future_goals: bool = False, tolerance: float = TOLERANCE
) -> TrialWrapper:
    """Trials of one episode each, of at most `horizon` transitions, that reward following an instruction."""
    return TrialWrapper(
        InstructionWrapper(environments, hide_future_goals=hide_future_goals, tolerance=tolerance),
        horizon=horizon,
        attempts=1,
    )


def make_trials(
    environments: EpisodeVectorEnv, *, horizon: int, attempts: int | None, goal_tolerance: float
) -> TrialWrapper:
    """Trials of a user's environments; they reward following an instruction where the environments announce goals."""
    if is_goal_env(environments.observation_space):
        environments = InstructionWrapper(environments, tolerance=goal_tolerance)
    return TrialWrapper(environments, horizon=horizon, attempts=attempts)


def is_goal_env(space: spaces.Space[Any]) -> bool:
    """Whether environments of this observation space announce goals."""
    return isinstance(space, spaces.Dict) and ACHIEVED_KEY in space.spaces and DESIRED_KEY in space.spaces


def _as_rows(leaf: Float32[np.ndarray, "E ..."]) -> Float32[np.ndarray, "E rows goal"]:
    """Goals as rows, where a leaf is one goal as well."""
    return leaf[:, None] if leaf.ndim == 2 else leaf


def _desired_leaf(space: spaces.Space[Any]) -> spaces.Box:
    """The leaf of the instruction as rows. Raises `UserError` unless both leaves are as they have to be."""
    if not isinstance(space, spaces.Dict) or not is_goal_env(space):
        raise UserError(
            f"the environment announces no goals: its observation must be a Dict with {ACHIEVED_KEY!r} and "
            f"{DESIRED_KEY!r} in it"
        )
    if INSTRUCTION_KEY in space.spaces:
        raise UserError(f"the observation has a leaf {INSTRUCTION_KEY!r} of its own: rename it")
    achieved, desired = (_box_of_goals(name, space.spaces[name]) for name in (ACHIEVED_KEY, DESIRED_KEY))
    if achieved.shape[-1] != desired.shape[-1]:
        raise UserError(
            f"goals have {achieved.shape[-1]} numbers in {ACHIEVED_KEY!r} and {desired.shape[-1]} in "
            f"{DESIRED_KEY!r}: make them equal"
        )
    low, high = desired.low, desired.high
    return _box(low, high, desired) if low.ndim == 2 else _box(low[None], high[None], desired)


def _box_of_goals(name: str, leaf: spaces.Space[Any]) -> spaces.Box:
    if not isinstance(leaf, spaces.Box) or len(leaf.shape) not in (1, 2):
        raise UserError(f"{name!r} is {leaf}: make it a Box of shape (goals, numbers of a goal)")
    return leaf


def _shown_space(space: spaces.Space[Any], desired: spaces.Box) -> spaces.Space[Any]:
    assert isinstance(space, spaces.Dict)
    seen = {name: leaf for name, leaf in space.spaces.items() if name not in (ACHIEVED_KEY, DESIRED_KEY)}
    return spaces.Dict({**seen, INSTRUCTION_KEY: _box(np.minimum(desired.low, COMPLETED), desired.high, desired)})


def _box(low: Shaped[np.ndarray, "..."], high: Shaped[np.ndarray, "..."], like: spaces.Box) -> spaces.Box:
    dtype: Any = like.dtype
    return spaces.Box(low.astype(dtype), high.astype(dtype), low.shape, dtype.type)
