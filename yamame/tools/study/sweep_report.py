"""Report of a sweep: all runs in its directory as tables in Markdown, CSV and JSON, and as plots."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

from yamame.metrics.confidence import Aggregate, Mean, aggregate
from yamame.studies.base import Panel, Study
from yamame.tools.plots import save
from yamame.tools.run_groups import arms_in
from yamame.tools.study.evaluations import EVALUATIONS, EvaluationCache
from yamame.tools.study.execute import finished_result
from yamame.tools.study.report import (
    OVER_SEEDS,
    REEVALUATED,
    SCORE_NAMES,
    ci95_to_json,
    format_count,
    format_mean,
    format_score,
    image_links,
    markdown_table,
    plot_bars,
    plot_curves,
    to_csv,
    write_texts,
)
from yamame.tools.study.results import ArmResults, PanelResults, collect_arm
from yamame.tools.study.sweep_runs import CSV, CURVES, JSON, MARKDOWN, SCORES, find_runs, panel_arm
from yamame.training.run_files import read_config


@dataclass(frozen=True, kw_only=True)
class SweepResults:
    """All environments with a finished run, in the order of the benchmark."""

    study: Study
    panels: list[PanelResults]
    num_unfinished: int = 0
    """Runs that were started and are not finished."""
    lengths_differ: Sequence[str] = ()
    """Arms whose finished runs were not all planned for the same number of environment steps."""

    @property
    def arms(self) -> list[tuple[PanelResults, ArmResults]]:
        """All arms with their panels."""
        return [(panel, arm) for panel in self.panels for arm in panel.arms]

    @cached_property
    def aggregates(self) -> Mapping[str, tuple[Aggregate, Aggregate | None]]:
        """Arm -> its scores and its standardized scores over all environments; empty without published scores."""
        found = {}
        for label in dict.fromkeys(arm.arm.label for panel, arm in self.arms if panel.panel.bounds):
            members = [(panel, arm) for panel, arm in self.arms if arm.arm.label == label]
            of_scores = aggregate([arm.scores for _, arm in members])
            standardized = aggregate([scores for panel, arm in members if (scores := panel.standardized(arm))])
            if of_scores:
                found[label] = of_scores, standardized
        return found

    def to_json(self) -> dict[str, Any]:
        """Return what `yamame sweep --json` prints of the finished runs."""
        aggregates = {
            arm: {"scores": scores.to_json(), "standardized": standardized and standardized.to_json()}
            for arm, (scores, standardized) in self.aggregates.items()
        }
        return {
            "arms": self.rows(),
            **({"aggregates": aggregates} if self.study.benchmark else {}),
            "num_unfinished": self.num_unfinished,
            "lengths_differ": list(self.lengths_differ),
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return a row of JSON values for each arm."""
        return [self._row(panel.panel, arm) for panel, arm in self.arms]

    def _row(self, panel: Panel, arm: ArmResults) -> dict[str, Any]:
        final, success = arm.final_return, arm.success_rate
        return {
            **({"env": panel.title} if self.study.benchmark else {}),
            "arm": arm.arm.label,
            "seeds": [run.seed for run in arm.runs],
            "return_per_seed": [run.result["return_mean"] for run in arm.runs],
            "return_mean": final.mean,
            "return_ci95": ci95_to_json(final),
            "success_rate": success and success.mean,
            "success_rate_ci95": ci95_to_json(success),
            "random_return": arm.random_return,
            "env_steps": arm.average("env_steps"),
            "wall_seconds": arm.average("wall_seconds"),
            **(_scores_to_json(panel, arm) if panel.bounds else {}),
        }


def collect_sweep(directory: Path, study: Study) -> SweepResults:
    """Read all runs in the directory of a sweep; `UserError` if it holds something else."""
    found = find_runs(directory, study)
    cache = EvaluationCache(directory / EVALUATIONS)
    panels, lengths_differ = [], []
    for panel, of_panel in groupby(found, key=lambda run: run.panel):
        arms = []
        for arm, runs in groupby(of_panel, key=lambda run: run.arm):
            directories = [run.directory for run in runs]
            arms.append(collect_arm(panel, panel_arm(panel, arm), directories, cache))
            lengths = {read_config(each).env_steps for each in directories if finished_result(each)}
            if len(lengths) > 1:
                lengths_differ.append(f"{arm} ({min(lengths):,} to {max(lengths):,})")
        if finished := [arm for arm in arms if arm.runs]:
            panels.append(PanelResults(panel=panel, arms=finished))
    num_finished = sum(len(arm.runs) for panel in panels for arm in panel.arms)
    return SweepResults(
        study=study, panels=panels, num_unfinished=len(found) - num_finished, lengths_differ=lengths_differ
    )


