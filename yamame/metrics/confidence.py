"""95 % confidence intervals.

Over trials: percentile bootstrap for means, Wilson's score interval for rates. Over seeds: Student's t, since the
bootstrap of three seeds covers the mean in 3 of 4 cases only. Over environments and seeds: Welch's t for the mean,
a stratified bootstrap for the interquartile mean.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, Int

RESAMPLES = 9999
STRATIFIED_RESAMPLES = 2000
MIN_BOOTSTRAP_ENVS = 5
"""Minimum number of environments for the bootstrap of the interquartile mean: with fewer, and three seeds of each, its
intervals cover less than 9 in 10 true values."""
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
    """95 % interval (Student's t); None for a single seed."""


def mean_of(values: Sequence[float], *, is_rate: bool = False) -> Mean:
    """Return the mean over seeds and its interval. The interval of rates is clipped to [0, 1]."""
    if len(values) == 1:
        return Mean(float(values[0]), None)
    column = np.array(values, np.float64)[:, None]
    (low,), (high,) = student_ci95(column)
    if is_rate:
        low, high = max(low, 0.0), min(high, 1.0)
    return Mean(float(column.mean()), (float(low), float(high)))


def student_ci95(
    values: Float64[np.ndarray, "seeds columns"],
) -> tuple[Float64[np.ndarray, "columns"], Float64[np.ndarray, "columns"]]:
    """Return the bounds of Student's t interval of the mean of each column.

    NaN is a missing value. A column with a single value has an interval of zero width.
    """
    from scipy.special import stdtrit

    count = np.sum(~np.isnan(values), axis=0)
    mean = np.nanmean(values, axis=0)
    freedom = np.maximum(count - 1, 1)
    variance = np.nansum((values - mean) ** 2, axis=0) / freedom
    half = stdtrit(freedom, 0.975) * np.sqrt(variance / count)
    return mean - half, mean + half


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
    """95 % interval by Welch's t: only seeds vary. None if an environment has a single seed."""
    interquartile_mean_ci95: tuple[float, float] | None
    """95 % interval by a stratified bootstrap. None if an environment has a single seed, or for fewer environments than
    `MIN_BOOTSTRAP_ENVS`."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}


def aggregate(scores: Sequence[Sequence[float]], *, seed: int = 0) -> Aggregate | None:
    """Return the aggregate of scores by environment and seed; None without scores."""
    strata = [np.array(of_env, np.float64) for of_env in scores]
    if not strata:
        return None
    has_seeds = min(map(len, strata)) > 1
    return Aggregate(
        num_envs=len(strata),
        num_runs=sum(map(len, strata)),
        mean=float(np.mean([of_env.mean() for of_env in strata])),
        interquartile_mean=_interquartile_mean(np.concatenate(strata)).item(),
        mean_ci95=_welch_ci95(strata) if has_seeds else None,
        interquartile_mean_ci95=_bootstrap_iqm_ci95(strata, seed)
        if has_seeds and len(strata) >= MIN_BOOTSTRAP_ENVS
        else None,
    )


def _welch_ci95(strata: Sequence[Float64[np.ndarray, "_"]]) -> tuple[float, float]:
    """Return the t interval of the mean of means, with Satterthwaite's degrees of freedom."""
    from scipy.special import stdtrit

    mean = float(np.mean([of_env.mean() for of_env in strata]))
    variances = np.array([of_env.var(ddof=1) / len(of_env) for of_env in strata])
    if not variances.any():
        return mean, mean
    freedom = variances.sum() ** 2 / np.sum(variances**2 / [len(of_env) - 1 for of_env in strata])
    half = float(stdtrit(freedom, 0.975) * np.sqrt(variances.sum()) / len(strata))
    return mean - half, mean + half


def _interquartile_mean(runs: Float64[np.ndarray, "*resamples runs"]) -> Float64[np.ndarray, "*resamples"]:
    from scipy import stats

    return np.asarray(stats.trim_mean(runs, TRIM_FRACTION, axis=-1))


def _bootstrap_iqm_ci95(strata: Sequence[Float64[np.ndarray, "_"]], seed: int) -> tuple[float, float]:
    """Return percentiles of the interquartile mean, where seeds are resampled within each environment.

    Resamples of n seeds are rescaled about their mean by sqrt(n / (n - 1)) (Rao and Wu 1988): the variance of a mean
    of resampled seeds is smaller than that of seeds by this factor.
    """
    rng = np.random.default_rng(seed)
    resampled = []
    for of_env in strata:
        n = len(of_env)
        resample = of_env[rng.integers(n, size=(STRATIFIED_RESAMPLES, n))]
        resampled.append(of_env.mean() + np.sqrt(n / (n - 1)) * (resample - of_env.mean()))
    low, high = np.percentile(_interquartile_mean(np.concatenate(resampled, axis=1)), [2.5, 97.5])
    return float(low), float(high)
