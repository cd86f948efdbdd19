"""The picture of a comparison: a learning curve with a confidence band for each arm."""

from pathlib import Path

from yamame.tools.ablate.results import AblationResults
from yamame.tools.plots import (
    HEIGHT,
    RANDOM,
    compact,
    figure_axes,
    legend_below,
    legend_height,
    plot_band,
    plot_random_baseline,
)


def draw_curves(path: Path, results: AblationResults) -> None:
    """Evaluation return against environment steps: mean over seeds, 95 % band, random actions as a dashed line."""
    arms = [(arm.arm.name, arm.curve) for arm in results.arms if arm.curve]
    labels = [name for name, _ in arms] + [RANDOM] * (results.random_return is not None)
    with figure_axes(path, height=HEIGHT + legend_height(labels)) as axes:
        for number, (name, curve) in enumerate(arms):
            plot_band(axes, curve.x, curve.mean, curve.ci95, label=name, number=number, ended=curve.solved)
        plot_random_baseline(axes, results.random_return)
        axes.set(xlabel="environment steps", ylabel="mean return of an evaluation", title=results.recipe)
        axes.set_xlim(left=0)
        axes.xaxis.set_major_formatter(compact)
        legend_below(axes)
