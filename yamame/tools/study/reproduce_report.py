"""Report of a reproduction: the scores of a study beside the paper's, its plots and those of its analyses."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from yamame.envs.config import GoalEnvConfig
from yamame.studies.base import Analysis, Panel, Study
from yamame.tools.plots import save, stamp
from yamame.tools.study.evaluations import EVALUATIONS, EvaluationCache
from yamame.tools.study.execute import finished_result
from yamame.tools.study.plan import PlannedArm, arm_key
from yamame.tools.study.report import (
    OVER_SEEDS,
    REEVALUATED,
    SCORE_NAMES,
    ci95_to_json,
    format_count,
    format_mean,
    format_score,
    markdown_table,
    plot_bars,
    plot_curves,
)
from yamame.tools.study.results import ArmResults, PanelResults, collect_arm
from yamame.training.run_files import read_config

_AVERAGES = ("env_steps", "updates", "train_seconds")


def collect_panels(study: Study, arms: Sequence[PlannedArm], directory: Path) -> list[PanelResults]:
    """Return the scores of all panels from the finished runs of their arms."""
    planned = {arm_key(each.arm): each for each in arms}
    cache = EvaluationCache(directory / EVALUATIONS)
    return [
        _collect_panel(panel, [replace(planned[arm_key(arm)], arm=arm) for arm in panel.arms], cache)
        for panel in study.panels
    ]


def _collect_panel(panel: Panel, arms: Sequence[PlannedArm], cache: EvaluationCache) -> PanelResults:
    """Return the scores of a panel from the runs of its arms."""
    max_goals = max(map(_num_goals, arms), default=0)
    found = [
        collect_arm(panel, each.arm, each.directories, cache, list(_notes(each)), max_goals=max_goals) for each in arms
    ]
    return PanelResults(panel=panel, arms=found)


def panel_to_json(results: PanelResults) -> dict[str, Any]:
    """Return a panel with a row of JSON values for each arm."""
    panel = results.panel
    return {
        "panel": panel.title,
        "score": SCORE_NAMES[panel.score],
        "references": {name: score for name, score in panel.references if score is not None},
        "random": results.random_score,
        "arms": [_row(arm) for arm in results.arms],
    }


def budget_note(budget: float) -> str:
    """Return what plots and tables say of runs shorter than the recipes'; "" for whole ones."""
    return "" if budget == 1 else f"budget {100 * budget:g} % of the environment steps"


def to_markdown(study: Study, panels: Sequence[PanelResults], *, note: str = "") -> str:
    """Return the table and the notes of a study, with a note on its budget; numbers that are not known are `-`."""
    arms = [(panel, arm) for panel in panels for arm in panel.arms]
    lines = [f"# {study.title}", "", f"Paper: {study.source}.", "", *([f"**{note}**", ""] if note else [])]
    if arms:
        hidden = "" if any(arm.best_returns for _, arm in arms) else REEVALUATED
        rows = [{name: cell for name, cell in _cells(panel, arm) if name != hidden} for panel, arm in arms]
        lines += [markdown_table(rows), ""]
        for panel in panels:
            known = [f"{name} {format_score(score)}" for name, score in panel.panel.references if score is not None]
            lines += [f"Published for {panel.panel.title}: {', '.join(known)}."] if known else []
        if any(len(arm.scores) > 1 for _, arm in arms):
            lines.append(OVER_SEEDS)
        lines += [f"{panel.panel.title}, {arm.arm.label}: {note}." for panel, arm in arms for note in arm.notes]
    return "\n".join([*lines, *study.notes]).rstrip() + "\n"


def draw_study(
    study: Study,
    arms: Sequence[PlannedArm],
    panels: Sequence[PanelResults],
    directory: Path,
    *,
    note: str = "",
) -> list[Path]:
    """Write the plots of panels and analyses; return their paths. An analysis without a finished run has none.

    `note` is written into each.
    """
    plots = []
    if panels:
        plots.append(directory / f"{study.name}.png")
        labels = list(dict.fromkeys(arm.label for arm in study.arms))
        is_bars = study.style == "bars"
        figure = plot_bars(study, panels, labels, note=note) if is_bars else plot_curves(panels, labels, note=note)
        save(figure, plots[-1])
    for analysis in study.analyses:
        run = _run_of(analysis, arms)
        if analysis.arm is not None and run is None:
            continue
        suffix = analysis.title.lower().replace(" ", "-")
        plots.append(directory / f"{study.name}-{suffix}.png")
        drawn = _draw_analysis(analysis, run)
        if run is not None:
            stamp(drawn, note)
        save(drawn, plots[-1])
    return plots


def _num_goals(planned: PlannedArm) -> int:
    """Return the maximum number of sub-goals of the instructions of an arm; 0 without instructions."""
    env = planned.config.env if planned.config else None
    return env.max_goals if isinstance(env, GoalEnvConfig) else 0


def _notes(planned: PlannedArm) -> Iterator[str]:
    if planned.skipped:
        yield planned.skipped
    if planned.taken_over and planned.config:
        steps = sorted({read_config(run).env_steps for run in planned.taken_over})
        length = f"{', '.join(map(format_count, steps))} environment steps"
        instead = "" if steps == [planned.config.env_steps] else f" in place of {planned.config.env_steps:,}"
        yield f"runs of {length}{instead} taken over from {planned.taken_over[0].parent}"


def _row(arm: ArmResults) -> dict[str, Any]:
    mean = arm.mean
    return {
        "arm": arm.arm.label,
        "seeds": [run.seed for run in arm.runs],
        "scores": arm.scores,
        "mean": mean and mean.mean,
        "ci95": ci95_to_json(mean),
        "published": arm.arm.published,
        **({"best_checkpoint_anew": arm.best_returns} if arm.best_returns else {}),
        **{key: arm.average(key) for key in _AVERAGES},
        **({"note": "; ".join(arm.notes)} if arm.notes else {}),
    }


def _cells(panel: PanelResults, arm: ArmResults) -> Iterator[tuple[str, str]]:
    yield "environment", panel.panel.title
    yield "arm", arm.arm.label
    yield "seeds", str(len(arm.scores))
    yield "score", SCORE_NAMES[panel.panel.score]
    yield "here", format_mean(arm.mean)
    yield REEVALUATED, format_mean(arm.best_return)
    yield "random", format_score(panel.random_score)
    yield "paper", format_score(arm.arm.published)
    for key in _AVERAGES:
        yield key.replace("_", " "), format_count(arm.average(key))


def _run_of(analysis: Analysis, arms: Sequence[PlannedArm]) -> Path | None:
    """Return the directory of the first finished seed of the analysis's arm; None without one."""
    if analysis.arm is None:
        return None
    (planned,) = (each for each in arms if arm_key(each.arm) == arm_key(analysis.arm))
    return next((run for run in planned.directories if finished_result(run) is not None), None)


def _draw_analysis(analysis: Analysis, run: Path | None) -> Any:
    from yamame.config.flags import parse_flags
    from yamame.tools.figure import load_figure

    spec = load_figure(analysis.figure)
    options = parse_flags(spec.options, list(analysis.flags), f"yamame figure {spec.name}")
    return spec.draw([] if run is None else [run], options)
