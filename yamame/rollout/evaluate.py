"""`evaluate`: how good a policy is, without exploration noise and without favouring short trials."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64

from yamame.records.errors import UserError
from yamame.records.interfaces import ActingPolicy, TrialEnvironments
from yamame.rollout.collect import Collector
from yamame.rollout.exploration import Explorer, NoExploration
from yamame.rollout.statistics import TrialSummary, mean_per_attempt, success_rate, summarize

BOOTSTRAP_RESAMPLES = 9999
BOOTSTRAP_NUMBERS_AT_ONCE = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Evaluation:
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
    success_rate: float | None
    """Part of the trials in which any transition announced success; None where the task announces none."""
    trials: int

    def to_json(self) -> dict[str, Any]:
        """The keys of `yamame eval --json` that an evaluation knows."""
        return {
            "return_mean": self.return_mean,
            "return_ci95": list(self.return_ci95),
            "return_per_attempt": self.return_per_attempt,
            "success_rate": self.success_rate,
            "trials": self.trials,
        }


def evaluate(
    policy: ActingPolicy,
    environments: TrialEnvironments,
    *,
    trials: int,
    deterministic: bool,
    confidence_seed: int = 0,
) -> Evaluation:
    """Let `policy` act until exactly `trials` trials are counted; no exploration noise.

    Each environment owes a quota of `trials / E` trials (the first ones one more where that is no whole number), set
    beforehand, so that trials that end early are not counted more often; an environment that has met its quota is
    stepped on, uncounted. Begins with a reset everywhere. `policy` must not serve trials in flight elsewhere: its
    memory is overwritten. Raises `UserError` if `trials` is not positive.
    """
    if trials < 1:
        raise UserError(f"cannot evaluate over {trials} trials: give at least 1")
    num_envs = environments.num_envs
    quotas = [trials // num_envs + (env < trials % num_envs) for env in range(num_envs)]
    explorer = Explorer(NoExploration(), environments.action_space, num_envs, np.random.default_rng(0))
    collector = Collector(environments, "", explorer)
    counted: list[list[TrialSummary]] = [[] for _ in range(num_envs)]
    missing = trials
    while missing:
        for env, trajectory in collector.step(policy, deterministic=deterministic):
            if len(counted[env]) < quotas[env]:
                counted[env].append(summarize(trajectory))
                missing -= 1
    return _evaluation([trial for of_env in counted for trial in of_env], confidence_seed)


def _evaluation(trials: list[TrialSummary], confidence_seed: int) -> Evaluation:
    returns = np.array([trial.total_return for trial in trials])
    return Evaluation(
        returns=returns,
        return_mean=float(returns.mean()),
        return_ci95=_mean_ci95(returns, confidence_seed),
        return_per_attempt=mean_per_attempt([trial.return_per_attempt for trial in trials], begun_by=0.5),
        success_rate=success_rate(trials),
        trials=len(trials),
    )


def _mean_ci95(returns: Float64[np.ndarray, "trials"], seed: int) -> tuple[float, float]:
    """Percentile bootstrap: unlike BCa it is defined for every sample, however few or lopsided the returns."""
    if np.ptp(returns) == 0.0:
        return float(returns[0]), float(returns[0])
    rng, trials = np.random.default_rng(seed), len(returns)
    at_once = max(1, BOOTSTRAP_NUMBERS_AT_ONCE // trials)
    means = np.empty(BOOTSTRAP_RESAMPLES)
    for begin in range(0, BOOTSTRAP_RESAMPLES, at_once):
        part = means[begin : begin + at_once]
        part[:] = returns[rng.integers(trials, size=(len(part), trials))].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)
