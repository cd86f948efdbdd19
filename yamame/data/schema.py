"""Validation of stored trajectories before they reach a batch."""

import math
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
    strip_action_mask,
)
from yamame.data.codec import MAX_DECODED_BYTES, CorruptedRecordError, decode
from yamame.data.goals import Goals
from yamame.data.spaces import Leaf, flatten_space, stored_dtype, stored_shape, vocabulary_size
from yamame.data.step import MAX_ABS_REWARD
from yamame.data.trajectory import CompressedFrames, Trajectory

_MAX_ABS_ACTION = 1.0 + 1e-3
"""Of a Box, whose bounds are -1 and 1, with a tolerance for rounding."""
_EXTRA_BYTES, _EXTRA_STEP_BYTES = 16 << 20, 4096
"""Allowance for goals and extras, whose sizes no schema has."""


def consistency_error(trajectory: Trajectory) -> str:
    """Describe why the arrays of a trajectory contradict each other or its type annotations; "" if they do not."""
    return next(_consistency_errors(trajectory), "")


@dataclass(frozen=True, kw_only=True)
class TrajectorySchema:
    """Leaves and actions of every trajectory of a task. The leaf `ACTION_MASK_KEY` is optional."""

    leaves: Mapping[str, Leaf]
    """Leaf of the observation -> its space, without the action mask."""
    action_space: PolicyActionSpace
    horizon: int = 0
    """Maximum number of transitions; 0: unknown."""

    @staticmethod
    def from_spaces(
        observation_space: spaces.Space, action_space: PolicyActionSpace, *, horizon: int = 0
    ) -> "TrajectorySchema":
        """Make the schema of a task; `observation_space` has no action mask."""
        return TrajectorySchema(leaves=flatten_space(observation_space), action_space=action_space, horizon=horizon)

    @property
    def max_bytes(self) -> int:
        """Limit of the decoded arrays of a trajectory, twice what the task's own fields take."""
        if not self.horizon:
            return MAX_DECODED_BYTES
        leaves = self.leaves.values()
        observation = sum(math.prod(stored_shape(leaf)) * np.dtype(stored_dtype(leaf)).itemsize for leaf in leaves)
        action = 8 * math.prod(action_shape(self.action_space)) + action_size(self.action_space)
        step = observation + action + _EXTRA_STEP_BYTES
        return min(MAX_DECODED_BYTES, _EXTRA_BYTES + 2 * (self.horizon + 1) * step)

    def validation_error(self, trajectory: Trajectory) -> str:
        """Describe why a trajectory does not match the task; "" if it does."""
        return consistency_error(trajectory) or next(self._validation_errors(trajectory), "")

    def _validation_errors(self, trajectory: Trajectory) -> Iterator[str]:
        found, expected = {*trajectory.observation, *trajectory.lazy_observation} - {ACTION_MASK_KEY}, set(self.leaves)
        if found != expected:
            yield f"it observes {_join(found)}, this task {_join(expected)}"
            return
        for name, leaf in self.leaves.items():
            lazy = trajectory.lazy_observation.get(name)
            yield from _leaf_errors(name, leaf, trajectory.observation[name] if lazy is None else lazy)
        mask = trajectory.observation.get(ACTION_MASK_KEY)
        size = action_size(self.action_space)
        if mask is not None and (mask.dtype, mask.shape[1:]) != (np.dtype(np.bool_), (size,)):
            yield f"its {ACTION_MASK_KEY!r} is {_describe(mask)}, this task has {size} choices"
        yield from self._action_errors(trajectory.action)

    def _action_errors(self, action: Shaped[np.ndarray, "T ..."]) -> Iterator[str]:
        space = self.action_space
        dtype = np.floating if isinstance(space, spaces.Box) else np.integer
        if not np.issubdtype(action.dtype, dtype) or action.shape[1:] != action_shape(space):
            yield f"its actions are {_describe(action)}, this task takes {space}"
        elif isinstance(space, spaces.Box):
            if np.abs(action).max() > _MAX_ABS_ACTION:
                yield f"its actions go up to {np.abs(action).max():.4g}, beyond [-1, 1]"
        elif (action < 0).any() or (action >= (space.n if isinstance(space, spaces.Discrete) else space.nvec)).any():
            yield f"its actions range from {action.min()} to {action.max()}, this task takes {space}"


