"""Learning curves: the mean over the seeds of each experiment, with 95 % bands from four seeds on."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from yamame.errors import UserError
from yamame.metrics.registry import EVAL_RETURN, RETURN, get_metric
from yamame.tools.plots import (
    HEIGHT,
    RANDOM,
    compact,
    legend_below,
    legend_height,
    new_figure,
    plain,
    plot_band,
    plot_random_baseline,
)
from yamame.tools.run_groups import Group, color_numbers, common_random_return, group_by_seed
from yamame.tools.study.curves import MeanCurve, RunCurve, mean_curve, run_curve
from yamame.training.run_files import read_config, read_result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AXES = {"env_steps": "environment steps", "updates": "gradient updates", "wall_seconds": "wall time in seconds"}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of the figure."""

    metric: str = ""
    """Key of metrics.jsonl; empty: the return of evaluations, or of training if a run has no evaluations."""
    x_axis: Literal["env-steps", "updates", "wall-seconds"] = "env-steps"
    """Horizontal axis."""
    title: str = ""
    """Title of the figure; empty: Learning curves."""


def draw(paths: Sequence[Path], options: Options) -> "Figure":
    """A line per group of runs of one experiment, such as seeds."""
    groups, x_axis = group_by_seed(paths), options.x_axis.replace("-", "_")
    metric, curves = _curves(groups, options.metric, x_axis)
    random = common_random_return(groups) if metric in (EVAL_RETURN, RETURN) else None
    labels = [plain(_label(group)) for group in groups] + [RANDOM] * (random is not None)
    figure, (axes,) = new_figure(height=HEIGHT + legend_height(labels))
    numbers = color_numbers([group.runs[0] for group in groups])
    for number, label, curve in zip(numbers, labels, curves, strict=False):
        plot_band(
            axes, curve.x, curve.mean, curve.ci95, seeds=curve.seeds, label=label, number=number, ended=curve.solved
        )
    plot_random_baseline(axes, random)
    name = plain(get_metric(metric).label)
    axes.set(xlabel=AXES[x_axis], ylabel=name, title=plain(options.title) or "Learning curves")
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(compact)
    legend_below(axes)
    return figure


def _curves(groups: Sequence[Group], metric: str, x_axis: str) -> tuple[str, list[MeanCurve]]:
    """Return the first metric that all runs have, and its curve for each group."""
    wanted = [metric] if metric else [EVAL_RETURN, RETURN]
    for key in wanted:
        of_runs = [[_of_run(run, key, x_axis) for run in group.runs] for group in groups]
        if all(len(curve.x) for curves in of_runs for curve in curves):
            return key, [_mean(group, curves) for group, curves in zip(groups, of_runs, strict=True)]
    run = next(
        run
        for group, curves in zip(groups, of_runs, strict=True)
        for run, curve in zip(group.runs, curves, strict=True)
        if not len(curve.x)
    )
    hint = f"choose another --metric, such as {RETURN}" if metric else "it may not have started"
    raise UserError(f"{run} has logged no {wanted[-1]}: {hint}")


def _of_run(run: Path, metric: str, x_axis: str) -> RunCurve:
    return run_curve(run, read_result(run), read_config(run), metric=metric, x_axis=x_axis)


def _mean(group: Group, curves: Sequence[RunCurve]) -> MeanCurve:
    curve = mean_curve(curves)
    if curve is None:
        raise UserError(f"the runs of {group.label} do not overlap: remove those that have only started")
    return curve


def _label(group: Group) -> str:
    seeds = len(group.runs)
    return group.label if seeds == 1 else f"{group.label} ({seeds} seeds)"
