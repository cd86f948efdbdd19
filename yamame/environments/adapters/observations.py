"""Observations and rewards of single environments -> one batch."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array
from jaxtyping import Float32

from yamame.environments.adapters.restart import InvalidEnvOutputError
from yamame.records.spaces import flatten_observation


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