def decode_valid(record: object, schema: TrajectorySchema | None, *, lazy: bool = False) -> Trajectory:
    """Decode a stored record with `codec.decode`.

    Raises:
        CorruptedRecordError: If it is corrupted, or does not match the schema; None: if it is not consistent.
    """
    if not isinstance(record, bytes):
        raise CorruptedRecordError("record is not stored as bytes")
    trajectory = decode(record, lazy=lazy, max_bytes=MAX_DECODED_BYTES if schema is None else schema.max_bytes)
    problem = consistency_error(trajectory) if schema is None else schema.validation_error(trajectory)
    if problem:
        raise CorruptedRecordError(problem)
    return trajectory


def _consistency_errors(trajectory: Trajectory) -> Iterator[str]:
    length = trajectory.reward.size
    if not length:
        yield "it has no transitions"
        return
    transitions = {"reward": np.float32, "terminated": np.bool_, "truncated": np.bool_, "success": np.bool_}
    for name, dtype in transitions.items():
        array = getattr(trajectory, name)
        if array is not None and (array.dtype, array.shape) != (np.dtype(dtype), (length,)):
            yield f"its {name} is {_describe(array)}, expected {np.dtype(dtype).name} [{length}]"
    start = trajectory.episode_start
    if (start.dtype, start.shape) != (np.dtype(np.bool_), (length + 1,)):
        yield f"its episode_start is {_describe(start)}, expected bool [{length + 1}]"
    extras = {f"extras {name!r}": array for name, array in trajectory.extras.items()}
    for name, array in {"action": trajectory.action, **extras}.items():
        if array.shape[:1] != (length,):
            yield f"its {name} is {_describe(array)} at {length} transitions"
    leaves: dict[str, np.ndarray | CompressedFrames] = {**trajectory.observation, **trajectory.lazy_observation}
    for name, leaf in leaves.items():
        if leaf.shape[:1] != (length + 1,):
            yield f"its observation {name!r} is {_describe(leaf)} at {length} transitions"
    numbers = {
        "reward": trajectory.reward,
        "action": trajectory.action,
        **trajectory.observation,
        **extras,
    }
    if (too_large := np.flatnonzero(np.abs(trajectory.reward) >= MAX_ABS_REWARD)).size:
        step = too_large[0]
        yield f"its reward of step {step} is {trajectory.reward[step]:g}, expected below {MAX_ABS_REWARD:g} in size"
    for name, array in numbers.items():
        if array.dtype.kind not in "fiub" or (array.dtype.kind == "f" and not np.isfinite(array).all()):
            yield f"its {name} is not all finite numbers"
    if trajectory.horizon < 1:
        yield f"its horizon is {trajectory.horizon}, expected at least 1"
    if trajectory.goals is not None:
        yield from _goal_errors(trajectory.goals, length)


def _goal_errors(goals: Goals, length: int) -> Iterator[str]:
    step, achieved = goals.achieved_step, goals.achieved_goal
    if goals.instruction.ndim != 2 or not len(goals.instruction):
        yield f"its instruction is {_describe(goals.instruction)}, expected a row for each sub-goal"
    elif step.ndim != 1 or step.dtype.kind not in "iu" or achieved.shape != (len(step), goals.instruction.shape[1]):
        yield f"its achieved goals are {_describe(achieved)} at steps {_describe(step)}"
    elif len(step) and (step.min() < 0 or step.max() >= length or (np.diff(step) < 0).any()):
        yield "its achieved goals are at steps out of order or beyond its end"


def _leaf_errors(name: str, leaf: Leaf, found: Shaped[np.ndarray, "rows ..."] | CompressedFrames) -> Iterator[str]:
    shape, dtype = stored_shape(leaf), np.dtype(stored_dtype(leaf))
    if (found.dtype, found.shape[1:]) != (dtype, shape):
        yield f"its observation {name!r} is {_describe(found)}, this task has {dtype.name} {list(shape)} a step"
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
        yield f"its observation {name!r} ranges from {rows.min()} to {rows.max()}, beyond {leaf}"


def _describe(array: Shaped[np.ndarray, "..."] | CompressedFrames) -> str:
    return f"{array.dtype.name} {list(array.shape)}"


def _join(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """Spaces and horizon of a task, as its environments declare them."""

    observation_space: spaces.Space[Any]
    """Including the action mask if it is a leaf of the observation."""
    action_space: NativeActionSpace
    """As the environment declares it."""
    horizon: int
    """Maximum number of transitions of a trial."""
    action_mask_key: str
    """Name of the action mask: a leaf of the observation, or an entry of info."""

    @property
    def schema(self) -> TrajectorySchema:
        """Schema of the task's trajectories."""
        return TrajectorySchema.from_spaces(
            strip_action_mask(self.observation_space, self.action_mask_key),
            policy_action_space(self.action_space),
            horizon=self.horizon,
        )