def write_sweep_report(directory: Path, results: SweepResults) -> list[Path]:
    """Write all files of the report, each whole or not at all; return the paths of the plots."""
    arms = arms_in(directory)
    plots = {directory / CURVES: plot_curves(results.panels, arms)}
    if results.study.benchmark:
        plots[directory / SCORES] = plot_bars(results.study, results.panels, arms)
    write_texts(
        directory,
        {
            CSV: to_csv(results.rows()),
            JSON: json.dumps(results.to_json(), indent=1) + "\n",
            MARKDOWN: f"# {results.study.title}\n\n{sweep_table(results)}\n\n{image_links(plots)}\n",
        },
    )
    for path, figure in plots.items():
        save(figure, path)
    return list(plots)


def sweep_table(results: SweepResults) -> str:
    """Return the table with its notes, readable as plain text too."""
    rows = [dict(_cells(results.study, panel, arm)) for panel, arm in results.arms]
    table = markdown_table(rows) if rows else "No finished runs."
    return "\n".join([table, "", *_notes(results)]).rstrip()


def _scores_to_json(panel: Panel, arm: ArmResults) -> dict[str, Any]:
    assert panel.bounds is not None and arm.mean is not None
    best = arm.best_return
    return {
        "best_return_anew": best and best.mean,
        "best_return_anew_ci95": ci95_to_json(best),
        "score_per_seed": arm.scores,
        "score_mean": arm.mean.mean,
        "score_ci95": ci95_to_json(arm.mean),
        "standardized": panel.bounds.standardized(arm.mean.mean),
        "standardized_is_exact": panel.bounds.is_exact,
        **_published(panel),
    }


def _published(panel: Panel) -> dict[str, float | None]:
    """Return published scores by key."""
    others = {name.lower().replace(" ", "_"): score for name, score in panel.references}
    return {"paper": panel.arms[0].published, **others}


def _cells(study: Study, panel: PanelResults, arm: ArmResults) -> Iterator[tuple[str, str]]:
    bounds = panel.panel.bounds
    if study.benchmark:
        yield "environment", panel.panel.title
    yield "arm", arm.arm.label
    yield "seeds", str(len(arm.runs))
    if bounds and arm.mean:
        yield REEVALUATED, format_mean(arm.best_return)
        yield SCORE_NAMES[panel.panel.score], format_mean(arm.mean)
        standardized = bounds.standardized(arm.mean.mean)
        yield "standardized", ("" if bounds.is_exact or standardized is None else "~") + format_score(standardized)
        for method, published in _published(panel.panel).items():
            yield method.replace("_", " "), format_score(published)
    yield "final return", format_mean(arm.final_return)
    yield "random", format_score(arm.random_return)
    yield "success rate", format_mean(arm.success_rate)
    yield "env steps", format_count(arm.average("env_steps"))
    yield "wall seconds", format_count(arm.average("wall_seconds"))


def _notes(results: SweepResults) -> Iterator[str]:
    arms = [arm for _, arm in results.arms]
    if results.study.benchmark:
        score = SCORE_NAMES[results.study.panels[0].score]
        for arm, (of_scores, standardized) in results.aggregates.items():
            yield _aggregate_line(f"{score}, {arm}", of_scores)
            yield _aggregate_line(f"Standardized, {arm}", standardized)
        yield from results.study.notes
    if any(len(arm.runs) > 1 for arm in arms):
        yield OVER_SEEDS
    if any(arm.curve and arm.curve.solved for arm in arms):
        yield "A curve that ends early, in a dot: all its seeds solved the task and stopped."
    if results.lengths_differ:
        yield f"Seeds of different numbers of environment steps: {', '.join(dict.fromkeys(results.lengths_differ))}."
    if results.num_unfinished:
        yield f"Unfinished runs, not counted: {results.num_unfinished}."


def _aggregate_line(name: str, value: Aggregate | None) -> str:
    if value is None:
        return f"{name}: no environment with known bounds."
    mean = format_mean(Mean(value.mean, value.mean_ci95))
    middle = format_mean(Mean(value.interquartile_mean, value.interquartile_mean_ci95))
    return (
        f"{name}: mean {mean}, interquartile mean {middle} over {value.num_envs} environments, {value.num_runs} runs."
    )
