"""Final return and success of each arm, or success at instructions (figs 9, 25).

Intervals are over seeds, or over the trials of a single run; fewer than four seeds are dots instead.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from yamame.errors import UserError, check_range
from yamame.metrics.confidence import Mean, mean_of, wilson_ci95
from yamame.tools.palette import color
from yamame.tools.plots import (
    EDGE,
    HEIGHT,
    legend_columns,
    legend_height,
    new_figure,
    plain,
    plot_random_baseline,
)
from yamame.tools.run_groups import Group, color_numbers, common_random_return, group_by_seed
from yamame.tools.study.curves import MIN_BAND_SEEDS
from yamame.training.run_files import read_result
from yamame.training.trained_run import load_trained_run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES = {"return_mean": "mean return", "success_rate": "success rate"}
BAR = 0.8
"""Width of the bars of an instruction, of 1."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of the figure."""

    metrics: tuple[str, ...] = ()
    """Keys of result.json, a panel each; empty: return_mean, and success_rate if the task reports success."""
    instructions: tuple[str, ...] = ()
    """Evaluate every run with each of these instructions instead, such as 'collect wood' 'make wood pickaxe'."""
    trials: int = 64
    """Trials of each of those evaluations."""

    def __post_init__(self) -> None:
        check_range(self, "trials", ge=1)


def draw(paths: Sequence[Path], options: Options) -> "Figure":
    """A panel for each metric with a bar for each group; with instructions, one panel with a group of bars for each."""
    groups = group_by_seed(paths)
    if options.instructions:
        return _of_instructions(groups, options)
    results = {run: _result(run) for group in groups for run in group.runs}
    metrics = options.metrics or tuple(
        key for key in NAMES if all(result[key] is not None for result in results.values())
    )
    tilted = sum(len(group.label) for group in groups) > 44 / len(metrics)
    height = HEIGHT + (0.045 * max(len(group.label) for group in groups) if tilted else 0)
    numbers = color_numbers([group.runs[0] for group in groups])
    figure, panels = new_figure(columns=len(metrics), width=max(7.2, 4.4 * len(metrics)), height=height)
    for axes, metric in zip(panels, metrics, strict=True):
        for place, (number, group) in enumerate(zip(numbers, groups, strict=True)):
            _bar(axes, float(place), _of_group([results[run] for run in group.runs], metric), number=number)
        axes.set_xticks(range(len(groups)), [plain(group.label) for group in groups])
        if tilted:
            axes.tick_params(axis="x", rotation=25)
            for label in axes.get_xticklabels():
                label.set(horizontalalignment="right", rotation_mode="anchor")
        name = plain(NAMES.get(metric, metric))
        has_intervals = any(len(group.runs) == 1 or len(group.runs) >= MIN_BAND_SEEDS for group in groups)
        ends = ", 95 % CI" if has_intervals else ""
        axes.set(ylabel=f"{name} ({_num_seeds(groups)}{ends})", title=f"Final {name.removeprefix('mean ')}")
        axes.grid(axis="x", visible=False)
        axes.axhline(0, color="black", linewidth=0.8)
        if metric == "return_mean":
            plot_random_baseline(axes, common_random_return(groups))
            if axes.get_legend_handles_labels()[0]:
                axes.legend(frameon=False, fontsize=9)
    return figure


def _of_instructions(groups: Sequence[Group], options: Options) -> "Figure":
    labels = [group.label for group in groups]
    figure, (axes,) = new_figure(
        width=max(7.2, 1.6 * len(options.instructions)), height=HEIGHT + legend_height(labels) + 0.3
    )
    width = BAR / len(groups)
    numbers = color_numbers([group.runs[0] for group in groups])
    for place_in_group, (number, group) in enumerate(zip(numbers, groups, strict=True)):
        runs = [load_trained_run(run) for run in group.runs]
        for place, instruction in enumerate(options.instructions):
            evaluations = [run.evaluate(trials=options.trials, seed=None, instruction=instruction) for run in runs]
            at = place - BAR / 2 + (place_in_group + 0.5) * width
            _bar(axes, at, _of_group(evaluations, "success_rate"), number=number, width=width, label=plain(group.label))
    names = [plain(text).replace(", ", ",\n") for text in options.instructions]
    axes.set_xticks(range(len(names)), names)
    axes.set(ylabel="success rate", ylim=(0, 1.08), title=f"Success at instructions ({options.trials} trials)")
    axes.grid(axis="x", visible=False)
    once = {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    axes.legend(
        once.values(), once.keys(), frameon=False, fontsize=9, ncols=legend_columns(labels), loc="upper center",
        bbox_to_anchor=(0.5, -0.2),
    )  # fmt: skip
    return figure


@dataclass(frozen=True)
class _Height:
    """Mean of a bar, and the value of each seed if they are few."""

    mean: Mean
    seeds: Sequence[float] = ()


def _bar(axes: "Axes", at: float, height: _Height, *, number: int, width: float = 0.7, label: str = "") -> None:
    """Draw a bar with its whiskers, or dots of its seeds, and its value above."""
    mean = height.mean
    axes.bar(at, mean.mean, width, color=color(number), label=label)
    low, high = mean.mean, mean.mean
    if height.seeds:
        axes.plot([at] * len(height.seeds), height.seeds, "o", color="black", markersize=4, **EDGE)
    elif mean.ci95 is not None:
        low, high = mean.ci95
        whiskers = np.maximum(0, [[mean.mean - low], [high - mean.mean]])
        axes.errorbar([at], [mean.mean], whiskers, color="black", capsize=4, linestyle="none")
    axes.annotate(
        f"{mean.mean:.3g}", (at, max(high, mean.mean, 0)), (6 if height.seeds else 0, 3), textcoords="offset points",
        horizontalalignment="left" if height.seeds else "center", fontsize=9,
    )  # fmt: skip
    axes.margins(y=0.12)


def _of_group(results: Sequence[Mapping[str, Any]], metric: str) -> _Height:
    """Return the mean over seeds with its interval or the seeds; for a single seed the interval over its trials."""
    try:
        values = [float(result[metric]) for result in results]
    except (KeyError, TypeError, ValueError) as missing:
        known = [key for key, value in results[0].items() if isinstance(value, int | float)]
        raise UserError(f"no {metric} in the results of the runs: choose one of {', '.join(known)}") from missing
    if len(values) == 1:
        return _Height(Mean(values[0], _over_trials(results[0], metric)))
    is_few = len(values) < MIN_BAND_SEEDS
    return _Height(mean_of(values, is_rate=metric == "success_rate"), values if is_few else ())


def _over_trials(result: Mapping[str, Any], metric: str) -> tuple[float, float] | None:
    if metric == "return_mean":
        low, high = result["return_ci95"]
    elif metric == "success_rate":
        trials = float(result["trials"])
        (low,), (high,) = wilson_ci95(np.array([result[metric] * trials]), np.array([trials]))
    else:
        return None
    return float(low), float(high)


def _num_seeds(groups: Sequence[Group]) -> str:
    """Return the number of seeds in words."""
    counts = sorted(len(group.runs) for group in groups)
    fewest, most = counts[0], counts[-1]
    if most == 1:
        return "one seed"
    return f"{most} seeds" if fewest == most else f"{fewest} to {most} seeds"


def _result(run: Path) -> Mapping[str, Any]:
    result = read_result(run)
    if result is None:
        raise UserError(f"{run} is not finished: remove it, or yamame resume {shlex.quote(str(run))}")
    return result
