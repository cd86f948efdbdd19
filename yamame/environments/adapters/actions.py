"""Actions as the policy gives them (from 0, or in [-1, 1]) and as an environment takes them."""

import numpy as np
from gymnasium import spaces
from jaxtyping import Shaped

from yamame.records.action_spaces import NativeActionSpace, PolicyActionSpace, num_choices


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
