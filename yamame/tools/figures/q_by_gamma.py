"""Values at every gamma, through training or along a trial (fig. 12).

Through training: mean values of the same stored trajectories for each kept checkpoint.
Along a trial: values at each step of a trial that one checkpoint plays.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from jaxtyping import Float64

from yamame.algorithms.analysis import SupportsAnalysis
from yamame.data.trajectory import Trajectory
from yamame.errors import UserError, check_range
from yamame.runs.directory import LATEST
from yamame.tools.options import config_with_env
from yamame.tools.plots import compact, new_figure, set_whole_ticks
from yamame.tools.run_data import iter_trajectories
from yamame.tools.run_groups import checkpoint_updates, list_kept_checkpoints, single_run
from yamame.tools.trial_recording import record_trial
from yamame.training.trained_run import load_trained_run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NO_ANALYSIS = "{run} has no values by gamma: q-by-gamma needs an algorithm with an analysis, and the critics"
MAX_TRIAL_LENGTH = 1000
"""Transitions used of a stored trajectory."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of the figure."""

    x_axis: Literal["auto", "training", "trial"] = "auto"
    """training: the kept checkpoints; trial: the steps of a trial; auto: training if there are several checkpoints."""
    num_trajectories: int = 16
    """Number of trajectories, the newest in the replay store, for `training`."""
    checkpoint: str = LATEST
    """latest, best, or a path, for `trial`."""
    seed: int | None = None
    """Seed of the trial; None: that of evaluations."""
    env: str = ""
    """Environment of the trial: your module:function, or a Gymnasium id; empty: that of the run."""
    instruction: str = ""
    """Instruction of the trial; empty: sampled by the task."""

    def __post_init__(self) -> None:
        check_range(self, "num_trajectories", ge=1)
        check_range(self, "seed", ge=0)


def draw(paths: Sequence[Path], options: Options) -> "Figure":
    """A line per gamma, the acting one dashed and black."""
    from matplotlib import colormaps

    run = single_run(paths)
    checkpoints = list_kept_checkpoints(run)
    if options.x_axis == "training" and len(checkpoints) < 2:
        raise UserError(
            f"{run} has no checkpoints of its training: train with --checkpoint.milestone-interval-env-steps N"
        )
    figure, (axes,) = new_figure(width=8.2)
    if options.x_axis == "trial" or len(checkpoints) < 2:
        played = record_trial(
            load_trained_run(run, options.checkpoint, config_with_env(run, options.env or None)),
            seed=options.seed,
            instruction=options.instruction,
            frames=False,
            keep=1,
        )
        if played.analysis is None or played.analysis.q_TG is None:
            raise UserError(NO_ANALYSIS.format(run=run))
        x, q_XG, gammas_G = np.arange(len(played)), played.analysis.q_TG, played.analysis.gammas_G
        axes.set(xlabel="step of the trial", title=f"Values along a trial, after {played.updates:,} updates")
        set_whole_ticks(axes)
        ylabel = "value of the action taken"
    else:
        trajectories = newest_trajectories(run, options.num_trajectories)
        x = np.array([checkpoint_updates(path) for path in checkpoints])
        means = [mean_values(run, path, trajectories) for path in checkpoints]
        q_XG, gammas_G = np.stack([values for values, _ in means]), means[0][1]
        axes.set(xlabel="gradient updates", title=f"Values through training, {len(trajectories)} stored trajectories")
        set_whole_ticks(axes)
        axes.xaxis.set_major_formatter(compact)
        ylabel = "mean value of the stored actions"
    axes.set_ylabel(f"{ylabel}, in units of reward")
    acting, marker = len(gammas_G) - 1, "o" if len(x) <= 24 else ""
    order = sorted(range(len(gammas_G)), key=lambda each: (gammas_G[each], each == acting))
    for place, number in enumerate(order):
        fraction = place / max(1, len(order) - 1)
        line_color = "black" if number == acting else colormaps["viridis"](0.95 * fraction)
        label = f"{gammas_G[number]:.5f}".rstrip("0") + (" (acting)" if number == acting else "")
        axes.plot(
            x, q_XG[:, number], color=line_color, linestyle="--" if number == acting else "-", linewidth=1.8,
            marker=marker, markersize=3.5, label=label,
        )  # fmt: skip
    axes.legend(
        frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), reverse=True, title="gamma",
        title_fontsize=9,
    )  # fmt: skip
    return figure


def newest_trajectories(run: Path, count: int) -> list[Trajectory]:
    """Return the newest trajectories of the run's replay store. Raises `UserError` if it is empty."""
    newest = deque(iter_trajectories(run), maxlen=count)
    if not newest:
        raise UserError(f"the replay store of {run} is empty: train longer, or use --x-axis trial")
    return list(newest)


def mean_values(
    run: Path, checkpoint: Path, trajectories: Sequence[Trajectory]
) -> tuple[Float64[np.ndarray, "G"], Float64[np.ndarray, "G"]]:
    """Return mean values of the actions at every gamma, and the gammas."""
    trained = load_trained_run(run, str(checkpoint))
    algorithm = trained.config.algorithm
    if not isinstance(algorithm, SupportsAnalysis):
        raise UserError(NO_ANALYSIS.format(run=run))
    found = [algorithm.analyze(trained.model, each, keep=1) for each in trajectories]
    values = [(each.q_TG, each.gammas_G) for each in found if each.q_TG is not None]
    steps = np.concatenate([q_TG[:MAX_TRIAL_LENGTH] for q_TG, _ in values])
    return steps.mean(axis=0).astype(np.float64), values[0][1].astype(np.float64)
