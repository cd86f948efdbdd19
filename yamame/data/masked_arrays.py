"""Masked arrays of NumPy, whose masked entries have numbers that stand for nothing."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool

_TYPES = frozenset((np.ma.MaskedArray, type(np.ma.masked)))


def find_masked(values: Sequence[Any]) -> int | None:
    """Return the index of the first value that is a masked array with masked entries; None if there is none."""
    if _TYPES.isdisjoint(map(type, values)):
        return None
    return next((index for index, value in enumerate(values) if has_masked(value)), None)


def has_masked(value: Any, rows: Bool[np.ndarray, "E"] | None = None) -> bool:
    """Return whether a value is a masked array with masked entries: in `rows` of its first dimension, if given."""
    if type(value) not in _TYPES:
        return False
    is_masked = np.ma.getmaskarray(value)
    return bool((is_masked if rows is None else is_masked[rows]).any())
