"""Exploration noise over the steps of a trial and over training (fig. 13)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64, Int64

from yamame.collect.exploration import ExplorationConfig, NoExploration
from yamame.data.actions import num_choices
from yamame.errors import UserError, check_range
from yamame.tools.plots import compact, new_figure, set_whole_ticks
from yamame.tools.run_groups import single_run
from yamame.training.run_files import read_config, read_task_spec

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POINTS = 201
"""Points of a curve over training."""
NUM_SAMPLES = 2000
"""Noise scales behind the band."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of the figure."""

    num_stages: int = 5
    """Points of training with a line each, evenly spaced from start to end."""

    def __post_init__(self) -> None:
        check_range(self, "num_stages", ge=2)


def draw(paths: Sequence[Path], options: Options) -> "Figure":
    """Left: over a trial, at several points of training. Right: over training, at three steps of a trial."""
    from matplotlib import colormaps

    run = single_run(paths)
    config, task = read_config(run), read_task_spec(run)
    if isinstance(config.exploration, NoExploration) or config.offline.is_offline_only:
        raise UserError(f"{run} does not explore: exploration-schedule needs a run that explores")
    horizon: int = task.horizon
    discrete = bool(num_choices(task.action_space))
    noise_scales = config.exploration.sample_noise_scale(
        np.random.default_rng(0), NUM_SAMPLES, horizon if discrete else None
    )
    others = " with noise throughout" if discrete and config.exploration.random_end_prob else ""
    low, high = np.quantile(noise_scales, [0.1, 0.9])
    varies = bool(np.ptp(noise_scales))
    scale = 1.0 if varies else float(noise_scales[0])

    figure, (over_trial, over_training) = new_figure(columns=2, width=10.4, height=4.4, sharey=True)
    time = np.arange(horizon)
    for stage in _stages(config.exploration, time, config.env_steps, scale, options.num_stages):
        over_trial.plot(
            time, stage.level, color=colormaps["viridis"](0.05 + 0.8 * stage.progress), linewidth=2, label=stage.label,
            drawstyle="steps-mid",
        )  # fmt: skip
    env_steps = np.linspace(0, config.env_steps, POINTS).astype(np.int64)
    steps = {"first step": 0, "middle": horizon // 2, "last step": horizon - 1}
    for number, (label, step) in enumerate(steps.items()):
        level = epsilon(config.exploration, np.array([step]), horizon, env_steps, scale)[0]
        shown: dict[str, Any] = {"color": ("#4477aa", "#cc3311", "#228833")[number], "label": f"{label} of a trial"}
        over_training.plot(env_steps, level, linewidth=2, linestyle=("-", "--", ":")[number], **shown)
        if varies and number == 0:
            over_training.fill_between(
                env_steps, low * level, high * level, color="#4477aa", alpha=0.15, linewidth=0,
                label=f"8 of 10 trials{others}, first step",
            )  # fmt: skip
    unit = "probability of a random action" if discrete else "standard deviation of the noise"
    over_trial.set(xlabel="step of a trial", ylabel=f"maximum {unit}" if varies else unit, title="Over a trial")
    set_whole_ticks(over_trial)
    over_training.set(xlabel="environment steps of training", title="Over training")
    over_training.xaxis.set_major_formatter(compact)
    over_trial.set_ylim(bottom=0)
    for axes in (over_trial, over_training):
        axes.legend(frameon=False, fontsize=9, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.16))
    return figure


@dataclass(frozen=True)
class _Stage:
    """Consecutive points of training with the same schedule of a trial."""

    progress: float
    """Fraction of training at the first of them."""
    label: str
    level: Float64[np.ndarray, "T"]


def _stages(
    exploration: ExplorationConfig, time: Int64[np.ndarray, "T"], env_steps: int, noise_scale: float, count: int
) -> list[_Stage]:
    points = np.linspace(0, env_steps, count).astype(np.int64)
    levels = epsilon(exploration, time, len(time), points, noise_scale).T
    changes = [0, *(at for at in range(1, count) if not np.array_equal(levels[at], levels[at - 1]))]
    ends = [*(at - 1 for at in changes[1:]), count - 1]

    def label(first: int, last: int) -> str:
        until = f" to {compact(int(points[last]))}" if last > first else ""
        return f"after {compact(int(points[first]))}{until} steps"

    return [
        _Stage(first / (count - 1), label(first, last), levels[first])
        for first, last in zip(changes, ends, strict=True)
    ]


def epsilon(
    exploration: ExplorationConfig,
    time: Int64[np.ndarray, "T"],
    horizon: int,
    env_steps: Int64[np.ndarray, "S"],
    noise_scale: float,
) -> Float64[np.ndarray, "T S"]:
    """Return epsilon at steps of a trial, after numbers of environment steps of training."""
    noise_scales = np.full(len(time), float(noise_scale))
    columns = [exploration.epsilon(time, horizon, int(steps), noise_scales) for steps in env_steps]
    return np.stack(columns, axis=1).astype(np.float64)
