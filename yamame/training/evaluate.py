"""Evaluation of a policy: returns and success rates with confidence intervals, determined by weights and seed."""

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64
from torch import nn

from yamame.algorithms.base import model_device
from yamame.collect.collector import Collector, Policy, RandomPolicy
from yamame.collect.exploration import Explorer, NoExploration
from yamame.collect.faults import RESTARTS, FaultToleranceConfig, print_failed_trials
from yamame.collect.statistics import TrialSummary, success_rate, summarize_trial
from yamame.envs.base import TrialVectorEnv
from yamame.envs.config import EnvConfig
from yamame.envs.vector.faults import (
    ENV_ERRORS,
    fault_from_exception,
    first_reset_error,
    is_recoverable,
    restart_with_retries,
)
from yamame.envs.working_directory import kept_working_directory
from yamame.errors import UserError
from yamame.metrics.confidence import bootstrap_ci95, wilson_ci95
from yamame.metrics.progress import TrialCounter
from yamame.metrics.registry import EVAL, EVAL_TRAIN_TASKS
from yamame.nets.num_threads import kept_num_threads
from yamame.run_config import MAX_TRIALS, RunConfig

MIN_ATTEMPT_FRACTION = 0.5
"""Adaptation curves end at the last attempt that at least this fraction of the trials started."""
EVALUATION_SEED = 1_000_000
"""Default seed of the evaluation after training and of `yamame eval`.

The first task of each environment is the same in every evaluation with the same number of environments; later tasks are
too, unless the environment samples random numbers in `step`.
"""
SELECTION_SEED = 2_000_000
"""Seed of the evaluations during training, which choose the best checkpoint and when to stop. The final result is on
other tasks: of a maximum over many evaluations of the same trials, a part is luck."""
_MAX_SEED = 1 << 63
_WAIT_TRIALS, _WAIT_STEPS = 100, 10_000
"""An evaluation waits for a trial of an environment for the vector steps of 100 longest trials, at least 10,000."""


@dataclass(frozen=True, kw_only=True)
class EvalResult:
    """Result of an evaluation over a fixed number of trials."""

    returns: Float64[np.ndarray, "trials"]
    """Sum of rewards of each trial, ordered by environment, then by time."""
    return_mean: float
    return_ci95: tuple[float, float]
    """95 % bootstrap interval (percentiles) of the mean."""
    return_per_attempt: list[float]
    """Mean return of attempt 1, 2, ... over the trials that started it, up to the last that at least half of the trials
    started. An attempt that the end of its trial truncates is included with its return so far."""
    return_per_attempt_ci95: list[tuple[float, float]]
    """95 % bootstrap intervals of these means."""
    success_rate: float | None
    """Fraction of trials in which a transition signaled success; None if the task has no success signal."""
    success_per_attempt: list[float] | None
    """Success rate of attempt 1, 2, ..., at most as many as in `return_per_attempt`; None like `success_rate`."""
    success_per_attempt_ci95: list[tuple[float, float]] | None
    """95 % Wilson intervals of these rates."""
    trials: int

    def to_json(self) -> dict[str, Any]:
        """Return all fields but `returns` as JSON values: keys of `yamame eval --json`."""
        described: dict[str, Any] = json.loads(json.dumps({key: getattr(self, key) for key in EVAL_KEYS}))
        return described


EVAL_KEYS = tuple(field.name for field in fields(EvalResult) if field.name != "returns")
"""Keys of `EvalResult.to_json`."""


def evaluate_policy(
    policy: Policy,
    envs: TrialVectorEnv,
    *,
    trials: int,
    deterministic: bool,
    confidence_seed: int = 0,
    faults: FaultToleranceConfig | None = None,
) -> EvalResult:
    """Evaluate a policy over exactly `trials` trials without exploration noise.

    Each of the E environments has a fixed quota of `trials / E` trials (rounded up for the first ones), so that short
    trials are not over-represented; later trials of an environment are not counted. A trial whose environment fails is
    replaced by the next one.

    Args:
        policy: The policy. Its memory is overwritten.
        envs: Environments; reset at the start.
        trials: Number of trials.
        deterministic: Act with the mode of the policy instead of a sample.
        confidence_seed: Seed of the bootstrap.
        faults: Number of restarts that are allowed; None: the default.

    Raises:
        UserError: If `trials` is out of range, environments fail too often, or one ends no trial at all.
    """
    collector = _collector(envs, faults or FaultToleranceConfig())
    return _run_trials(collector, policy, trials=trials, deterministic=deterministic, confidence_seed=confidence_seed)


def _collector(envs: TrialVectorEnv, faults: FaultToleranceConfig) -> Collector:
    explorer = Explorer(NoExploration(), envs.action_space, envs.num_envs, np.random.default_rng(0))
    return Collector(envs, "", explorer, replace(faults, on_fault="drop"))


