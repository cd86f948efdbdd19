"""How close to a goal an environment of another package counts it as reached."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from operator import getitem
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from jaxtyping import Shaped

from yamame.data.actions import nest_action
from yamame.data.goals import ACHIEVED_KEY, DESIRED_KEY, TOLERANCE
from yamame.data.observations import integer_bounds
from yamame.data.spaces import Keys, walk_space
from yamame.envs.base import EpisodeVectorEnv
from yamame.envs.vector.construction import call_env_fn
from yamame.envs.vector.faults import ENV_ERRORS
from yamame.envs.vector.serial import SerialVectorEnv
from yamame.envs.wrappers.instruction import is_goal_env, make_trials
from yamame.envs.wrappers.trials import TrialWrapper
from yamame.errors import UserError

_DISTANCES = (0.0, *(2.0**exponent for exponent in range(-20, 21)))
_BISECTIONS = 30
_MAX_STEP = 64
"""Largest difference of integers that is tried."""
_MAX_SINGLE = 64
"""Numbers of a leaf that are changed alone."""
_EXACT = 0.5
"""Tolerance of equal integers."""


def make_goal_trials(
    envs: EpisodeVectorEnv,
    env_fn: Callable[[], Any],
    *,
    tolerance: float | None,
    horizon: int,
    attempts: int | None,
) -> TrialWrapper:
    """Return trials of environments, which reward following an instruction if they have goals.

    Args:
        envs: Environments that `env_fn` made, not yet reset. They are closed if this raises.
        env_fn: Makes one more environment, if they have goals and `envs` is not a single environment of this process.
        tolerance: That of the config; None: see `find_goal_tolerance`.
        horizon: Maximum number of steps of a trial.
        attempts: Number of episodes of a trial; None: as many as fit.
    """
    is_one_goal = False
    try:
        if is_goal_env(envs.observation_space):
            # only one may be able to exist
            own = envs.first_env if isinstance(envs, SerialVectorEnv) and envs.num_envs == 1 else None
            env = call_env_fn(env_fn) if own is None else own
            try:
                single = _single_env(env)
                if tolerance is None and single is None:
                    raise UserError(
                        "the tolerance of goals cannot be found by the compute_reward of environments in other "
                        "processes: set env.goal_tolerance, or pass a function that makes one environment"
                    )
                tolerance = find_goal_tolerance(single) if tolerance is None else tolerance
                is_one_goal = _rewards_one_goal(single)
            finally:
                if own is None:
                    env.close()
        return make_trials(envs, horizon=horizon, attempts=attempts, goal_tolerance=tolerance, is_one_goal=is_one_goal)
    except BaseException:
        envs.close()
        raise


def _single_env(env: Any) -> Any:
    """Return the first of vector environments, or an environment itself; None if the first cannot be reached, but has a
    `compute_reward`."""
    vector = env.unwrapped if isinstance(env, VectorEnv) else None
    if not isinstance(vector, SyncVectorEnv | AsyncVectorEnv):
        return env
    if isinstance(vector, SyncVectorEnv):
        first, goals = vector.envs[0], []
        for space in (first.observation_space, env.single_observation_space):
            parts = space.spaces if isinstance(space, spaces.Dict) else {}
            goals.append([parts.get(key) for key in (ACHIEVED_KEY, DESIRED_KEY)])
        if goals[0] == goals[1]:
            return first
    return None if all(vector.call("has_wrapper_attr", "compute_reward")) else env


def find_goal_tolerance(env: Any) -> float | None:
    """Return the largest difference in all numbers of a goal at once that `compute_reward` counts as reached.

    `compute_reward(achieved_goal, desired_goal, info)` is a method of the goal environments of Gymnasium-Robotics;
    without it the result is `TOLERANCE`. None if there is no such difference: the reward does not fall from one value
    to another at some distance, or not at each change of a category, or goals have no numbers. Raises `UserError` if
    the environment raises.
    """
    try:
        if not _has_compute_reward(env):
            return TOLERANCE
        compute_reward = env.get_wrapper_attr("compute_reward")
        assert isinstance(env.observation_space, spaces.Dict)
        observation, info = env.reset(seed=0)
        return _Goal(
            env.observation_space[DESIRED_KEY], observation[DESIRED_KEY], compute_reward, info
        ).find_tolerance()
    except ENV_ERRORS as error:
        raise UserError(
            f"the tolerance of goals cannot be found by compute_reward, which raised {error!r}: set env.goal_tolerance"
        ) from error


def _rewards_one_goal(env: Any) -> bool:
    """Return whether goals that are Boxes of two dimensions are one goal each: with `compute_reward` they are."""
    if not _has_compute_reward(env):
        return False
    achieved, desired = env.observation_space[ACHIEVED_KEY], env.observation_space[DESIRED_KEY]
    return isinstance(desired, spaces.Box) and len(desired.shape) == 2 and achieved.shape == desired.shape


def _has_compute_reward(env: Any) -> bool:
    return isinstance(env, gymnasium.Env) and env.has_wrapper_attr("compute_reward")


class _Goal:
    """A desired goal, and the rewards of achieved goals that differ from it."""

    def __init__(self, space: spaces.Space[Any], goal: Any, compute_reward: Callable[..., Any], info: Any) -> None:
        self._space, self._goal, self._compute_reward, self._info = space, goal, compute_reward, info
        self._leaves = dict(walk_space(space))
        self._values = {keys: np.asarray(reduce(getitem, keys, goal)) for keys in self._leaves}
        self._floats = [keys for keys in self._leaves if self._is_float(keys)]
        self._integers = [keys for keys in self._leaves if keys not in self._floats]

    def find_tolerance(self) -> float | None:
        """Return the tolerance in all numbers; None if there is none, or the goal has other parts than numbers."""
        if not self._values or any(value.dtype.kind not in "biuf" for value in self._values.values()):
            return None
        if not self._floats:
            return self._find_integer_tolerance()
        tolerance = _last_distance_of_reward(self._reward_at)
        missed = self._reward_at(_DISTANCES[-1])
        if tolerance is None or any(reward != missed for reward in self._rewards_of_floats_alone()):
            return None
        if not self._integers:
            return tolerance
        return min(tolerance, _EXACT) if self._are_all_missed(1, missed) else None

    def _rewards_of_floats_alone(self) -> Iterator[float]:
        """Yield the reward where one number is far from the goal; it must not be that of the goal."""
        for keys in self._floats:
            value = self._values[keys].astype(np.float64)
            for index in map(tuple, np.argwhere(np.isfinite(value))[:_MAX_SINGLE].tolist()):
                changed = value.copy()
                changed[index] += _DISTANCES[-1]
                yield self._reward({keys: changed})

    def _find_integer_tolerance(self) -> float | None:
        rewards: list[float] = []
        for step in range(_MAX_STEP + 1):
            moved = {keys: self._moved(keys, step) for keys in self._integers}
            if step and not any((moved[keys] != self._values[keys]).any() for keys in moved):
                break
            rewards.append(self._reward(moved))
        num_reached = _count_reached(rewards)
        if num_reached is None or not self._are_all_missed(num_reached, rewards[-1]):
            return None
        return num_reached - 1 + _EXACT

    def _are_all_missed(self, step: int, missed: float) -> bool:
        """Return whether a change of any number alone is rewarded as another goal is. Not asked of one integer Box."""
        for keys in self._integers:
            if isinstance(self._leaves[keys], spaces.Box) and len(self._leaves) == 1:
                continue
            value, moved = self._values[keys], self._moved(keys, step)
            for index in map(tuple, np.argwhere(moved != value)[:_MAX_SINGLE].tolist()):
                changed = value.copy()
                changed[index] = moved[index]
                if self._reward({keys: changed}) != missed:
                    return False
        return True

    def _reward_at(self, distance: float) -> float:
        return self._reward({keys: self._values[keys].astype(np.float64) + distance for keys in self._floats})

    def _reward(self, changes: Mapping[Keys, Any]) -> float:
        values = {**self._values, **changes}
        achieved = nest_action(self._space, {keys: np.asarray(value)[()] for keys, value in values.items()})
        return float(np.asarray(self._compute_reward(achieved, self._goal, self._info)).item())

    def _moved(self, keys: Keys, step: int) -> Shaped[np.ndarray, "..."]:
        """Return a leaf of integers, each changed by `step`, up or else down, where it stays in its space."""
        value = self._values[keys]
        low, high = integer_bounds(self._leaves[keys])
        wide = value.astype(np.int64)
        up, down = wide <= high - step, wide >= low + step
        return np.asarray(np.where(up, wide + step, np.where(down, wide - step, wide))).astype(value.dtype)

    def _is_float(self, keys: Keys) -> bool:
        leaf = self._leaves[keys]
        return isinstance(leaf, spaces.Box) and np.issubdtype(leaf.dtype, np.floating)


def _count_reached(rewards: Sequence[float]) -> int | None:
    """Return how many rewards at growing distances are that of the goal.

    None if the others are not all equal and smaller: a larger one rewards to stay away from the goal.
    """
    num_reached = next((index for index, reward in enumerate(rewards) if reward != rewards[0]), len(rewards))
    is_step = num_reached < len(rewards) and all(reward == rewards[-1] for reward in rewards[num_reached:])
    is_step = is_step and rewards[-1] < rewards[0]
    return num_reached if is_step else None


def _last_distance_of_reward(reward_at: Callable[[float], float]) -> float | None:
    """Return the distance at which a reward of two values falls; None for any other reward."""
    reached = reward_at(0.0)
    num_reached = _count_reached([reward_at(distance) for distance in _DISTANCES])
    if num_reached is None:
        return None
    near, far = _DISTANCES[num_reached - 1], _DISTANCES[num_reached]
    for _ in range(_BISECTIONS):
        middle = (near + far) / 2
        near, far = (middle, far) if reward_at(middle) == reached else (near, middle)
    return near
