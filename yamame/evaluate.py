"""Evaluations of a run: a function of weights and seed alone, whatever happened before."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64
from torch import nn

from yamame.algorithms.base import model_device
from yamame.collect.collector import Collector
from yamame.collect.exploration import Explorer, NoExploration
from yamame.collect.faults import FaultToleranceConfig
from yamame.collect.policy import Policy, RandomPolicy
from yamame.collect.statistics import TrialSummary, success_rate, summarize_trial
from yamame.confidence import bootstrap_ci95, wilson_ci95
from yamame.config import RunConfig
from yamame.envs.base import TrialVectorEnv
from yamame.envs.config import EnvConfig
from yamame.errors import UserError
from yamame.metrics import EVAL, EVAL_TRAIN_TASKS

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
    policy: Policy,
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


EVALUATION_SEED = 1_000_000
"""Seed of every evaluation of a run, during training, at its end and by `yamame eval` unless told otherwise.

So environment i of as many always begins with the same task. Its later trials are the same ones too, as far as the
environment draws at random only when it is reset; one that also draws while it is stepped goes on from where it stands.
"""


@dataclass(frozen=True, kw_only=True)
class EvalReport:
    """How good an agent is on what its task says that agents are judged on."""

    test: EvalResult
    """On the test tasks, where the benchmark keeps some apart."""
    train_tasks: EvalResult | None
    """On the tasks that the agent was trained on, where these are others."""

    def to_json(self) -> dict[str, Any]:
        """The keys of `yamame eval --json` that come from acting."""
        return {
            **self.test.to_json(),
            "train_tasks": self.train_tasks.to_json() if self.train_tasks else None,
        }

    def metrics(self) -> dict[str, float]:
        """`eval/...`, and `eval_train_tasks/...` where those are others."""
        metrics = _metrics(EVAL, self.test)
        return metrics | (_metrics(EVAL_TRAIN_TASKS, self.train_tasks) if self.train_tasks else {})


def evaluate_model(config: RunConfig, model: nn.Module, *, trials: int, seed: int = EVALUATION_SEED) -> EvalReport:
    """The agent without exploration noise, on `trials` trials of fresh environments, and as many of training ones."""
    test_tasks = config.env.eval_config()
    evaluation = _evaluate_model(config, test_tasks, model, trials=trials, seed=seed)
    differ = test_tasks != config.env
    training_tasks = _evaluate_model(config, config.env, model, trials=trials, seed=seed) if differ else None
    return EvalReport(test=evaluation, train_tasks=training_tasks)


def evaluate_random_policy(config: RunConfig, *, trials: int, seed: int = EVALUATION_SEED) -> EvalResult:
    """Uniformly random actions on what agents are judged on."""
    env = config.env.eval_config()
    with closing(env.build(_num_envs(config, env, trials), seed)) as environments:
        policy = RandomPolicy(environments.action_space, np.random.default_rng(seed))
        return evaluate(policy, environments, trials=trials, deterministic=False, faults=config.fault_tolerance)


def _evaluate_model(config: RunConfig, env: EnvConfig, model: nn.Module, *, trials: int, seed: int) -> EvalResult:
    num_envs = _num_envs(config, env, trials)
    with closing(env.build(num_envs, seed)) as environments:
        generator = torch.Generator(model_device(model)).manual_seed(seed)
        policy = config.algorithm.build_policy(model, num_envs=num_envs, generator=generator)
        return evaluate(
            policy,
            environments,
            trials=trials,
            deterministic=config.deterministic_actions,
            faults=config.fault_tolerance,
        )


def _num_envs(config: RunConfig, env: EnvConfig, trials: int) -> int:
    return env.required_num_envs or min(trials, config.eval.num_envs)


def _metrics(group: str, evaluation: EvalResult) -> dict[str, float]:
    low, high = evaluation.return_ci95
    metrics = {
        f"{group}/return_mean": evaluation.return_mean,
        f"{group}/return_ci95_low": low,
        f"{group}/return_ci95_high": high,
    }
    return metrics if evaluation.success_rate is None else metrics | {f"{group}/success_rate": evaluation.success_rate}
