"""`evaluate`: how good a policy is, without exploration noise and without favouring short trials."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float64

from yamame.records.errors import UserError
from yamame.records.interfaces import ActingPolicy, TrialVectorEnv
from yamame.rollout.collect import Collector
from yamame.rollout.confidence import bootstrap_ci95, wilson_ci95
from yamame.rollout.exploration import Explorer, NoExploration
from yamame.rollout.faults import FaultToleranceConfig
from yamame.rollout.statistics import TrialSummary, success_rate, summarize_trial

MIN_ATTEMPT_FRACTION = 0.5
"""An attempt counts in the adaptation curves where at least this part of the trials began it."""


@dataclass(frozen=True, kw_only=True)
class EvalResult:
    """Result of an evaluation over a fixed number of trials."""

    returns: Float64[np.ndarray, "trials"]
    """Sum of rewards of each trial: those of environment 0 first, in their order."""
    return_mean: float
    return_ci95: tuple[float, float]
    """95 % bootstrap interval (percentiles) of the mean."""
    return_per_attempt: list[float]
    """Mean return of attempt 1, 2, ... over the trials that began it, up to the last that at least half of them began.

    An attempt that the end of its trial cut short counts with what it had earned.
    """
    return_per_attempt_ci95: list[tuple[float, float]]
    """95 % bootstrap intervals of these means."""
    success_rate: float | None
    """Part of the trials in which any transition announced success; None where the task announces none."""
    success_per_attempt: list[float] | None
    """The like of attempt 1, 2, ..., at most as many as `return_per_attempt` has; None where none is announced."""
    success_per_attempt_ci95: list[tuple[float, float]] | None
    """95 % score intervals of these rates."""
    trials: int

    def to_json(self) -> dict[str, Any]:
        """The keys of `yamame eval --json` that an evaluation knows."""
        return {
            "return_mean": self.return_mean,
            "return_ci95": list(self.return_ci95),
            "return_per_attempt": self.return_per_attempt,
            "return_per_attempt_ci95": _lists(self.return_per_attempt_ci95),
            "success_rate": self.success_rate,
            "success_per_attempt": self.success_per_attempt,
            "success_per_attempt_ci95": _lists(self.success_per_attempt_ci95),
            "trials": self.trials,
        }


def evaluate(
    policy: ActingPolicy,
    environments: TrialVectorEnv,
    *,
    trials: int,
    deterministic: bool,
    confidence_seed: int = 0,
    faults: FaultToleranceConfig | None = None,
) -> EvalResult:
    """Let `policy` act until exactly `trials` trials are counted; no exploration noise.

    Each environment owes a quota of `trials / E` trials (the first ones one more where that is no whole number), set
    beforehand, so that trials that end early are not counted more often; an environment that has met its quota is
    stepped on, uncounted. A trial whose environment failed is replaced by its next one, as long as `faults` allows it.
    Begins with a reset everywhere. `policy` must not serve trials in flight elsewhere: its memory is overwritten.
    Raises `UserError` if `trials` is not positive.
    """
    if trials < 1:
        raise UserError(f"cannot evaluate over {trials} trials: give at least 1")
    num_envs = environments.num_envs
    quotas = [trials // num_envs + (env < trials % num_envs) for env in range(num_envs)]
    explorer = Explorer(NoExploration(), environments.action_space, num_envs, np.random.default_rng(0))
    faults = replace(faults or FaultToleranceConfig(), on_fault="drop")
    collector = Collector(environments, "", explorer, faults)
    counted: list[list[TrialSummary]] = [[] for _ in range(num_envs)]
    missing = trials
    while missing:
        for env, trajectory in collector.step(policy, deterministic=deterministic):
            if len(counted[env]) < quotas[env]:
                counted[env].append(summarize_trial(trajectory))
                missing -= 1
    return _evaluation([trial for of_env in counted for trial in of_env], confidence_seed)


def _evaluation(trials: list[TrialSummary], confidence_seed: int) -> EvalResult:
    returns = np.array([trial.total_return for trial in trials])
    of_attempts = _curve([trial.return_per_attempt for trial in trials])
    low, high = bootstrap_ci95(np.column_stack([returns, of_attempts]), confidence_seed)
    success, success_ci95 = _success_per_attempt(trials, of_attempts.shape[1])
    return EvalResult(
        returns=returns,
        return_mean=float(returns.mean()),
        return_ci95=(float(low[0]), float(high[0])),
        return_per_attempt=np.nanmean(of_attempts, axis=0).tolist(),
        return_per_attempt_ci95=_pairs(low[1:], high[1:]),
        success_rate=success_rate(trials),
        success_per_attempt=success,
        success_per_attempt_ci95=success_ci95,
        trials=len(trials),
    )


def _success_per_attempt(
    trials: list[TrialSummary], attempts: int
) -> tuple[list[float] | None, list[tuple[float, float]] | None]:
    announced = [np.asarray(trial.success_per_attempt, float) for trial in trials if trial.success is not None]
    if not announced:
        return None, None
    begun = _curve(announced)[:, :attempts]
    successes, trials_A = np.nansum(begun, axis=0), np.sum(~np.isnan(begun), axis=0).astype(np.float64)
    return (successes / trials_A).tolist(), _pairs(*wilson_ci95(successes, trials_A))


def _curve(of_trials: Sequence[Sequence[float] | Float64[np.ndarray, "_"]]) -> Float64[np.ndarray, "trials attempts"]:
    """What each trial's attempts gave, NaN where it did not begin one; cut where fewer than `MIN_ATTEMPT_FRACTION` of them did."""
    begun = np.full((len(of_trials), max(map(len, of_trials))), np.nan)
    for row, attempts in zip(begun, of_trials, strict=True):
        row[: len(attempts)] = attempts
    return begun[:, np.mean(~np.isnan(begun), axis=0) >= MIN_ATTEMPT_FRACTION]


def _pairs(low: Float64[np.ndarray, "n"], high: Float64[np.ndarray, "n"]) -> list[tuple[float, float]]:
    return list(zip(low.tolist(), high.tolist(), strict=True))


def _lists(pairs: list[tuple[float, float]] | None) -> list[list[float]] | None:
    return None if pairs is None else [list(pair) for pair in pairs]