def _run_trials(
    collector: Collector,
    policy: Policy,
    *,
    trials: int,
    deterministic: bool,
    confidence_seed: int = 0,
    counter: TrialCounter | None = None,
) -> EvalResult:
    check_trials(trials)
    num_envs = collector.environments.num_envs
    missing_E = trials // num_envs + (np.arange(num_envs) < trials % num_envs)
    waited_E = np.zeros(num_envs, np.int64)  # vector steps since the last trial of each environment
    limit = max(_WAIT_TRIALS * collector.environments.horizon, _WAIT_STEPS)
    summaries: list[list[TrialSummary]] = [[] for _ in range(num_envs)]
    while missing_E.any():
        waited_E += 1
        for env, trajectory in collector.step(policy, deterministic=deterministic):
            waited_E[env] = 0
            if missing_E[env]:
                summaries[env].append(summarize_trial(trajectory))
                missing_E[env] -= 1
        if counter:
            counter.update(trials - int(missing_E.sum()))
        if idle := np.flatnonzero((missing_E > 0) & (waited_E >= limit)).tolist():
            raise UserError(
                f"row {idle[0]} of {num_envs} (from 0) ended no trial in {limit:,} steps of an evaluation: each row "
                "must take part now and then; rows of PettingZoo are the possible_agents in their order, for each copy "
                "of the environment, so leave out those that never take part"
            )
    print_failed_trials("an evaluation", failed=collector.faults.metrics()[RESTARTS], completed=trials)
    return _aggregate([summary for of_env in summaries for summary in of_env], confidence_seed)


def _aggregate(trials: list[TrialSummary], confidence_seed: int) -> EvalResult:
    returns = np.array([trial.total_return for trial in trials])
    return_TA = _pad_attempts([trial.return_per_attempt for trial in trials])
    low, high = bootstrap_ci95(np.column_stack([returns, return_TA]), confidence_seed)
    success, success_ci95 = _success_per_attempt(trials, return_TA.shape[1])
    return EvalResult(
        returns=returns,
        return_mean=float(returns.mean()),
        return_ci95=(float(low[0]), float(high[0])),
        return_per_attempt=np.nanmean(return_TA, axis=0).tolist(),
        return_per_attempt_ci95=_pairs(low[1:], high[1:]),
        success_rate=success_rate(trials),
        success_per_attempt=success,
        success_per_attempt_ci95=success_ci95,
        trials=len(trials),
    )


def _success_per_attempt(
    trials: list[TrialSummary], max_attempts: int
) -> tuple[list[float] | None, list[tuple[float, float]] | None]:
    if all(trial.success is None for trial in trials):
        return None, None
    # without a signal, in a task that has one, nothing succeeded
    of_trials = [trial.success_per_attempt or [False] * len(trial.return_per_attempt) for trial in trials]
    success_TA = _pad_attempts([np.asarray(each, float) for each in of_trials])[:, :max_attempts]
    successes, trials_A = np.nansum(success_TA, axis=0), np.sum(~np.isnan(success_TA), axis=0).astype(np.float64)
    return (successes / trials_A).tolist(), _pairs(*wilson_ci95(successes, trials_A))


def _pad_attempts(
    values: Sequence[Sequence[float] | Float64[np.ndarray, "_"]],
) -> Float64[np.ndarray, "trials attempts"]:
    """Pad the values of each trial's attempts with NaN; drop attempts of too few trials (`MIN_ATTEMPT_FRACTION`)."""
    padded = np.full((len(values), max(map(len, values))), np.nan)
    for row, attempts in zip(padded, values, strict=True):
        row[: len(attempts)] = attempts
    return padded[:, np.mean(~np.isnan(padded), axis=0) >= MIN_ATTEMPT_FRACTION]


def _pairs(low: Float64[np.ndarray, "n"], high: Float64[np.ndarray, "n"]) -> list[tuple[float, float]]:
    return list(zip(low.tolist(), high.tolist(), strict=True))


def check_seed(seed: int) -> None:
    """Raise `UserError` for a seed that random generators do not accept."""
    _check_whole("seed", seed)
    if not 0 <= seed < _MAX_SEED:
        raise UserError(f"cannot evaluate with seed {seed}: pass at least 0 and less than 2 ** 63")


def check_trials(trials: int) -> None:
    """Raise `UserError` for a number of trials below 1 or above `MAX_TRIALS`."""
    _check_whole("trials", trials)
    if not 1 <= trials <= MAX_TRIALS:
        raise UserError(f"cannot play {trials} trials: pass at least 1 and at most {MAX_TRIALS:,}")


