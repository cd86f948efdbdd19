"""Wrappers that keep some leaves of the observation, around Gymnasium environments."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.vector import VectorEnv, VectorWrapper

from yamame.data.spaces import leaf_names, select_leaves


def filter_env_fn(
    env_fn: Callable[[], Any], keys: Sequence[str], drop_keys: Sequence[str], action_mask_key: str
) -> Callable[[], Any]:
    """Return `env_fn` with its environments filtered by `filter_observations`, which may raise at each call."""
    if not keys and not drop_keys:
        return env_fn
    return partial(_make_filtered, env_fn, tuple(keys), tuple(drop_keys), action_mask_key)


def filter_observations(env: Any, keys: Sequence[str], drop_keys: Sequence[str], action_mask_key: str) -> Any:
    """Return a single or vector environment whose observation space has only some leaves.

    Args:
        env: The environment. Returned unchanged if it is not one of Gymnasium's, or if nothing is filtered.
        keys: Leaves to keep; empty: all.
        drop_keys: Leaves to drop.
        action_mask_key: Leaf that is kept even if `keys` does not name it.

    Raises:
        UserError: If a name is unknown.
    """
    if not keys and not drop_keys:
        return env
    if isinstance(env, VectorEnv):
        return _FilteredVectorEnv(env, _filter(env.single_observation_space, keys, drop_keys, action_mask_key))
    if isinstance(env, gymnasium.Env):
        return _FilteredEnv(env, _filter(env.observation_space, keys, drop_keys, action_mask_key))
    return env


class _FilteredEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Changes the space only: observations pass unchanged, and leaves outside the space are never read."""

    def __init__(self, env: gymnasium.Env[Any, Any], space: spaces.Space[Any]) -> None:
        super().__init__(env)
        self.observation_space = space


class _FilteredVectorEnv(VectorWrapper):
    def __init__(self, env: VectorEnv, space: spaces.Space[Any]) -> None:
        super().__init__(env)
        self.single_observation_space = space


def _make_filtered(
    env_fn: Callable[[], Any], keys: tuple[str, ...], drop_keys: tuple[str, ...], action_mask_key: str
) -> Any:
    return filter_observations(env_fn(), keys, drop_keys, action_mask_key)


def _filter(
    space: spaces.Space[Any], keys: Sequence[str], drop_keys: Sequence[str], action_mask_key: str
) -> spaces.Space[Any]:
    kept = [*keys, action_mask_key] if keys and action_mask_key in leaf_names(space) else keys
    return select_leaves(space, kept, drop_keys)
