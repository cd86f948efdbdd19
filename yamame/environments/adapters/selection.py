"""Environments of whose observations only some parts are looked at."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.vector import VectorEnv, VectorWrapper

from yamame.records.spaces import leaf_names, select_leaves


def filter_env_fn(make: Callable[[], Any], keys: Sequence[str], drop_keys: Sequence[str], always: str) -> Callable[[], Any]:
    """`make`, of whose environments only the parts in `keys` (all if it is empty) and not in `drop_keys` are seen.

    What is called `always` is seen too where it is there and not in `drop_keys`. What the function makes raises
    `UserError` for unknown names.
    """
    if not keys and not drop_keys:
        return make
    return partial(_make_selected, make, tuple(keys), tuple(drop_keys), always)


def filter_observations(environment: Any, keys: Sequence[str], drop_keys: Sequence[str], always: str) -> Any:
    """An environment, single or vector, with only these parts in its space: see `selecting`."""
    if not keys and not drop_keys:
        return environment
    if isinstance(environment, VectorEnv):
        return _SelectedVector(environment, _part(environment.single_observation_space, keys, drop_keys, always))
    if isinstance(environment, gymnasium.Env):
        return _Selected(environment, _part(environment.observation_space, keys, drop_keys, always))
    return environment


class _Selected(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The space says what is looked at; observations pass as they are, for nothing looks at the rest of them."""

    def __init__(self, environment: gymnasium.Env[Any, Any], space: spaces.Space[Any]) -> None:
        super().__init__(environment)
        self.observation_space = space


class _SelectedVector(VectorWrapper):
    def __init__(self, environments: VectorEnv, space: spaces.Space[Any]) -> None:
        super().__init__(environments)
        self.single_observation_space = space


def _make_selected(make: Callable[[], Any], keys: tuple[str, ...], drop_keys: tuple[str, ...], always: str) -> Any:
    return filter_observations(make(), keys, drop_keys, always)


def _part(space: spaces.Space[Any], keys: Sequence[str], drop_keys: Sequence[str], always: str) -> spaces.Space[Any]:
    kept = [*keys, always] if keys and always in leaf_names(space) else keys
    return select_leaves(space, kept, drop_keys)
