"""Scores of the finished runs of a study, by panel and arm."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean

import numpy as np

from yamame.envs.config import GoalEnvConfig
from yamame.envs.crafter.goals import parse_instruction
from yamame.errors import UserError
from yamame.metrics.confidence import Mean, mean_of
from yamame.metrics.registry import EVAL_RETURN, EVAL_SUCCESS, read_metrics
from yamame.run_config import RunConfig
from yamame.studies.base import Arm, Panel
from yamame.tools.study.curves import MeanCurve, RunCurve, mean_curve, run_curve
from yamame.tools.study.evaluations import EvaluationCache
from yamame.tools.study.execute import finished_result
from yamame.training.run_files import RunResult, random_baseline, read_config


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """One seed of an arm in a panel."""

    seed: int
    result: RunResult
    curve: RunCurve
    """In the units of the score."""
    score: float | None = None
    """None: there is none."""
    note: str = ""
    """Why there is no score: the arm does not have the instructions of the panel."""
    best_return: float | None = None
    """Return of the best checkpoint, re-evaluated, if the score is the best return; None: no such checkpoint."""


@dataclass(frozen=True, kw_only=True)
class ArmResults:
    """One arm in a panel, all its finished seeds."""

    arm: Arm
    runs: Sequence[FinishedRun]
    random_score: float | None = None
    """Score of random actions; None: unknown, or the score is that of given instructions."""
    random_attempt: float | None = None
    """Mean return of their attempts; None: unknown, or no attempts are drawn."""
    notes: Sequence[str] = ()
    """Why there are no scores, or where the runs are from."""

    @property
    def random_return(self) -> float | None:
        """Mean return of random actions in the first run; None: unknown."""
        baselines = (run.result.get("random_baseline") for run in self.runs)
        return next((float(baseline["return_mean"]) for baseline in baselines if baseline), None)

    @property
    def scores(self) -> list[float]:
        """One of each seed; empty without finished runs, and where the arm does not have the instructions."""
        return [run.score for run in self.runs if run.score is not None]

    @property
    def mean(self) -> Mean | None:
        """Mean score over seeds; None without scores."""
        return mean_of(self.scores) if self.scores else None

    @cached_property
    def curve(self) -> MeanCurve | None:
        """Learning curve over seeds; None if the seeds have no points in common."""
        return mean_curve([run.curve for run in self.runs]) if self.runs else None

    @property
    def best_returns(self) -> list[float]:
        """Returns of the best checkpoints on seeds that did not choose them; empty for other scores."""
        return [run.best_return for run in self.runs if run.best_return is not None]

    @property
    def best_return(self) -> Mean | None:
        """Mean of `best_returns`."""
        return mean_of(self.best_returns) if self.best_returns else None

    @cached_property
    def final_return(self) -> Mean:
        """Return of the final evaluations."""
        return mean_of([run.result["return_mean"] for run in self.runs])

    @cached_property
    def success_rate(self) -> Mean | None:
        """Success rate of the final evaluations; None for a task without success."""
        rates = [run.result["success_rate"] for run in self.runs if run.result["success_rate"] is not None]
        return mean_of(rates, is_rate=True) if rates else None

    def average(self, key: str) -> float | None:
        """Return the mean of an entry of the results over seeds; None without results that have it."""
        values = [float(run.result[key]) for run in self.runs if run.result.get(key) is not None]
        return fmean(values) if values else None


@dataclass(frozen=True, kw_only=True)
class PanelResults:
    """All arms of a panel."""

    panel: Panel
    arms: Sequence[ArmResults]

    @property
    def random_score(self) -> float | None:
        """Score of random actions; None: unknown."""
        return next((arm.random_score for arm in self.arms if arm.random_score is not None), None)

    @property
    def random_on_curves(self) -> float | None:
        """What random actions have on the vertical axis of the curves; None: unknown."""
        if self.panel.x_axis != "attempts":
            return self.random_score
        return next((arm.random_attempt for arm in self.arms if arm.random_attempt is not None), None)

    def standardized(self, arm: ArmResults) -> list[float]:
        """Return the standardized scores of all seeds of an arm; empty if a bound is unknown."""
        bounds = self.panel.bounds
        scores = [bounds.standardized(score) for score in arm.scores] if bounds else []
        return [score for score in scores if score is not None]


def collect_arm(
    panel: Panel,
    arm: Arm,
    directories: Sequence[Path],
    cache: EvaluationCache,
    notes: Sequence[str] = (),
    *,
    max_goals: int = 0,
) -> ArmResults:
    """Return the scores of the finished runs among some run directories.

    Runs whose instructions have fewer than `max_goals` sub-goals have no score in a panel of sampled instructions.
    """
    runs = [
        _read_run(panel, each, result, cache, max_goals) for each in directories if (result := finished_result(each))
    ]
    without_score = [run.note for run in runs if run.note][:1] if runs or notes else ["no finished runs"]
    finished = next((each for each in directories if finished_result(each)), None)
    return ArmResults(
        arm=arm,
        runs=sorted(runs, key=lambda run: run.seed),
        random_score=None if finished is None else _random_score(panel, finished, max_goals),
        random_attempt=None if finished is None else _random_attempt(panel, finished),
        notes=[*notes, *without_score],
    )


def _random_score(panel: Panel, run: Path, max_goals: int) -> float | None:
    baseline, config = random_baseline(run), read_config(run)
    if baseline is None or panel.instructions or _fewer_goals(config, max_goals):
        return None
    score = baseline["success_rate"] if panel.score == "success_rate" else baseline["return_mean"]
    return None if score is None else float(score) / _mean_goals(panel, config)


def _random_attempt(panel: Panel, run: Path) -> float | None:
    baseline = random_baseline(run) if panel.x_axis == "attempts" else None
    return None if baseline is None else fmean(baseline["return_per_attempt"])


def _read_run(panel: Panel, run: Path, result: RunResult, cache: EvaluationCache, max_goals: int) -> FinishedRun:
    config = read_config(run)
    score, note = None, ""
    try:
        if not panel.instructions and (fewer := _fewer_goals(config, max_goals)):
            raise _InstructionError(fewer)
        score = _score(panel, run, config, result, cache)
    except _InstructionError as missing:
        note = str(missing)
    return FinishedRun(
        seed=config.seed,
        result=result,
        curve=_curve(panel, run, config, result),
        score=score,
        note=note,
        best_return=cache.best_return(run, result["env_steps"]) if panel.score == "best_return" else None,
    )


def _score(panel: Panel, run: Path, config: RunConfig, result: RunResult, cache: EvaluationCache) -> float:
    if panel.score == "best_return":
        logged = [line[EVAL_RETURN] for line in read_metrics(run) if line.get(EVAL_RETURN) is not None]
        return float(max([*logged, result["return_mean"]]))
    if not panel.instructions:
        key = "success_rate" if panel.score == "success_rate" else "return_mean"
        return float(result[key]) / _mean_goals(panel, config)
    return fmean(_of_instruction(panel, run, config, result, text, cache) for text in panel.instructions)


def _of_instruction(
    panel: Panel, run: Path, config: RunConfig, result: RunResult, instruction: str, cache: EvaluationCache
) -> float:
    assert isinstance(config.env, GoalEnvConfig)
    try:
        config.env.with_instruction(instruction)
    except UserError as error:
        raise _InstructionError(" ".join(str(error).split())) from error
    evaluation = cache.evaluate(run, result["env_steps"], instruction=instruction)
    if panel.score == "success_rate":
        return float(evaluation["success_rate"])
    return float(evaluation["return_mean"]) / len(parse_instruction(instruction))


def _curve(panel: Panel, run: Path, config: RunConfig, result: RunResult) -> RunCurve:
    if panel.x_axis == "attempts":
        attempts = np.array(result["return_per_attempt"])
        return RunCurve(x=np.arange(1.0, len(attempts) + 1), values=attempts, solved=False)
    metric = EVAL_SUCCESS if panel.score == "success_rate" else EVAL_RETURN
    curve = run_curve(run, result, config, metric=metric, x_axis=panel.x_axis)
    return RunCurve(x=curve.x, values=curve.values / _mean_goals(panel, config), solved=curve.solved)


def _mean_goals(panel: Panel, config: RunConfig) -> float:
    """Return the divisor of a return: the mean number of sub-goals, uniform from 1, if the score is progress."""
    if panel.score != "progress" or not isinstance(config.env, GoalEnvConfig):
        return 1.0
    return (1 + config.env.max_goals) / 2


def _fewer_goals(config: RunConfig, max_goals: int) -> str:
    """Return why the instructions that a run samples are not those of its panel; "" if they are."""
    if not isinstance(config.env, GoalEnvConfig) or config.env.max_goals >= max_goals:
        return ""
    own = f"{config.env.max_goals} sub-goal" + ("s" if config.env.max_goals > 1 else "")
    return f"not compared, since its instructions have up to {own}, those of other arms up to {max_goals}"


class _InstructionError(Exception):
    """An arm cannot have an instruction, or samples others."""
