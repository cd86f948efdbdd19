"""Figures over many environments: mean and interquartile mean, with stratified bootstrap intervals."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

RESAMPLES = 2000
TRIMMED = 0.25
"""The part of all runs that the interquartile mean leaves out at either end."""


@dataclass(frozen=True, kw_only=True)
class Aggregate:
    """What a set of runs reached."""

    environments: int
    runs: int
    mean: float
    """Mean over environments of the mean over their seeds."""
    interquartile_mean: float
    """Mean of the middle half of all runs (Agarwal et al. 2021)."""
    mean_ci95: tuple[float, float] | None
    """95 % intervals, drawing seeds anew within each environment; None where an environment has a single one."""
    interquartile_mean_ci95: tuple[float, float] | None

    def to_json(self) -> dict[str, Any]:
        """Plain lists and numbers."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}


def aggregate(scores: Sequence[Sequence[float]], *, seed: int = 0) -> Aggregate | None:
    """The aggregate of scores by environment and seed; None where there are none."""
    strata = [np.array(of_environment, float) for of_environment in scores]
    if not strata:
        return None
    return Aggregate(
        environments=len(strata),
        runs=sum(map(len, strata)),
        mean=float(_mean(*strata)),
        interquartile_mean=float(_interquartile_mean(*strata)),
        mean_ci95=_ci95(strata, _mean, seed),
        interquartile_mean_ci95=_ci95(strata, _interquartile_mean, seed),
    )


def _mean(*strata: Float[np.ndarray, "*resamples _"], axis: int = -1) -> Any:
    return np.mean([of_environment.mean(axis=axis) for of_environment in strata], axis=0)


def _interquartile_mean(*strata: Float[np.ndarray, "*resamples _"], axis: int = -1) -> Any:
    from scipy import stats

    return stats.trim_mean(np.concatenate(strata, axis=axis), TRIMMED, axis=axis)


def _ci95(strata: Sequence[Float[np.ndarray, "_"]], statistic: Any, seed: int) -> tuple[float, float] | None:
    from scipy import stats

    if min(map(len, strata)) < 2:
        return None
    drawn = stats.bootstrap(
        tuple(strata),
        statistic,
        vectorized=True,
        method="percentile",
        n_resamples=RESAMPLES,
        rng=np.random.default_rng(seed),
    )
    return float(drawn.confidence_interval.low), float(drawn.confidence_interval.high)
