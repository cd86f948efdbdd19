"""What a stored trajectory has to look like before it may reach a batch."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Shaped

from yamame.data.actions import (
    ACTION_MASK_KEY,
    NativeActionSpace,
    PolicyActionSpace,
    action_shape,
    action_size,
    policy_action_space,
)
from yamame.data.goals import Goals
from yamame.data.spaces import Leaf, flatten_space, stored_dtype, stored_shape, vocabulary_size
from yamame.data.trajectory import LazyArray, Trajectory
from yamame.envs.vector.action_masks import strip_action_mask

_MAX_ACTION = 1.0 + 1e-3
"""Of a Box, whose bounds are -1 and 1; the rest is for rounding."""


def consistency_error(trajectory: Trajectory) -> str:
    """Why the arrays of a trajectory do not fit together, or nothing; its types promise all that is asked here."""
    return next(_inconsistencies(trajectory), "")


@dataclass(frozen=True, kw_only=True)
class TrajectorySchema:
    """What every trajectory of a task looks like. `ACTION_MASK_KEY` may be there or not, as the environments tell."""

    leaves: Mapping[str, Leaf]
    """Leaf of the observation -> its space, action masks left out."""
    action_space: PolicyActionSpace

    @staticmethod
    def from_spaces(observation_space: spaces.Space, action_space: PolicyActionSpace) -> "TrajectorySchema":
        """The form of a task; `observation_space` is without action masks."""
        return TrajectorySchema(leaves=flatten_space(observation_space), action_space=action_space)

    def validation_error(self, trajectory: Trajectory) -> str:
        """Why a trajectory is none of this task, or nothing."""
        return consistency_error(trajectory) or next(self._validation_errors(trajectory), "")

    def _validation_errors(self, trajectory: Trajectory) -> Iterator[str]:
        found, wanted = {*trajectory.observation, *trajectory.lazy_observation} - {ACTION_MASK_KEY}, set(self.leaves)
        if found != wanted:
            yield f"it observes {_named(found)}, this task {_named(wanted)}"
            return
        for name, leaf in self.leaves.items():
            packed = trajectory.lazy_observation.get(name)
            yield from _leaf_errors(name, leaf, trajectory.observation[name] if packed is None else packed)
        mask = trajectory.observation.get(ACTION_MASK_KEY)
        if mask is not None and (mask.dtype, mask.shape[1:]) != (np.dtype(np.bool_), (action_size(self.action_space),)):
            yield f"its {ACTION_MASK_KEY!r} is {_described(mask)}, this task has {action_size(self.action_space)} choices"
        yield from self._action_errors(trajectory.action)

    def _action_errors(self, action: Shaped[np.ndarray, "T ..."]) -> Iterator[str]:
        space = self.action_space
        kind = np.floating if isinstance(space, spaces.Box) else np.integer
        if not np.issubdtype(action.dtype, kind) or action.shape[1:] != action_shape(space):
            yield f"its actions are {_described(action)}, this task takes {space}"
        elif isinstance(space, spaces.Box):
            if np.abs(action).max() > _MAX_ACTION:
                yield f"its actions go up to {np.abs(action).max():.4g}, beyond [-1, 1]"
        elif (action < 0).any() or (action >= (space.n if isinstance(space, spaces.Discrete) else space.nvec)).any():
            yield f"its actions reach from {action.min()} to {action.max()}, this task takes {space}"


def _inconsistencies(trajectory: Trajectory) -> Iterator[str]:
    length = trajectory.reward.size
    if not length:
        yield "it has no transitions"
        return
    transitions = {"reward": np.float32, "terminated": np.bool_, "truncated": np.bool_, "success": np.bool_}
    for name, dtype in transitions.items():
        array = getattr(trajectory, name)
        if array is not None and (array.dtype, array.shape) != (np.dtype(dtype), (length,)):
            yield f"its {name} is {_described(array)}, not {np.dtype(dtype).name} [{length}]"
    start = trajectory.episode_start
    if (start.dtype, start.shape) != (np.dtype(np.bool_), (length + 1,)):
        yield f"its episode_start is {_described(start)}, not bool [{length + 1}]"
    if trajectory.action.shape[:1] != (length,):
        yield f"its action is {_described(trajectory.action)} at {length} transitions"
    leaves: dict[str, np.ndarray | LazyArray] = {**trajectory.observation, **trajectory.lazy_observation}
    for name, leaf in leaves.items():
        if leaf.shape[:1] != (length + 1,):
            yield f"its observation {name!r} is {_described(leaf)} at {length} transitions"
    for name, array in {"reward": trajectory.reward, "action": trajectory.action, **trajectory.observation}.items():
        if array.dtype.kind not in "fiub" or (array.dtype.kind == "f" and not np.isfinite(array).all()):
            yield f"its {name} holds what is no finite number"
    if trajectory.horizon < 1:
        yield f"its horizon is {trajectory.horizon}"
    if trajectory.goals is not None:
        yield from _goal_inconsistencies(trajectory.goals, length)


def _goal_inconsistencies(goals: Goals, length: int) -> Iterator[str]:
    step, achieved = goals.achieved_step, goals.achieved_goal
    if goals.instruction.ndim != 2 or not len(goals.instruction):
        yield f"its instruction is {_described(goals.instruction)}, not a row for each sub-goal"
    elif step.ndim != 1 or step.dtype.kind not in "iu" or achieved.shape != (len(step), goals.instruction.shape[1]):
        yield f"its achieved goals are {_described(achieved)} at steps {_described(step)}"
    elif len(step) and (step.min() < 0 or step.max() >= length or (np.diff(step) < 0).any()):
        yield "its achieved goals are at steps out of order or beyond its end"


def _leaf_errors(name: str, leaf: Leaf, found: Shaped[np.ndarray, "slots ..."] | LazyArray) -> Iterator[str]:
    shape, dtype = stored_shape(leaf), np.dtype(stored_dtype(leaf))
    if (found.dtype, found.shape[1:]) != (dtype, shape):
        yield f"its observation {name!r} is {_described(found)}, this task has {dtype.name} {list(shape)} a step"
        return
    match leaf:
        case spaces.Discrete():
            limit = leaf.n
        case spaces.MultiDiscrete():
            limit = leaf.nvec
        case spaces.Text():
            limit = vocabulary_size(leaf)
        case _:
            return
    rows = found if isinstance(found, np.ndarray) else found.read(0, found.shape[0])
    if (rows < 0).any() or (rows >= limit).any():
        yield f"its observation {name!r} reaches from {rows.min()} to {rows.max()}, beyond {leaf}"


def _described(array: Shaped[np.ndarray, "..."] | LazyArray) -> str:
    return f"{array.dtype.name} {list(array.shape)}"


def _named(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """A task as its environments announce it."""

    observation_space: spaces.Space[Any]
    """What the agent sees; an action mask included, where that is a leaf."""
    action_space: NativeActionSpace
    """As the environment declares it."""
    horizon: int
    """Largest number of transitions of a trial."""
    action_mask_key: str
    """Name of the action mask: of a leaf of the observation, or of an entry of info."""

    @property
    def schema(self) -> TrajectorySchema:
        """What the task's trajectories look like."""
        return TrajectorySchema.from_spaces(
            strip_action_mask(self.observation_space, self.action_mask_key), policy_action_space(self.action_space)
        )
