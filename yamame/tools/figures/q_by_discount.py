"""Values at every discount that is trained for (fig. 12): through training, or along a trial.

Through training: what each kept checkpoint thinks of the same stored trajectories, on average over their steps.
Along a trial: what one checkpoint thinks at each step of a trial that it plays.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from jaxtyping import Float64

from yamame.algorithms.amago.agent import Agent
from yamame.algorithms.amago.config import AMAGOConfig
from yamame.data.trajectory import Trajectory
from yamame.data.verify import iter_valid_trajectories
from yamame.errors import UserError, check_range
from yamame.runs import LATEST, load_model, read_config
from yamame.tools.data import DataSource, task_spec_of
from yamame.tools.plots import compact, finish, new_figure
from yamame.tools.run_groups import checkpoint_updates, list_kept_checkpoints, single_run
from yamame.tools.trial_recording import analyze_trajectory, record_trial

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_TRIAL_LENGTH = 1000
"""Transitions that are looked at of a stored trajectory."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of the picture."""

    over: Literal["auto", "training", "trial"] = "auto"
    """training: the kept checkpoints; trial: the steps of one; auto: training where there are several checkpoints."""
    trajectories: int = 16
    """Of the newest stored ones, for `training`."""
    checkpoint: str = LATEST
    """latest, best, or a path, for `trial`."""
    seed: int | None = None
    """Of the trial; None: that of evaluations."""
    instruction: str = ""
    """What to do in the trial, instead of what the task would draw."""

    def __post_init__(self) -> None:
        check_range(self, "num_trajectories", ge=1)
        check_range(self, "seed", ge=0)


def draw(paths: Sequence[Path], options: Options) -> "Figure":
    """A line for each discount, the acting one dashed and black."""
    from matplotlib import colormaps

    run = single_run(paths)
    checkpoints = list_kept_checkpoints(run)
    if options.over == "training" and len(checkpoints) < 2:
        raise UserError(
            f"{run} has kept no checkpoints of its training: train with --checkpoint.milestone-interval-env-steps N"
        )
    figure, (axes,) = new_figure(width=8.2)
    if options.over == "trial" or len(checkpoints) < 2:
        played = record_trial(
            run,
            checkpoint=options.checkpoint,
            seed=options.seed,
            instruction=options.instruction,
            pictures=False,
            keep=1,
        )
        x, q_XG, discounts = np.arange(len(played)), played.insight.q_TG, played.insight.gammas_G
        axes.set(xlabel="step of the trial", title=f"Values along a trial, after {played.updates:,} updates")
        ylabel = "value of the action taken"
    else:
        trajectories = newest_trajectories(run, options.trajectories)
        x = np.array([checkpoint_updates(path) for path in checkpoints])
        judged = [mean_values(run, path, trajectories) for path in checkpoints]
        q_XG, discounts = np.stack([values for values, _ in judged]), judged[0][1]
        axes.set(xlabel="gradient updates", title=f"Values through training, {len(trajectories)} stored trajectories")
        axes.xaxis.set_major_formatter(compact)
        ylabel = "mean value of the stored actions"
    axes.set_ylabel(f"{ylabel}, in rewards")
    acting, marker = len(discounts) - 1, "o" if len(x) <= 24 else ""
    order = sorted(range(len(discounts)), key=lambda each: (discounts[each], each == acting))
    for place, number in enumerate(order):
        share = place / max(1, len(order) - 1)
        colour = "black" if number == acting else colormaps["viridis"](0.95 * share)
        label = _label(float(discounts[number])) + (" (acts)" if number == acting else "")
        axes.plot(
            x, q_XG[:, number], color=colour, linestyle="--" if number == acting else "-", linewidth=1.8,
            marker=marker, markersize=3.5, label=label,
        )  # fmt: skip
    axes.legend(
        frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), reverse=True, title="discount γ",
        title_fontsize=9,
    )  # fmt: skip
    return finish(figure)


def newest_trajectories(run: Path, count: int) -> list[Trajectory]:
    """Of the run's replay; `UserError` where it holds none."""
    newest = deque(iter_valid_trajectories(DataSource.from_path(run).store, task_spec_of(run).schema), maxlen=count)
    if not newest:
        raise UserError(f"the replay of {run} is empty: let it train longer, or give --x-axis trial")
    return list(newest)


def mean_values(
    run: Path, checkpoint: Path, trajectories: Sequence[Trajectory]
) -> tuple[Float64[np.ndarray, "G"], Float64[np.ndarray, "G"]]:
    """Mean value of the actions of the first `LONGEST` steps of each trajectory, at every discount; and these."""
    model, _ = load_model(run, str(checkpoint))
    algorithm = read_config(run).algorithm
    assert isinstance(model, Agent) and isinstance(algorithm, AMAGOConfig)
    scale = algorithm.learner.td.reward_scale
    found = [analyze_trajectory(model, each, reward_scale=scale, keep=1) for each in trajectories]
    steps = np.concatenate([each.q_TG[:MAX_TRIAL_LENGTH] for each in found])
    return steps.mean(axis=0).astype(np.float64), found[0].gammas_G.astype(np.float64)


def _label(discount: float) -> str:
    return f"{discount:.5f}".rstrip("0")