def _check_whole(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise UserError(f"{name} is {value!r}: pass a whole number")


@dataclass(frozen=True, kw_only=True)
class EvalReport:
    """Results on test and training tasks."""

    test: EvalResult
    """On the test tasks if the benchmark has them, else on the training tasks."""
    train_tasks: EvalResult | None
    """On the training tasks; None if the benchmark has no separate test tasks."""

    @property
    def selection_return(self) -> float:
        """Mean return on the training tasks, by which checkpoints are chosen: test tasks choose nothing."""
        return (self.train_tasks or self.test).return_mean

    def to_json(self) -> dict[str, Any]:
        """Return the keys of `yamame eval --json` that depend on trials."""
        return {**self.test.to_json(), "train_tasks": self.train_tasks and self.train_tasks.to_json()}

    def metrics(self) -> dict[str, float]:
        """Return `eval/...`, and `eval_train_tasks/...` if there are separate test tasks."""
        metrics = _metrics(EVAL, self.test)
        return metrics | (_metrics(EVAL_TRAIN_TASKS, self.train_tasks) if self.train_tasks else {})


@kept_working_directory()
def evaluate_model(
    config: RunConfig,
    model: nn.Module,
    *,
    trials: int,
    seed: int = EVALUATION_SEED,
    quiet: bool = True,
    beside_training: bool = False,
) -> EvalReport:
    """Evaluate a model in new environments, on test tasks and on training tasks if they differ.

    Args:
        config: Config of the run.
        model: The networks.
        trials: Number of trials on each of the two.
        seed: Seed of tasks and actions.
        quiet: Do not print the number of finished trials of a long evaluation on stderr.
        beside_training: Whether environments of training exist, for the message of those that cannot be made.
    """
    test_env = config.env.eval_config()

    def evaluate(env: EnvConfig) -> EvalResult:
        with closing(_start(config, env, trials=trials, seed=seed, beside_training=beside_training)) as collector:
            return _evaluate_model(config, collector, model, trials=trials, seed=seed, quiet=quiet)

    test = evaluate(test_env)
    differ = test_env != config.env
    return EvalReport(test=test, train_tasks=evaluate(config.env) if differ else None)


@kept_working_directory()
def evaluate_random_policy(config: RunConfig, *, trials: int, seed: int = EVALUATION_SEED) -> EvalResult:
    """Evaluate uniformly random actions on the test tasks. Arguments are those of `evaluate_model`.

    What is wrong with the size of rewards is printed on stderr.
    """
    with closing(_start(config, config.env.eval_config(), trials=trials, seed=seed, is_first=True)) as collector:
        policy = RandomPolicy(collector.environments.action_space, np.random.default_rng(seed))
        result = _run_trials(collector, policy, trials=trials, deterministic=False)
        if finding := collector.rewards.finding():
            print(finding, file=sys.stderr)
        return result


def _evaluate_model(
    config: RunConfig, collector: Collector, model: nn.Module, *, trials: int, seed: int, quiet: bool
) -> EvalResult:
    generator = torch.Generator(model_device(model)).manual_seed(seed)
    num_envs = collector.environments.num_envs
    policy = config.algorithm.build_policy(
        model, num_envs=num_envs, generator=generator, cuda_graph=config.compute.cuda_graph
    )
    counter = None if quiet else TrialCounter(trials)
    deterministic = config.deterministic_actions
    return _run_trials(collector, policy, trials=trials, deterministic=deterministic, counter=counter)


def _start(
    config: RunConfig,
    env: EnvConfig,
    *,
    trials: int,
    seed: int,
    is_first: bool = False,
    beside_training: bool = True,
) -> Collector:
    """Make and reset the environments of an evaluation; if that fails, try again, as after a fault.

    If it `is_first`, no environment was reset before: one that fails in its reset twice will not work later.
    """
    num_envs = env.required_num_envs or min(trials, config.resolved_eval_num_envs)
    name, remedy = "the environments of an evaluation", "fix the environment"
    if beside_training and not config.closes_training_envs:
        remedy += ", or pass eval.close_training_envs=True if it cannot exist beside those of training"

    def make() -> TrialVectorEnv:
        with kept_num_threads():
            return env.build(num_envs, seed)

    if is_first:
        return _reset_twice(lambda: restart_with_retries(make, name, [], remedy=remedy), config)
    return restart_with_retries(lambda: _reset(make(), config), name, [], remedy=remedy)


def _reset(envs: TrialVectorEnv, config: RunConfig) -> Collector:
    """Return a collector of environments that are reset; they are closed if that fails."""
    try:
        collector = _collector(envs, config.fault_tolerance)
        collector.start()
    except BaseException:
        envs.close()
        raise
    return collector


def _reset_twice(make: Callable[[], TrialVectorEnv], config: RunConfig) -> Collector:
    """Make and reset environments. If their reset fails, make and reset others; if that fails, raise `UserError`."""
    try:
        return _reset(make(), config)
    except ENV_ERRORS as error:
        if not is_recoverable(error):
            raise
    try:
        return _reset(make(), config)
    except ENV_ERRORS as error:
        if not is_recoverable(error):
            raise
        if trace := fault_from_exception(error, "").traceback:
            print(trace, file=sys.stderr)
        raise first_reset_error(error) from error


def _metrics(group: str, result: EvalResult) -> dict[str, float]:
    low, high = result.return_ci95
    metrics = {
        f"{group}/return_mean": result.return_mean,
        f"{group}/return_ci95_low": low,
        f"{group}/return_ci95_high": high,
    }
    return metrics if result.success_rate is None else metrics | {f"{group}/success_rate": result.success_rate}
