"""Goals of any space as vectors of numbers, of which instructions consist."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Float32, Float64, Shaped
from typing_extensions import override

from yamame.data.actions import is_unbounded
from yamame.data.goals import ACHIEVED_KEY, COMPLETED, DESIRED_KEY, INSTRUCTION_KEY, NO_GOAL, TOLERANCE
from yamame.data.spaces import Leaf, describe_space, flatten_space, leaf_name, stored_shape, vocabulary_size, walk_space
from yamame.errors import UserError

MAX_TOKENS = 64
"""Integers of a single goal that are given as tokens; more are given as coordinates."""
MAX_VOCABULARY = 60_000
"""Largest range of integers that are given as tokens."""
MAX_EXACT = 2**24
"""Largest integer up to which float32 represents all of them."""


class GoalReader(ABC):
    """Reads achieved and desired goals of observations as rows of numbers of one size."""

    instruction_space: spaces.Box
    """`[max_goals, goal]`: what the agent observes. Integers are tokens, floats are coordinates."""

    @abstractmethod
    def read(self, key: str, observation: Mapping[str, Shaped[np.ndarray, "E ..."]]) -> Float32[np.ndarray, "E m goal"]:
        """Return the goals of `ACHIEVED_KEY` or `DESIRED_KEY`.

        Raises `UserError` for a token that is not in its space, for an integer that float32 cannot represent, and for a
        number that float32 rounds by more than half the tolerance.
        """


def make_goal_reader(
    space: spaces.Space[Any], *, is_one_goal: bool = False, tolerance: float = TOLERANCE
) -> GoalReader:
    """Return the reader for goals of an observation space.

    Args:
        space: Observation space.
        is_one_goal: A Box of two dimensions is one goal, instead of one a row.
        tolerance: Maximum difference, in each number of a goal, at which it counts as reached.

    Raises:
        UserError: If it has no goals, or goals of different sizes or kinds that are not supported.
    """
    if not isinstance(space, spaces.Dict) or not {ACHIEVED_KEY, DESIRED_KEY} <= space.spaces.keys():
        raise UserError(
            f"the environment has no goals: its observation must be a Dict with {ACHIEVED_KEY!r} and {DESIRED_KEY!r}"
        )
    if INSTRUCTION_KEY in space.spaces:
        raise UserError(f"the observation has a leaf {INSTRUCTION_KEY!r} of its own: rename it")
    achieved, desired = space.spaces[ACHIEVED_KEY], space.spaces[DESIRED_KEY]
    if not (isinstance(achieved, spaces.Box) and isinstance(desired, spaces.Box)):
        return _SingleGoal(space, tolerance)
    has_rows = 2 in (len(achieved.shape), len(desired.shape))
    if has_rows and not is_one_goal:
        return _GoalRows(achieved, desired, tolerance)
    return _SingleGoal(space, tolerance)


class _GoalRows(GoalReader):
    """Boxes of goals, one a row, with rows of `NO_GOAL` that are unused."""

    def __init__(self, achieved: spaces.Box, desired: spaces.Box, tolerance: float) -> None:
        self._tolerance = tolerance
        for key, box in ((ACHIEVED_KEY, achieved), (DESIRED_KEY, desired)):
            if len(box.shape) not in (1, 2):
                raise UserError(f"{key!r} is {describe_space(box)}: make it a Box of shape (goals, numbers of a goal)")
        size = desired.shape[-1]
        _check_sizes(achieved.shape[-1], size)
        high = desired.high.reshape(-1, size).astype(np.float64)
        self._are_tokens = all(
            _is_integer(box) and not (is_unbounded(box.low) | is_unbounded(box.high)).any()
            for box in (achieved, desired)
        )
        if self._are_tokens:
            lowest = int(min(achieved.low.min(), desired.low.min()))
            if lowest < NO_GOAL:
                raise UserError(
                    f"{ACHIEVED_KEY!r} and {DESIRED_KEY!r} are integers from {lowest}, but -1 marks an unused row: "
                    "count them from 0, or give both one dimension, which is one goal"
                )
            high = np.maximum(high, achieved.high.reshape(-1, size).max(axis=0))
        low = np.minimum(desired.low.reshape(-1, size).astype(np.float64), COMPLETED)
        self.instruction_space = _instruction_box(low, high, are_tokens=self._are_tokens)

    @override
    def read(self, key: str, observation: Mapping[str, Shaped[np.ndarray, "E ..."]]) -> Float32[np.ndarray, "E m goal"]:
        leaf = observation[key]
        goals = _to_float32(key, leaf[:, None] if leaf.ndim == 2 else leaf, self._tolerance)
        if self._are_tokens:
            _check_goals(key, goals, (goals >= NO_GOAL) & (goals <= self.instruction_space.high.max(axis=0)))
        return goals


class _SingleGoal(GoalReader):
    """One goal of any space: the numbers of its leaves follow each other.

    Tokens are counted from the lower bound of their space if it is negative. A goal of coordinates that equals
    `NO_GOAL` or `COMPLETED` becomes the next larger float: the numbers that mark rows of an instruction are no goals.
    """

    def __init__(self, space: spaces.Dict, tolerance: float) -> None:
        self._tolerance = tolerance
        self._leaves = {key: _leaves_of(key, space.spaces[key]) for key in (ACHIEVED_KEY, DESIRED_KEY)}
        bounds = {key: _bounds(leaves) for key, leaves in self._leaves.items()}
        (lowest_G, highest_G), (low_G, high_G) = bounds[ACHIEVED_KEY], bounds[DESIRED_KEY]
        _check_sizes(len(lowest_G), len(low_G))
        leaves = [leaf for each in self._leaves.values() for leaf in each.values()]
        self._are_integers = all(map(_is_integer, leaves))
        are_bits = all(isinstance(leaf, spaces.MultiBinary) for leaf in leaves)
        lowest_G, highest_G = np.minimum(np.minimum(lowest_G, low_G), 0.0), np.maximum(highest_G, high_G)
        self._are_tokens = (
            self._are_integers
            and not are_bits
            and float(highest_G.max() - lowest_G.min()) <= MAX_VOCABULARY
            and len(low_G) <= MAX_TOKENS
        )
        self._start_G = lowest_G if self._are_tokens else np.zeros(len(low_G))
        self._high_G = highest_G - self._start_G
        if self._are_tokens:
            low_G, high_G = np.zeros(len(low_G)), self._high_G
        elif not are_bits:
            high_G = np.full(len(low_G), np.inf)  # the encoder then takes the unit of coordinates from the data
        low_G = np.minimum(low_G, COMPLETED)
        self.instruction_space = _instruction_box(low_G[None], high_G[None], are_tokens=self._are_tokens)

    @override
    def read(self, key: str, observation: Mapping[str, Shaped[np.ndarray, "E ..."]]) -> Float32[np.ndarray, "E m goal"]:
        parts = [
            observation[name].reshape(len(observation[name]), -1) + _start_of(leaf)
            for name, leaf in self._leaves[key].items()
        ]
        numbers_EG = np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
        if self._are_tokens:
            numbers_EG = numbers_EG - self._start_G
            _check_goals(key, numbers_EG, (numbers_EG >= 0) & (numbers_EG <= self._high_G), self._start_G)
        elif self._are_integers:
            _check_goals(key, numbers_EG, np.abs(numbers_EG) <= MAX_EXACT)
        goals_EG = _to_float32(key, numbers_EG, self._tolerance)
        if not self._are_tokens:
            for marker in (NO_GOAL, COMPLETED):
                goals_EG[(goals_EG == marker).all(axis=1)] = np.nextafter(np.float32(marker), np.float32(0.0))
        return goals_EG[:, None]


def _leaves_of(key: str, part: spaces.Space[Any]) -> dict[str, Leaf]:
    """Return the leaves of a goal by their names in the observation. Raises `UserError` if there are none."""
    flatten_space(part)
    leaves: dict[str, Any] = {leaf_name(keys): leaf for keys, leaf in walk_space(part, (key,))}
    if not any(np.prod(stored_shape(leaf)) for leaf in leaves.values()):
        raise UserError(f"{key!r} is {describe_space(part)}: a goal needs at least one number")
    return leaves


def _bounds(leaves: Mapping[str, Leaf]) -> tuple[Float64[np.ndarray, "goal"], Float64[np.ndarray, "goal"]]:
    """Return the smallest and largest values of the numbers of a goal; infinity where they have no bounds."""
    low, high = [], []
    for leaf in leaves.values():
        start = np.ravel(_start_of(leaf)).astype(np.float64)
        match leaf:
            case spaces.Box():
                low.append(np.where(is_unbounded(leaf.low), -np.inf, leaf.low.astype(np.float64)).ravel())
                high.append(np.where(is_unbounded(leaf.high), np.inf, leaf.high.astype(np.float64)).ravel())
                continue
            case spaces.Discrete():
                count = np.array([leaf.n], np.float64)
            case spaces.MultiDiscrete():
                count = leaf.nvec.ravel().astype(np.float64)
            case spaces.MultiBinary():
                count = np.full(int(np.prod(leaf.shape)), 2.0)
            case spaces.Text():
                count = np.full(leaf.max_length, float(vocabulary_size(leaf)))
        low.append(np.broadcast_to(start, count.shape))
        high.append(start + count - 1.0)
    return np.concatenate(low), np.concatenate(high)


def _start_of(leaf: Leaf) -> Any:
    """Return what was subtracted from the categories of a leaf when it was stored."""
    if isinstance(leaf, spaces.Discrete):
        return int(leaf.start)
    return leaf.start.ravel() if isinstance(leaf, spaces.MultiDiscrete) else 0


def _is_integer(leaf: Leaf) -> bool:
    return not isinstance(leaf, spaces.Box) or not np.issubdtype(leaf.dtype, np.floating)


def _instruction_box(
    low: Float64[np.ndarray, "max_goals goal"], high: Float64[np.ndarray, "max_goals goal"], *, are_tokens: bool
) -> spaces.Box:
    if are_tokens:
        return spaces.Box(low.astype(np.int64), high.astype(np.int64), low.shape, np.int64)
    low, high = np.where(is_unbounded(low), -np.inf, low), np.where(is_unbounded(high), np.inf, high)
    return spaces.Box(low.astype(np.float32), high.astype(np.float32), low.shape, np.float32)


def _check_sizes(achieved: int, desired: int) -> None:
    if achieved != desired:
        raise UserError(
            f"goals have {achieved} numbers in {ACHIEVED_KEY!r} and {desired} in {DESIRED_KEY!r}: make them equal"
        )


def _to_float32(key: str, goals: Shaped[np.ndarray, "E *goal"], tolerance: float) -> Float32[np.ndarray, "E *goal"]:
    """Convert goals. Raises `UserError` if that changes one by more than half the tolerance."""
    rounded = goals.astype(np.float32, copy=False)
    if goals.dtype == np.float64 and tolerance:
        changes = np.abs(rounded - goals)
        if goals.size and changes.max() > tolerance / 2:
            index = tuple(int(each) for each in np.argwhere(changes == changes.max())[0])
            raise UserError(
                f"environment {index[0]} has the number {float(goals[index]):.12g} in {key!r}, which float32 rounds "
                f"by {changes.max():.2g}, more than half the tolerance of {tolerance:.2g}: count from a nearer number"
            )
    return rounded


def _check_goals(
    key: str,
    goals: Shaped[np.ndarray, "E ..."],
    is_valid: Shaped[np.ndarray, "E ..."],
    start: Float64[np.ndarray, "goal"] | float = 0.0,
) -> None:
    if is_valid.all():
        return
    index = tuple(int(each) for each in np.argwhere(~is_valid)[0])
    number = float((goals + start)[index])
    raise UserError(
        f"environment {index[0]} has the number {number:.10g} in {key!r}, which is beyond the bounds of its space, or "
        "too large to be exact in float32: widen the bounds, or count from a nearer number"
    )
