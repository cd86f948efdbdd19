"""Actions as the policy gives them (from 0, or in [-1, 1]) and as an environment takes them."""

import numpy as np
from gymnasium import spaces
from jaxtyping import Shaped


def policy_action_space(space: spaces.Discrete | spaces.Box) -> spaces.Discrete | spaces.Box:
    """The space that the policy sees: integers from 0, or a float32 Box in [-1, 1]."""
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(int(space.n))
    return spaces.Box(-1.0, 1.0, space.shape, np.float32)


def native_action(
    space: spaces.Discrete | spaces.Box, action: Shaped[np.ndarray, "E ..."]
) -> Shaped[np.ndarray, "E ..."]:
    """Policy actions of E environments in the environment's own `space`.

    Discrete: shifted by its start. Box: [-1, 1] is mapped linearly onto [low, high], and what lies outside is clipped.
    """
    if isinstance(space, spaces.Discrete):
        return action.astype(np.int64) + int(space.start)
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    scaled = np.clip(low + (action.astype(np.float64) + 1.0) / 2.0 * (high - low), low, high)
    return (np.rint(scaled) if np.issubdtype(space.dtype, np.integer) else scaled).astype(space.dtype)
