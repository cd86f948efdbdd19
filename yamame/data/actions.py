"""The action spaces that an environment may have, and the three kinds that they are for the policy."""

from itertools import accumulate
from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Bool, Float64, Int64, Shaped

from yamame.errors import UserError

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


def policy_action_space(space: NativeActionSpace) -> PolicyActionSpace:
    """The space that the policy sees: integers from 0, alone or in a row, or a flat float32 Box in [-1, 1].

    MultiBinary is as many choices between 0 and 1; what is nested in the environment's space is flat here.
    """
    match space:
        case spaces.Discrete():
            return spaces.Discrete(int(space.n))
        case spaces.Box():
            return spaces.Box(-1.0, 1.0, (int(np.prod(space.shape)),), np.float32)
    return spaces.MultiDiscrete(list(num_choices(space)))


def to_env_action(space: NativeActionSpace, action: Shaped[np.ndarray, "E ..."]) -> Shaped[np.ndarray, "E ..."]:
    """Policy actions of E environments in the environment's own `space`, in its shape and dtype.

    Discrete and MultiDiscrete: shifted by their start (Discrete: always int64). Box: [-1, 1] is mapped linearly onto
    [low, high], what lies outside is clipped, and what is not floating-point is rounded.
    """
    if isinstance(space, spaces.Discrete):
        return action.astype(np.int64) + int(space.start)
    action = action.reshape(len(action), *space.shape)
    if isinstance(space, spaces.MultiBinary):
        return action.astype(space.dtype)
    if isinstance(space, spaces.MultiDiscrete):
        return (action + space.start).astype(space.dtype)
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    scaled = np.clip(low + (action.astype(np.float64) + 1.0) / 2.0 * (high - low), low, high)
    return (scaled if np.issubdtype(space.dtype, np.floating) else np.rint(scaled)).astype(space.dtype)


def sample_uniform_actions(
    prob_EC: Float64[np.ndarray, "E C"], sizes: tuple[int, ...], mask_EA: Bool[np.ndarray, "E A"] | None
) -> Int64[np.ndarray, "E C"]:
    """The choice of each component that a number in [0, 1) stands for; every component must allow one at least."""
    if mask_EA is None:
        return (prob_EC * np.array(sizes)).astype(np.int64)
    parts = split_mask(mask_EA, sizes)
    return np.stack([_among(chance_E, part) for chance_E, part in zip(prob_EC.T, parts, strict=True)], axis=1)


def _among(chance_E: Float64[np.ndarray, "E"], allowed_EK: Bool[np.ndarray, "E K"]) -> Int64[np.ndarray, "E"]:
    """The k-th allowed choice, k being that part of their number."""
    rank_E = (chance_E * allowed_EK.sum(axis=1)).astype(np.int64)
    return (allowed_EK.cumsum(axis=1) > rank_E[:, None]).argmax(axis=1)
