"""How close to a goal an environment of another package counts it as reached."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from yamame.data.goals import DESIRED_KEY, TOLERANCE
from yamame.envs.base import EpisodeVectorEnv
from yamame.envs.vector.faults import ENV_ERRORS
from yamame.envs.vector.serial import SerialVectorEnv, call_env_fn
from yamame.envs.wrappers.instruction import is_goal_env
from yamame.errors import UserError

_DISTANCES = (0.0, *(2.0**exponent for exponent in range(-20, 21)))
_BISECTIONS = 30


def resolve_goal_tolerance(tolerance: float | None, envs: EpisodeVectorEnv, env_fn: Callable[[], Any]) -> float | None:
    """Return the tolerance of a config, or that of the environments if it is None: see `find_goal_tolerance`.

    Args:
        tolerance: That of the config.
        envs: Environments that `env_fn` made, not yet reset. They are closed if this raises.
        env_fn: Makes one more environment, if they have goals, the config has no tolerance, and `envs` is not a single
            environment of this process.
    """
    if tolerance is not None or not is_goal_env(envs.observation_space):
        return tolerance
    try:
        if isinstance(envs, SerialVectorEnv) and envs.num_envs == 1:  # only one may be able to exist
            return _tolerance_of(envs.first_env)
        return find_goal_tolerance(env_fn)
    except BaseException:
        envs.close()
        raise


def find_goal_tolerance(env_fn: Callable[[], Any]) -> float | None:
    """Return the largest difference in all numbers of a goal at once that `compute_reward` counts as reached.

    `compute_reward(achieved_goal, desired_goal, info)` is a method of the goal environments of Gymnasium-Robotics;
    without it the result is `TOLERANCE`. None if there is no such difference, because the reward does not fall from one
    value to another at some distance, or because goals are not vectors. Raises `UserError` if the environment raises.
    """
    env = call_env_fn(env_fn)
    try:
        return _tolerance_of(env)
    finally:
        env.close()


def _tolerance_of(env: Any) -> float | None:
    try:
        if not isinstance(env, gymnasium.Env) or not env.has_wrapper_attr("compute_reward"):
            return TOLERANCE
        compute_reward = env.get_wrapper_attr("compute_reward")
        assert isinstance(env.observation_space, spaces.Dict)
        if not isinstance(env.observation_space[DESIRED_KEY], spaces.Box):
            return None
        observation, info = env.reset(seed=0)
        goal = np.asarray(observation[DESIRED_KEY], np.float64)

        def reward_at(distance: float) -> float:
            return float(np.asarray(compute_reward(goal + distance, goal, info)).item())

        return _last_distance_of_reward(reward_at)
    except ENV_ERRORS as error:
        raise UserError(
            f"the tolerance of goals cannot be found by compute_reward, which raised {error!r}: set env.goal_tolerance"
        ) from error


def _last_distance_of_reward(reward_at: Callable[[float], float]) -> float | None:
    """Return the distance at which a reward of two values falls; None for any other reward."""
    rewards = [reward_at(distance) for distance in _DISTANCES]
    num_reached = next((index for index, reward in enumerate(rewards) if reward != rewards[0]), len(rewards))
    if num_reached == len(rewards) or any(reward != rewards[-1] for reward in rewards[num_reached:]):
        return None
    near, far = _DISTANCES[num_reached - 1], _DISTANCES[num_reached]
    for _ in range(_BISECTIONS):
        middle = (near + far) / 2
        near, far = (middle, far) if reward_at(middle) == rewards[0] else (near, middle)
    return near
