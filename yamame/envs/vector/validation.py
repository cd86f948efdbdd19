"""What no environment may hand on: NaN, infinity, or an observation or reward that is not of its space."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Bool, Float32, Int64, Shaped

from yamame.data.spaces import Leaf, stored_shape
from yamame.envs.vector.restarting import InvalidEnvOutputError

_REMEDY = "fix the environment or clean its output with a wrapper"


def validate_finite(
    observation: Mapping[str, Shaped[np.ndarray, "E ..."]],
    reward: Float32[np.ndarray, "E"] | None,
    step: Int64[np.ndarray, "E"],
    first_row: int = 0,
) -> None:
    """Raise `InvalidEnvOutputError` at the first number that is not finite, naming environment, leaf and step of its episode.

    `first_row` is the number of the first of these environments.
    """
    for name, leaf in observation.items():
        if leaf.dtype == np.float32 and not np.isfinite(leaf).all():
            _refuse(leaf, f"in observation '{name}'", step, first_row)
    if reward is not None and not np.isfinite(reward).all():
        _refuse(reward, "as reward", step, first_row)


def nonfinite_rows(
    observation: Mapping[str, Shaped[np.ndarray, "E ..."]], reward: Float32[np.ndarray, "E"]
) -> Bool[np.ndarray, "E"]:
    """The environments that `validate_finite` would refuse."""
    numbers = [reward, *(leaf for leaf in observation.values() if leaf.dtype == np.float32)]
    return ~np.logical_and.reduce([_finite_rows(values) for values in numbers])


def validate_shapes(observation: Mapping[str, Shaped[np.ndarray, "E ..."]], leaves: Mapping[str, Leaf]) -> None:
    """Raise `InvalidEnvOutputError` where a leaf does not have the shape that its space declares."""
    for name, leaf in leaves.items():
        found, declared = observation[name].shape[1:], stored_shape(leaf)
        if found != declared:
            message = f"observation '{name}' has shape {found}, its space says {declared}: {_REMEDY}"
            raise InvalidEnvOutputError("shape_mismatch", message)


def _refuse(values: Shaped[np.ndarray, "E ..."], where: str, step: Int64[np.ndarray, "E"], first_row: int) -> None:
    row = int(np.argmin(_finite_rows(values)))
    what = "NaN" if np.isnan(values[row]).any() else "infinity"
    message = f"environment {first_row + row} returned {what} {where} at step {step[row]} of its episode: {_REMEDY}"
    raise InvalidEnvOutputError("nonfinite", message)


def _finite_rows(values: Shaped[np.ndarray, "E ..."]) -> Bool[np.ndarray, "E"]:
    return np.isfinite(values).reshape(len(values), -1).all(axis=1)
