"""Largest activations of the Transformer through training, or of one checkpoint (fig. 14).

The largest absolute value of queries, keys, values and of the residual stream of each layer, along a trial that each
kept checkpoint plays from the same seed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float32

from yamame.errors import UserError, check_range
from yamame.nets.introspection import PROBE_POINTS
from yamame.runs.directory import CHECKPOINTS
from yamame.tools.options import config_with_env
from yamame.tools.palette import color
from yamame.tools.plots import compact, line_style, new_figure, set_whole_ticks
from yamame.tools.run_groups import checkpoint_updates, list_kept_checkpoints, single_run
from yamame.tools.trial_recording import record_trial
from yamame.training.trained_run import load_trained_run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of the figure."""

    seed: int | None = None
    """Seed of the trial; None: that of evaluations."""
    env: str = ""
    """Environment of the trial: your module:function, or a Gymnasium id; empty: that of the run."""

    def __post_init__(self) -> None:
        check_range(self, "seed", ge=0)


def draw(paths: Sequence[Path], options: Options) -> "Figure":
    """A panel per probe point with a line per layer: the maximum of a trial; bands contain 80 % of the timesteps.

    For a single checkpoint, the distribution over timesteps of each layer.
    """
    run = single_run(paths)
    checkpoints = list_kept_checkpoints(run)
    if not checkpoints:
        raise UserError(f"no checkpoint in {run / CHECKPOINTS}: the run stopped before the first one")
    largest = [max_activations(run, path, options) for path in checkpoints]
    figure, panels = new_figure(columns=len(PROBE_POINTS), width=2.3 * len(PROBE_POINTS), height=3.6)
    updates = np.array([checkpoint_updates(path) for path in checkpoints])
    for number, (axes, place) in enumerate(zip(panels, PROBE_POINTS, strict=True)):
        of_place = [each[:, number] for each in largest]
        if len(checkpoints) > 1:
            _through_training(axes, updates, of_place)
        else:
            _of_one(axes, of_place[0])
        axes.set_title(place)
        axes.set_ylim(bottom=0)
        axes.margins(x=0.04)
    panels[0].set_ylabel("largest absolute value")
    middle = panels[len(panels) // 2]
    if len(checkpoints) > 1:
        middle.legend(frameon=False, fontsize=9, ncols=6, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    return figure


def max_activations(run: Path, checkpoint: Path, options: Options) -> Float32[np.ndarray, "L P timesteps"]:
    """Return the activations of a trial of the checkpoint. Raises `UserError` without a Transformer."""
    trained = load_trained_run(run, str(checkpoint), config_with_env(run, options.env or None))
    played = record_trial(trained, seed=options.seed, frames=False, keep=1)
    max_abs_LPT = played.analysis.max_abs_LPT if played.analysis else None
    if max_abs_LPT is None:
        raise UserError(f"{run} has no Transformer: activations needs a run with a Transformer")
    return max_abs_LPT


def _through_training(
    axes: "Axes", updates: np.ndarray, of_checkpoints: Sequence[Float32[np.ndarray, "L timesteps"]]
) -> None:
    for layer in range(len(of_checkpoints[0])):
        of_layer = [each[layer] for each in of_checkpoints]
        low, high = np.array([np.quantile(each, [0.1, 0.9]) for each in of_layer]).T
        axes.fill_between(updates, low, high, color=color(layer), alpha=0.15, linewidth=0)
        axes.plot(
            updates, [each.max() for each in of_layer], color=color(layer), linestyle=line_style(layer), linewidth=2,
            marker="o", markersize=3.5, label=f"layer {layer + 1}",
        )  # fmt: skip
    axes.set_xlabel("gradient updates")
    set_whole_ticks(axes)
    axes.xaxis.set_major_formatter(compact)
    axes.locator_params(axis="x", nbins=4)


def _of_one(axes: "Axes", of_layers: Float32[np.ndarray, "L timesteps"]) -> None:
    boxes = axes.boxplot(list(of_layers), whis=(0, 100), patch_artist=True, widths=0.6)
    for layer, box in enumerate(boxes["boxes"]):
        box.set(facecolor=color(layer), alpha=0.6)
    for line in boxes["medians"]:
        line.set_color("black")
    axes.set_xlabel("layer")
    axes.grid(axis="x", visible=False)
