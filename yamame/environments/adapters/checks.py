"""What no environment may hand on: NaN, infinity, or an observation that is not of its space."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float32, Int64, Shaped

from yamame.records.errors import UserError
from yamame.records.spaces import Leaf, stored_shape

_REMEDY = "fix the environment or clean its output with a wrapper"


def check_finite(
    observation: Mapping[str, Shaped[np.ndarray, "E ..."]],
    reward: Float32[np.ndarray, "E"] | None,
    step: Int64[np.ndarray, "E"],
    first_row: int = 0,
) -> None:
    """Raise `UserError` at the first number that is not finite, naming environment, leaf and step of its episode.

    `first_row` is the number of the first of these environments.
    """
    for name, leaf in observation.items():
        if leaf.dtype == np.float32 and not np.isfinite(leaf).all():
            _refuse(leaf, f"in observation '{name}'", step, first_row)
    if reward is not None and not np.isfinite(reward).all():
        _refuse(reward, "as reward", step, first_row)


def check_shapes(observation: Mapping[str, Shaped[np.ndarray, "E ..."]], leaves: Mapping[str, Leaf]) -> None:
    """Raise `UserError` where a leaf does not have the shape that its space declares."""
    for name, leaf in leaves.items():
        found, declared = observation[name].shape[1:], stored_shape(leaf)
        if found != declared:
            raise UserError(f"observation '{name}' has shape {found}, its space says {declared}: {_REMEDY}")


def _refuse(values: Shaped[np.ndarray, "E ..."], where: str, step: Int64[np.ndarray, "E"], first_row: int) -> None:
    finite = np.isfinite(values).reshape(len(values), -1).all(axis=1)
    row = int(np.flatnonzero(~finite)[0])
    what = "NaN" if np.isnan(values[row]).any() else "infinity"
    number = first_row + row
    raise UserError(f"environment {number} returned {what} {where} at step {step[row]} of its episode: {_REMEDY}")
