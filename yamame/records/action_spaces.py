"""The action spaces that an environment may have, and the three kinds that they are for the policy."""

from itertools import accumulate
from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Bool, Shaped

from yamame.records.errors import UserError

NativeActionSpace = spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary | spaces.Box
"""What an environment may declare; bounds of a Box are finite."""

PolicyActionSpace = spaces.Discrete | spaces.MultiDiscrete | spaces.Box
"""What the policy sees: integers from 0, one or `[C]` of them, or a flat float32 Box in [-1, 1]."""

ACTION_MASK_KEY = "action_mask"
"""The observation leaf that is no input of the network but says what the policy may do: bool `[A]`, A as in
`action_size`. There is none where everything is always allowed."""


def check_action_space(space: spaces.Space[Any]) -> NativeActionSpace:
    """The space itself if it is one that we support; otherwise `UserError`."""
    if not isinstance(space, NativeActionSpace):
        raise UserError(
            f"action space {type(space).__name__} is not supported: "
            "wrap the environment so that it takes Discrete, MultiDiscrete, MultiBinary or Box"
        )
    if isinstance(space, spaces.Box) and not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise UserError(
            "action space Box has infinite bounds: wrap the environment with gymnasium.wrappers.RescaleAction"
        )
    if 0 in action_shape(space):
        raise UserError(f"action space {type(space).__name__} of shape {space.shape} leaves nothing to choose")
    return space


def num_choices(space: spaces.Space[Any]) -> tuple[int, ...]:
    """Number of choices of each component, in the order of the flat action; none for a Box, one for a Discrete."""
    match space:
        case spaces.Discrete():
            return (int(space.n),)
        case spaces.MultiDiscrete():
            return tuple(int(n) for n in space.nvec.flatten())
        case spaces.MultiBinary():
            return (2,) * int(np.prod(space.shape))
    return ()


def action_shape(space: NativeActionSpace) -> tuple[int, ...]:
    """Shape of one action."""
    return space.shape or ()


def action_size(space: PolicyActionSpace) -> int:
    """A: the choices of all components side by side, or the dimensions of a Box."""
    return sum(num_choices(space)) or int(np.prod(action_shape(space)))


def split_mask(mask_EA: Bool[np.ndarray, "E A"], sizes: tuple[int, ...]) -> list[Bool[np.ndarray, "E _"]]:
    """The part of a mask that is about each component of so many choices."""
    return np.split(mask_EA, list(accumulate(sizes))[:-1], axis=1)


def has_allowed_action(mask_EA: Bool[np.ndarray, "E A"], sizes: tuple[int, ...]) -> Bool[np.ndarray, "E"]:
    """Where a mask allows at least one choice of every component."""
    return np.logical_and.reduce([part.any(axis=1) for part in split_mask(mask_EA, sizes)])


def zero_action(space: PolicyActionSpace, num_envs: int) -> Shaped[np.ndarray, "E ..."]:
    """The previous action of a trial's first step: zeros, in the form of the policy's actions."""
    return np.zeros((num_envs, *action_shape(space)), np.float32 if isinstance(space, spaces.Box) else np.int64)
