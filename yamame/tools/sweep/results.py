"""Results of the finished runs of a sweep, by environment and arm."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

from yamame.experiments.benchmarks import Benchmark, Reference
from yamame.metrics.confidence import Aggregate, Mean, aggregate, mean_of
from yamame.metrics.registry import EVAL_RETURN, read_metrics
from yamame.tools.curves import MeanCurve, RunCurve, mean_curve, run_curve
from yamame.tools.evaluations import EVALUATIONS, EvaluationCache
from yamame.tools.sweep.runs import FoundRun, find_runs
from yamame.training.run_files import RunResult, random_baseline_return, read_config, read_result


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """One seed of an environment and arm."""

    seed: int
    result: RunResult
    curve: RunCurve
    """Evaluation return against environment steps."""
    score: float | None = None
    """What the benchmark compares with published scores."""
    best_return: float | None = None
    """Return of the best checkpoint, re-evaluated, where there are published scores; None: no such checkpoint."""


@dataclass(frozen=True, kw_only=True)
class ArmResult:
    """One environment and arm, all its finished seeds."""

    env_name: str
    """Empty for a recipe of one task."""
    arm: str
    runs: Sequence[FinishedRun]
    random_return: float | None
    """Mean return of random actions; None: unknown."""
    reference: Reference | None = None

    @cached_property
    def curve(self) -> MeanCurve | None:
        """Learning curve over seeds; None if the seeds have no environment steps in common."""
        return mean_curve([run.curve for run in self.runs])

    @cached_property
    def final_return(self) -> Mean:
        """Return of the final evaluations."""
        return mean_of([run.result["return_mean"] for run in self.runs])

    @cached_property
    def success_rate(self) -> Mean | None:
        """Success rate of the final evaluations; None for a task without success."""
        rates = [run.result["success_rate"] for run in self.runs if run.result["success_rate"] is not None]
        return mean_of(rates, is_rate=True) if rates else None

    @property
    def env_steps(self) -> float:
        """Mean over runs."""
        return fmean(run.result["env_steps"] for run in self.runs)

    @property
    def wall_seconds(self) -> float:
        """Mean over runs, evaluations included."""
        return fmean(run.result["wall_seconds"] for run in self.runs)

    @property
    def scores(self) -> list[float]:
        """Scores of all seeds; empty without published scores."""
        return [run.score for run in self.runs if run.score is not None]

    @property
    def best_return(self) -> Mean | None:
        """Return of the best checkpoints on seeds that did not choose them; None without published scores."""
        known = [run.best_return for run in self.runs if run.best_return is not None]
        return mean_of(known) if known else None

    @property
    def standardized(self) -> list[float]:
        """Standardized scores of all seeds; empty if a bound is unknown."""
        scores = [self.reference.standardized(score) for score in self.scores] if self.reference else []
        return [score for score in scores if score is not None]

    def to_json(self) -> dict[str, Any]:
        """Return a row of the results."""
        final, success = self.final_return, self.success_rate
        return {
            **({"env": self.env_name} if self.env_name else {}),
            "arm": self.arm,
            "seeds": [run.seed for run in self.runs],
            "return_per_seed": [run.result["return_mean"] for run in self.runs],
            "return_mean": final.mean,
            "return_ci95": final.ci95 and list(final.ci95),
            "success_rate": success and success.mean,
            "success_rate_ci95": success and success.ci95 and list(success.ci95),
            "random_return": self.random_return,
            "env_steps": self.env_steps,
            "wall_seconds": self.wall_seconds,
            **(self._scores_to_json(self.reference) if self.reference else {}),
        }

    def _scores_to_json(self, reference: Reference) -> dict[str, Any]:
        score, best = mean_of(self.scores), self.best_return
        return {
            "best_return_anew": best and best.mean,
            "best_return_anew_ci95": best and best.ci95 and list(best.ci95),
            "score_per_seed": self.scores,
            "score_mean": score.mean,
            "score_ci95": score.ci95 and list(score.ci95),
            "standardized": reference.standardized(score.mean),
            "standardized_is_exact": reference.is_exact,
            **reference.published,
        }


@dataclass(frozen=True, kw_only=True)
class SweepResults:
    """All environments and arms with a finished run, in the order of the benchmark."""

    benchmark: Benchmark
    arms: Sequence[ArmResult]
    num_unfinished: int
    """Runs that were started and are not finished."""

    @cached_property
    def aggregates(self) -> Mapping[str, tuple[Aggregate, Aggregate | None]]:
        """Arm -> its scores and its standardized scores over all environments; empty without published scores."""
        by_arm: dict[str, list[ArmResult]] = {}
        for result in self.arms:
            if result.reference:
                by_arm.setdefault(result.arm, []).append(result)
        found = {}
        for arm, results in by_arm.items():
            of_scores = aggregate([result.scores for result in results])
            standardized = aggregate([result.standardized for result in results if result.standardized])
            if of_scores:
                found[arm] = of_scores, standardized
        return found

    def to_json(self) -> dict[str, Any]:
        """Return what `yamame sweep --json` prints of the finished runs."""
        aggregates = {
            arm: {"scores": scores.to_json(), "standardized": standardized and standardized.to_json()}
            for arm, (scores, standardized) in self.aggregates.items()
        }
        return {
            "arms": [arm.to_json() for arm in self.arms],
            **({"aggregates": aggregates} if self.benchmark.scores else {}),
            "num_unfinished": self.num_unfinished,
        }


def collect_results(directory: Path, benchmark: Benchmark) -> SweepResults:
    """Read all runs in the directory of a sweep; `UserError` if it holds something else."""
    found = find_runs(directory, benchmark)
    cache = EvaluationCache(directory / EVALUATIONS)
    arms = []
    for (env_name, arm), group in groupby(found, key=lambda run: (run.env_name, run.arm)):
        members = list(group)
        runs = [finished for run in members if (finished := _read(run, benchmark, cache))]
        if runs:
            arms.append(
                ArmResult(
                    env_name=env_name,
                    arm=arm,
                    runs=sorted(runs, key=lambda run: run.seed),
                    random_return=random_baseline_return(members[0].directory),
                    reference=benchmark.scores.references.get(env_name) if benchmark.scores else None,
                )
            )
    num_finished = sum(len(arm.runs) for arm in arms)
    return SweepResults(benchmark=benchmark, arms=arms, num_unfinished=len(found) - num_finished)


def _read(run: FoundRun, benchmark: Benchmark, cache: EvaluationCache) -> FinishedRun | None:
    config, result = read_config(run.directory), read_result(run.directory)
    if result is None:
        return None
    score = best_return = None
    if benchmark.scores:
        logged = [line[EVAL_RETURN] for line in read_metrics(run.directory) if line.get(EVAL_RETURN) is not None]
        score = benchmark.scores.of_run([*logged, result["return_mean"]])
        best_return = cache.best_return(run.directory, result["env_steps"])
    curve = run_curve(run.directory, result, config)
    return FinishedRun(seed=config.seed, result=result, curve=curve, score=score, best_return=best_return)
