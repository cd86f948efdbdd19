"""Observations that an export samples to trace and compare a policy."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from yamame.data.observations import ObservationParser
from yamame.tools.export.graph import _narrowed

LARGEST = float(np.finfo(np.float32).max)
INT64 = np.iinfo(np.int64)
BOUNDS = [
    (-LARGEST, LARGEST, np.float32),
    (-1e300, 1e300, np.float64),
    (-5.0, LARGEST, np.float32),
    (-np.inf, LARGEST, np.float32),
    (INT64.min, INT64.max, np.int64),
    (0, INT64.max, np.int64),
    (1 << 40, 1 << 61, np.int64),
    (0, np.iinfo(np.uint64).max, np.uint64),
    (-3, 7, np.int8),
]


@pytest.mark.parametrize(("low", "high", "dtype"), BOUNDS, ids=str)
def test_examples_of_wide_boxes_are_moderate_and_in_the_space(low: float, high: float, dtype: Any) -> None:
    space = spaces.Box(low, high, (3,), dtype)
    narrowed = _narrowed(space)
    narrowed.seed(0)
    closest = min(max(low, 0), high)
    for _ in range(20):
        sampled = narrowed.sample()
        assert space.contains(sampled)
        assert all(abs(int(number) - int(closest)) <= 2_010 for number in sampled)
        ObservationParser(space).split(sampled[None])


def test_boxes_of_usual_bounds_are_sampled_as_they_are() -> None:
    for space in (spaces.Box(0, 255, (2, 2), np.uint8), spaces.Box(-1.0, 1.0, (2,)), spaces.Box(-np.inf, np.inf, (2,))):
        assert _narrowed(space) == space
    assert _narrowed(mask := spaces.Box(np.array(False), np.array(True), dtype=np.bool_)) is mask
