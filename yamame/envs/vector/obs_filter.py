"""Environments of whose observations only some parts are looked at."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.vector.utils import concatenate, create_empty_array
from jaxtyping import Float32

from yamame.data.spaces import flatten_observation, leaf_names, select_leaves
from yamame.envs.vector.restarting import InvalidEnvOutputError


def filter_env_fn(
    make: Callable[[], Any], keys: Sequence[str], drop_keys: Sequence[str], always: str
) -> Callable[[], Any]:
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


def stack_observations(space: spaces.Space[Any], observations: Sequence[Any]) -> dict[str, np.ndarray]:
    """Leaves `[len(observations), ...]` in fresh memory; `InvalidEnvOutputError` where an observation is not of the space."""
    batch = create_empty_array(space, len(observations), np.zeros)
    try:
        batch = concatenate(space, observations, batch)
    except (ValueError, TypeError, KeyError, IndexError) as error:
        message = f"an observation does not fit the environment's space {space}: {error}"
        raise InvalidEnvOutputError("shape_mismatch", message) from error
    return flatten_observation(space, batch)


def stack_rewards(rewards: Sequence[Any]) -> Float32[np.ndarray, "E"]:
    """One number of each environment; `InvalidEnvOutputError` for anything else."""
    try:
        reward = np.array(rewards, np.float32)
    except (ValueError, TypeError) as error:
        raise InvalidEnvOutputError("shape_mismatch", f"a reward is not a number: {error}") from error
    if reward.ndim != 1:
        raise InvalidEnvOutputError("shape_mismatch", f"a reward has shape {reward.shape[1:]}: make it one number")
    return reward
