"""Stored observations and actions in the environment's own spaces, and stored actions out of them."""

from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Float32, Shaped

from yamame.records.action_spaces import ACTION_MASK_KEY, NativeActionSpace
from yamame.records.spaces import DEFAULT_KEY
from yamame.records.trajectory import Observation


def to_env_observation(space: spaces.Space[Any], leaves: Observation, action_mask_key: str, path: tuple[str, ...] = ()) -> Any:
    """What `flatten_observation` made the leaves of, in the nesting of `space`; time stays first."""
    if isinstance(space, spaces.Dict):
        return {
            str(name): to_env_observation(part, leaves, action_mask_key, (*path, str(name)))
            for name, part in space.spaces.items()
        }
    if isinstance(space, spaces.Tuple):
        return tuple(
            to_env_observation(part, leaves, action_mask_key, (*path, str(index))) for index, part in enumerate(space.spaces)
        )
    name = "/".join(path) or DEFAULT_KEY
    if name == action_mask_key and name not in leaves:
        name = ACTION_MASK_KEY
    return _native_leaf(space, leaves[name])


def from_env_action(space: NativeActionSpace, action: Shaped[np.ndarray, "T ..."]) -> Shaped[np.ndarray, "T ..."]:
    """The inverse of `to_env_action`; of a Box, up to rounding, and clipped to its bounds."""
    if isinstance(space, spaces.Discrete):
        return action.astype(np.int64) - int(space.start)
    if isinstance(space, spaces.Box):
        return _scaled(space, action.reshape(len(action), *space.shape))
    start = space.start if isinstance(space, spaces.MultiDiscrete) else 0
    return (action.astype(np.int64) - start).reshape(len(action), -1)


def _scaled(space: spaces.Box, action: Shaped[np.ndarray, "T ..."]) -> Float32[np.ndarray, "T A"]:
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    width = np.where(high > low, high - low, 1.0)
    scaled = (action.astype(np.float64) - low) / width * 2.0 - 1.0
    return np.clip(scaled, -1.0, 1.0).astype(np.float32).reshape(len(action), -1)


def _native_leaf(leaf: spaces.Space[Any], stored: Shaped[np.ndarray, "slots ..."]) -> Any:
    match leaf:
        case spaces.Text():
            return [_text(leaf, row) for row in stored]
        case spaces.Discrete():
            return stored + int(leaf.start)
        case spaces.MultiDiscrete():
            return (stored + leaf.start).astype(leaf.dtype)
    return stored.reshape(len(stored), *(leaf.shape or ())).astype(leaf.dtype)


def _text(leaf: spaces.Text, tokens: Shaped[np.ndarray, "L"]) -> str:
    characters = sorted(leaf.characters)
    return "".join(characters[token - 1] for token in tokens if token)
