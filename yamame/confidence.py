"""95 % confidence intervals over trials: by bootstrap for means, by Wilson's formula for rates."""

import numpy as np
from jaxtyping import Float64, Int

RESAMPLES = 9999
NUMBERS_AT_ONCE = 1_000_000
NORMAL_QUANTILE = 1.959963984540054
"""Of 97.5 %."""


def bootstrap_ci95(
    values: Float64[np.ndarray, "trials columns"], seed: int = 0
) -> tuple[Float64[np.ndarray, "columns"], Float64[np.ndarray, "columns"]]:
    """Lower and upper ends of the 95 % bootstrap interval (percentiles) of each column's mean; NaN is no value.

    Whole trials are drawn again, the same ones in every column. Unlike BCa the percentile interval is defined for
    every sample, however few or lopsided its values; values that are all equal have an interval of no width. A column
    without values has NaN for its ends.
    """
    known = ~np.isnan(values)
    numbers, trials = np.where(known, values, 0.0), len(values)
    rng = np.random.default_rng(seed)
    means = np.empty((RESAMPLES, values.shape[1]))
    at_once = max(1, NUMBERS_AT_ONCE // trials)
    for begin in range(0, RESAMPLES, at_once):
        part = means[begin : begin + at_once]
        times = _times_drawn(rng.integers(trials, size=(len(part), trials)))
        with np.errstate(invalid="ignore"):  # no value of a column may have been drawn at all
            part[:] = (times @ numbers) / (times @ known.astype(np.float64))
    low, high = np.full((2, values.shape[1]), np.nan)
    for column, drawn in enumerate(means.T):
        of_column = values[known[:, column], column]
        if len(of_column):
            ends = np.nanpercentile(drawn, [2.5, 97.5]) if np.ptp(of_column) else of_column[[0, 0]]
            low[column], high[column] = ends
    return low, high


def wilson_ci95(
    successes: Float64[np.ndarray, "columns"], trials: Float64[np.ndarray, "columns"]
) -> tuple[Float64[np.ndarray, "columns"], Float64[np.ndarray, "columns"]]:
    """Wilson's score interval of success rates: of some width even where all trials ended alike."""
    z2 = NORMAL_QUANTILE**2
    rate = successes / trials
    middle = (rate + z2 / (2 * trials)) / (1 + z2 / trials)
    half = NORMAL_QUANTILE * np.sqrt(rate * (1 - rate) / trials + z2 / (4 * trials**2)) / (1 + z2 / trials)
    return np.maximum(middle - half, 0.0), np.minimum(middle + half, 1.0)


def _times_drawn(drawn: Int[np.ndarray, "resamples trials"]) -> Float64[np.ndarray, "resamples trials"]:
    """How often each resample drew each trial."""
    resamples, trials = drawn.shape
    cells = drawn + trials * np.arange(resamples)[:, None]
    return np.bincount(cells.ravel(), minlength=resamples * trials).reshape(resamples, trials).astype(np.float64)
