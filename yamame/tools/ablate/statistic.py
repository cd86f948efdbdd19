"""Means over the seeds of an arm, with 95 % intervals where there are several."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from yamame.confidence import bootstrap_ci95


@dataclass(frozen=True)
class Mean:
    """A figure that every seed has one value of."""

    mean: float
    ci95: tuple[float, float] | None
    """See `mean_over_seeds`."""


def mean_over_seeds(
    values: Float64[np.ndarray, "seeds columns"],
) -> tuple[Float64[np.ndarray, "columns"], Float64[np.ndarray, "2 columns"] | None]:
    """Mean of each column and both ends of its 95 % bootstrap interval; a single seed has none.

    The interval of two or three seeds is their range: more than one resample in forty draws the same one each time.
    """
    return values.mean(axis=0), np.stack(bootstrap_ci95(values)) if len(values) > 1 else None


def mean_of(values: Sequence[float]) -> Mean:
    """The like of a single figure."""
    mean, ends = mean_over_seeds(np.array(values, np.float64)[:, None])
    return Mean(float(mean[0]), None if ends is None else (float(ends[0, 0]), float(ends[1, 0])))
