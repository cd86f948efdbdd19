"""95 % confidence intervals over trials (bootstrap for means, Wilson for rates), seeds and environments."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, Int

RESAMPLES = 9999
STRATIFIED_RESAMPLES = 2000
TRIM_FRACTION = 0.25
"""Fraction of runs that the interquartile mean drops at each end."""
MAX_CHUNK_VALUES = 1_000_000
NORMAL_QUANTILE = 1.959963984540054
"""97.5 % quantile of the standard normal distribution."""


def bootstrap_ci95(
    values: Float64[np.ndarray, "trials columns"], seed: int = 0
) -> tuple[Float64[np.ndarray, "columns"], Float64[np.ndarray, "columns"]]:
    """Return the lower and upper bounds of the 95 % bootstrap interval (percentiles) of the mean of each column.

    Rows are resampled, the same ones for all columns. NaN is a missing value; a column without values has NaN bounds.
    Unlike BCa, percentiles are defined for all samples, however small or skewed. Equal values have an interval of zero
    width.
    """
    present = ~np.isnan(values)
    filled, trials = np.where(present, values, 0.0), len(values)
    rng = np.random.default_rng(seed)
    means = np.empty((RESAMPLES, values.shape[1]))
    chunk = max(1, MAX_CHUNK_VALUES // trials)
    for start in range(0, RESAMPLES, chunk):
        part = means[start : start + chunk]
        counts = _resample_counts(rng.integers(trials, size=(len(part), trials)))
        with np.errstate(invalid="ignore"):  # a resample can have no value of a column
            part[:] = (counts @ filled) / (counts @ present.astype(np.float64))
    low, high = np.full((2, values.shape[1]), np.nan)
    for column, resampled in enumerate(means.T):
        sample = values[present[:, column], column]
        if len(sample):
            bounds = np.nanpercentile(resampled, [2.5, 97.5]) if np.ptp(sample) else sample[[0, 0]]
            low[column], high[column] = bounds
    return low, high


def wilson_ci95(
    successes: Float64[np.ndarray, "columns"], trials: Float64[np.ndarray, "columns"]
) -> tuple[Float64[np.ndarray, "columns"], Float64[np.ndarray, "columns"]]:
    """Return the bounds of Wilson's score interval of success rates. Its width is positive even for rates 0 and 1."""
    z2 = NORMAL_QUANTILE**2
    rate = successes / trials
    middle = (rate + z2 / (2 * trials)) / (1 + z2 / trials)
    half = NORMAL_QUANTILE * np.sqrt(rate * (1 - rate) / trials + z2 / (4 * trials**2)) / (1 + z2 / trials)
    return np.maximum(middle - half, 0.0), np.minimum(middle + half, 1.0)


def _resample_counts(indices: Int[np.ndarray, "resamples trials"]) -> Float64[np.ndarray, "resamples trials"]:
    """Return the number of times that each resample contains each trial."""
    resamples, trials = indices.shape
    cells = indices + trials * np.arange(resamples)[:, None]
    return np.bincount(cells.ravel(), minlength=resamples * trials).reshape(resamples, trials).astype(np.float64)


@dataclass(frozen=True)
class Mean:
    """Mean of one value per seed."""

    mean: float
    ci95: tuple[float, float] | None
    """95 % bootstrap interval; None for a single seed. For two or three seeds it is their range."""


def mean_of(values: Sequence[float]) -> Mean:
    """Return the mean over seeds and its interval."""
    mean, ci95 = mean_over_seeds(np.array(values, np.float64)[:, None])
    return Mean(float(mean[0]), None if ci95 is None else (float(ci95[0, 0]), float(ci95[1, 0])))


def mean_over_seeds(
    values: Float64[np.ndarray, "seeds columns"],
) -> tuple[Float64[np.ndarray, "columns"], Float64[np.ndarray, "2 columns"] | None]:
    """Return the mean of each column and the bounds of its 95 % bootstrap interval, None for a single seed.

    The interval of two or three seeds is their range, since more than 1 in 40 resamples consists of a single seed.
    """
    return values.mean(axis=0), np.stack(bootstrap_ci95(values)) if len(values) > 1 else None


@dataclass(frozen=True, kw_only=True)
class Aggregate:
    """Aggregate scores over environments and seeds (Agarwal et al. 2021)."""

    num_envs: int
    num_runs: int
    mean: float
    """Mean over environments of the mean over their seeds."""
    interquartile_mean: float
    """Mean of the middle 50 % of all runs."""
    mean_ci95: tuple[float, float] | None
    """Stratified bootstrap: seeds are resampled within each environment. None if an environment has a single seed."""
    interquartile_mean_ci95: tuple[float, float] | None

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}


def aggregate(scores: Sequence[Sequence[float]], *, seed: int = 0) -> Aggregate | None:
    """Return the aggregate of scores by environment and seed; None without scores."""
    strata = [np.array(of_env, np.float64) for of_env in scores]
    if not strata:
        return None
    return Aggregate(
        num_envs=len(strata),
        num_runs=sum(map(len, strata)),
        mean=float(_mean(*strata)),
        interquartile_mean=float(_interquartile_mean(*strata)),
        mean_ci95=_stratified_ci95(strata, _mean, seed),
        interquartile_mean_ci95=_stratified_ci95(strata, _interquartile_mean, seed),
    )


def _mean(*strata: Float64[np.ndarray, "*resamples _"], axis: int = -1) -> Any:
    return np.mean([of_env.mean(axis=axis) for of_env in strata], axis=0)


def _interquartile_mean(*strata: Float64[np.ndarray, "*resamples _"], axis: int = -1) -> Any:
    from scipy import stats

    return stats.trim_mean(np.concatenate(strata, axis=axis), TRIM_FRACTION, axis=axis)


def _stratified_ci95(
    strata: Sequence[Float64[np.ndarray, "_"]], statistic: Callable[..., Any], seed: int
) -> tuple[float, float] | None:
    from scipy import stats

    if min(map(len, strata)) < 2:
        return None
    interval = stats.bootstrap(
        tuple(strata),
        statistic,
        vectorized=True,
        method="percentile",
        n_resamples=STRATIFIED_RESAMPLES,
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return float(interval.low), float(interval.high)
