"""Scores of the finished runs of an experiment, beside those of the paper."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from yamame.envs.config import GoalEnvConfig
from yamame.envs.crafter.goals import parse_instruction
from yamame.errors import UserError
from yamame.experiments import Arm, Experiment, Panel, Score
from yamame.metrics.confidence import Mean, mean_of
from yamame.metrics.registry import EVAL_RETURN, EVAL_SUCCESS, read_metrics
from yamame.run_config import RunConfig
from yamame.tools.curves import MeanCurve, RunCurve, mean_curve, run_curve
from yamame.tools.evaluations import EVALUATIONS, EvaluationCache
from yamame.tools.reproduce.plan import PlannedArm, finished_result
from yamame.tools.sweep.runs import PlannedRun
from yamame.training.run_files import RunResult

SCORE_NAMES: Mapping[Score, str] = {
    "return": "return",
    "best_return": "MMER",
    "success_rate": "success rate",
    "progress": "return per sub-goal",
}


@dataclass(frozen=True, kw_only=True)
class ArmScores:
    """Finished seeds of an arm in a panel."""

    arm: Arm
    seeds: Sequence[int]
    scores: Sequence[float]
    """One of each seed; empty without finished runs, and where the arm does not have the instruction."""
    results: Sequence[RunResult]
    curve: MeanCurve | None
    best_returns: Sequence[float] = ()
    """Returns of the best checkpoints, re-evaluated, if the score is the best return."""
    note: str = ""
    """Why there are no scores."""

    @property
    def mean(self) -> Mean | None:
        """Mean over seeds; None without scores."""
        return mean_of(self.scores) if self.scores else None

    def average(self, key: str) -> float | None:
        """Return the mean of an entry of the results over seeds."""
        return fmean(float(result[key]) for result in self.results) if self.results else None

    def to_json(self) -> dict[str, Any]:
        """Return a row of the results."""
        mean = self.mean
        return {
            "arm": self.arm.label,
            "seeds": list(self.seeds),
            "scores": list(self.scores),
            "mean": mean and mean.mean,
            "ci95": mean and mean.ci95 and list(mean.ci95),
            "published": self.arm.published,
            **({"best_checkpoint_anew": list(self.best_returns)} if self.best_returns else {}),
            **{key: self.average(key) for key in ("env_steps", "updates", "train_seconds")},
            **({"note": self.note} if self.note else {}),
        }


@dataclass(frozen=True, kw_only=True)
class PanelScores:
    """All arms of a panel."""

    panel: Panel
    arms: Sequence[ArmScores]

    def to_json(self) -> dict[str, Any]:
        """Return the panel with its rows."""
        return {
            "panel": self.panel.title,
            "score": SCORE_NAMES[self.panel.score],
            "references": dict(self.panel.references),
            "arms": [arm.to_json() for arm in self.arms],
        }


def collect_scores(experiment: Experiment, arms: Sequence[PlannedArm], directory: Path) -> list[PanelScores]:
    """Return the scores of all panels from the finished runs of their arms."""
    planned = {(each.arm.recipe, each.arm.flags, each.arm.variants): each for each in arms}
    cache = EvaluationCache(directory / EVALUATIONS)
    return [
        PanelScores(
            panel=panel,
            arms=[_arm_scores(panel, arm, planned[arm.recipe, arm.flags, arm.variants], cache) for arm in panel.arms],
        )
        for panel in experiment.panels
    ]


def _arm_scores(panel: Panel, arm: Arm, planned: PlannedArm, cache: EvaluationCache) -> ArmScores:
    finished = [(run, result) for run in planned.runs if (result := finished_result(run)) is not None]
    note = planned.skipped or ("" if finished else "no finished runs")
    scores: list[float] = []
    curves: list[RunCurve] = []
    reevaluated: list[float | None] = []
    try:
        for run, result in finished:
            scores.append(_score(panel, run, result, cache))
            curves.append(_curve(panel, run, result))
            if panel.score == "best_return":
                reevaluated.append(cache.best_return(run.directory, result["env_steps"]))
    except _InstructionError as missing:
        note, scores, curves = str(missing), [], []
    return ArmScores(
        arm=arm,
        seeds=[run.config.seed for run, _ in finished],
        scores=scores,
        results=[result for _, result in finished],
        curve=mean_curve(curves) if curves else None,
        best_returns=[value for value in reevaluated if value is not None],
        note=note,
    )


def _score(panel: Panel, run: PlannedRun, result: RunResult, cache: EvaluationCache) -> float:
    if panel.score == "best_return":
        logged = [line[EVAL_RETURN] for line in read_metrics(run.directory) if line.get(EVAL_RETURN) is not None]
        return float(max([*logged, result["return_mean"]]))
    if not panel.instructions:
        key = "success_rate" if panel.score == "success_rate" else "return_mean"
        return float(result[key]) / _mean_goals(panel, run.config)
    return fmean(_of_instruction(panel, run, result, text, cache) for text in panel.instructions)


def _of_instruction(
    panel: Panel, run: PlannedRun, result: RunResult, instruction: str, cache: EvaluationCache
) -> float:
    assert isinstance(run.config.env, GoalEnvConfig)
    try:
        run.config.env.with_instruction(instruction)
    except UserError as error:
        raise _InstructionError(" ".join(str(error).split())) from error
    evaluation = cache.evaluate(run.directory, result["env_steps"], instruction=instruction)
    if panel.score == "success_rate":
        return float(evaluation["success_rate"])
    return float(evaluation["return_mean"]) / len(parse_instruction(instruction))


def _curve(panel: Panel, run: PlannedRun, result: RunResult) -> RunCurve:
    metric = EVAL_SUCCESS if panel.score == "success_rate" else EVAL_RETURN
    curve = run_curve(run.directory, result, run.config, metric=metric, x_axis=panel.x_axis)
    return RunCurve(x=curve.x, values=curve.values / _mean_goals(panel, run.config), solved=curve.solved)


def _mean_goals(panel: Panel, config: RunConfig) -> float:
    """Return the divisor of a return: the mean number of sub-goals, uniform from 1, if the score is progress."""
    if panel.score != "progress" or not isinstance(config.env, GoalEnvConfig):
        return 1.0
    return (1 + config.env.max_goals) / 2


class _InstructionError(Exception):
    """An arm cannot have an instruction."""
