"""Conversion and validation of what environments return: finite numbers in the shapes of their spaces."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array
from jaxtyping import Bool, Float32, Int64, Shaped

from yamame.data.spaces import Leaf, flatten_observation, stored_shape
from yamame.envs.vector.faults import InvalidEnvOutputError

_REMEDY = "fix the environment or clean its output with a wrapper"


def stack_observations(space: spaces.Space[Any], observations: Sequence[Any]) -> dict[str, np.ndarray]:
    """Return leaves `[len(observations), ...]` in new memory.

    Raises:
        InvalidEnvOutputError: If an observation does not match the space.
    """
    batch = create_empty_array(space, len(observations), np.zeros)
    try:
        batch = concatenate(space, observations, batch)
    except (ValueError, TypeError, KeyError, IndexError) as error:
        message = f"an observation does not match the environment's space {space}: {error}"
        raise InvalidEnvOutputError("shape_mismatch", message) from error
    return flatten_observation(space, batch)


def stack_rewards(rewards: Sequence[Any]) -> Float32[np.ndarray, "E"]:
    """Return the rewards as an array. Raises `InvalidEnvOutputError` if one of them is not a number."""
    try:
        reward = np.array(rewards, np.float32)
    except (ValueError, TypeError) as error:
        raise InvalidEnvOutputError("shape_mismatch", f"a reward is not a number: {error}") from error
    if reward.ndim != 1:
        raise InvalidEnvOutputError("shape_mismatch", f"a reward has shape {reward.shape[1:]}: make it one number")
    return reward


def validate_finite(
    observation: Mapping[str, Shaped[np.ndarray, "E ..."]],
    reward: Float32[np.ndarray, "E"] | None,
    step: Int64[np.ndarray, "E"],
    first_row: int = 0,
) -> None:
    """Raise if an observation or reward is not finite.

    Args:
        observation: Leaves of the observation.
        reward: Rewards; None: not checked.
        step: Step of each environment's episode, for the message.
        first_row: Index of the first of these environments, for the message.

    Raises:
        InvalidEnvOutputError: Names the first such environment, the leaf and the step of its episode.
    """
    for name, leaf in observation.items():
        if leaf.dtype == np.float32 and not np.isfinite(leaf).all():
            _raise_nonfinite(leaf, f"in observation '{name}'", step, first_row)
    if reward is not None and not np.isfinite(reward).all():
        _raise_nonfinite(reward, "as reward", step, first_row)


def nonfinite_rows(
    observation: Mapping[str, Shaped[np.ndarray, "E ..."]], reward: Float32[np.ndarray, "E"]
) -> Bool[np.ndarray, "E"]:
    """Return the environments for which `validate_finite` raises."""
    arrays = [reward, *(leaf for leaf in observation.values() if leaf.dtype == np.float32)]
    return ~np.logical_and.reduce([_finite_rows(array) for array in arrays])


def validate_shapes(observation: Mapping[str, Shaped[np.ndarray, "E ..."]], leaves: Mapping[str, Leaf]) -> None:
    """Raise `InvalidEnvOutputError` if a leaf does not have the shape that its space declares."""
    for name, leaf in leaves.items():
        found, declared = observation[name].shape[1:], stored_shape(leaf)
        if found != declared:
            message = f"observation '{name}' has shape {found}, expected {declared} by its space: {_REMEDY}"
            raise InvalidEnvOutputError("shape_mismatch", message)


def _raise_nonfinite(
    array: Shaped[np.ndarray, "E ..."], where: str, step: Int64[np.ndarray, "E"], first_row: int
) -> None:
    row = int(np.argmin(_finite_rows(array)))
    what = "NaN" if np.isnan(array[row]).any() else "infinity"
    message = f"environment {first_row + row} returned {what} {where} at step {step[row]} of its episode: {_REMEDY}"
    raise InvalidEnvOutputError("nonfinite", message)


def _finite_rows(array: Shaped[np.ndarray, "E ..."]) -> Bool[np.ndarray, "E"]:
    return np.isfinite(array).reshape(len(array), -1).all(axis=1)
