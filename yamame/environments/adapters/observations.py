"""Observations of single environments -> one batch of leaves."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array

from yamame.records.errors import UserError
from yamame.records.spaces import flatten_observation


def stack_observations(space: spaces.Space[Any], observations: Sequence[Any]) -> dict[str, np.ndarray]:
    """Leaves `[len(observations), ...]` in fresh memory; `UserError` where an observation is not of the space."""
    batch = create_empty_array(space, len(observations), np.zeros)
    try:
        batch = concatenate(space, observations, batch)
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise UserError(f"an observation does not fit the environment's space {space}: {error}") from error
    return flatten_observation(space, batch)
