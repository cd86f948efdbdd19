"""What the finished runs of a comparison reached."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from yamame.runs import random_baseline_return, read_config, read_result
from yamame.tools.ablate.arms import Arm
from yamame.tools.ablate.curves import Curve, RunCurve, mean_curve, run_curve
from yamame.tools.ablate.found import FoundRun, found_runs
from yamame.tools.ablate.statistic import Mean, mean_of
from yamame.train_run import RunResult


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """One seed of an arm."""

    directory: Path
    seed: int
    result: RunResult
    curve: RunCurve


@dataclass(frozen=True, kw_only=True)
class ArmResult:
    """One arm, all its finished seeds."""

    arm: Arm
    runs: Sequence[FinishedRun]

    @cached_property
    def curve(self) -> Curve | None:
        """Return against environment steps; None where its seeds have no steps in common."""
        return mean_curve([run.curve for run in self.runs])

    @property
    def final_return(self) -> Mean:
        """Of the evaluations at the end of the runs."""
        return mean_of([run.result["return_mean"] for run in self.runs])

    @property
    def success_rate(self) -> Mean | None:
        """Of the same evaluations; None where the task announces no success."""
        rates = [run.result["success_rate"] for run in self.runs if run.result["success_rate"] is not None]
        return mean_of(rates) if rates else None

    @property
    def env_steps(self) -> float:
        """Of a run, on average."""
        return fmean(run.result["env_steps"] for run in self.runs)

    @property
    def wall_seconds(self) -> float:
        """Of a run, on average, evaluations included."""
        return fmean(run.result["wall_seconds"] for run in self.runs)

    def to_json(self) -> dict[str, Any]:
        """A row of the results."""
        final, success = self.final_return, self.success_rate
        return {
            "variant": self.arm.name,
            "seeds": [run.seed for run in self.runs],
            "return_per_seed": [run.result["return_mean"] for run in self.runs],
            "return_mean": final.mean,
            "return_ci95": final.ci95 and list(final.ci95),
            "success_rate": success and success.mean,
            "success_rate_ci95": success and success.ci95 and list(success.ci95),
            "env_steps": self.env_steps,
            "wall_seconds": self.wall_seconds,
        }


@dataclass(frozen=True, kw_only=True)
class AblationResults:
    """All arms with a finished run, `full` first."""

    recipe: str
    arms: Sequence[ArmResult]
    random_return: float | None
    """Mean return of random actions, where a run knows it."""
    unfinished: int
    """Runs that have begun and not ended."""

    def to_json(self) -> dict[str, Any]:
        """The results as `yamame ablate --json` prints them."""
        return {
            "variants": [arm.to_json() for arm in self.arms],
            "random_return": self.random_return,
            "num_unfinished": self.unfinished,
        }


def collect_results(directory: Path, recipe: str) -> AblationResults:
    """Read all runs in a comparison's folder; `UserError` where it holds something else."""
    found = found_runs(directory, recipe)
    finished: dict[Arm, list[FinishedRun]] = {run.arm: [] for run in sorted(found, key=lambda run: run.arm.place)}
    for run in found:
        finished[run.arm] += _finished(run)
    arms = [ArmResult(arm=arm, runs=sorted(runs, key=lambda run: run.seed)) for arm, runs in finished.items() if runs]
    return AblationResults(
        recipe=recipe,
        arms=arms,
        random_return=random_baseline_return(arms[0].runs[0].directory) if arms else None,
        unfinished=len(found) - sum(len(arm.runs) for arm in arms),
    )


def _finished(run: FoundRun) -> list[FinishedRun]:
    config, result = read_config(run.directory), read_result(run.directory)
    if result is None:
        return []
    curve = run_curve(run.directory, result, config)
    return [FinishedRun(directory=run.directory, seed=config.seed, result=result, curve=curve)]
