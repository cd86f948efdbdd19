"""Which goals relabeling chooses, with and without importance sampling (fig. 27).

The probability that an achieved goal is the first one inserted into the instruction of a stored trajectory. Exact,
from the replay store of a run and the goal frequencies in its checkpoint.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from yamame.data.relabeling import GoalStatistics, Relabeler
from yamame.data.trajectory import Trajectory
from yamame.envs.config import GoalEnvConfig
from yamame.errors import UserError, check_range
from yamame.runs.checkpoint import load_latest_checkpoint
from yamame.runs.directory import CHECKPOINTS
from yamame.tools.palette import COLORS, RANDOM_COLOR
from yamame.tools.plots import legend_below, new_figure, plain
from yamame.tools.run_data import iter_trajectories
from yamame.tools.run_groups import single_run
from yamame.training.run_files import read_config
from yamame.training.state import load_goal_statistics

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of the figure."""

    num_goals: int = 20
    """Largest number of goals shown, evenly spaced from the most common to the rarest."""
    num_trajectories: int = 2000
    """Number of trajectories read, the oldest first."""

    def __post_init__(self) -> None:
        check_range(self, "num_goals", ge=2)
        check_range(self, "num_trajectories", ge=1)


@dataclass(frozen=True, kw_only=True)
class Priority:
    """Frequency and probabilities of one goal."""

    goal: tuple[float, ...]
    frequency: float
    """Fraction of the trajectories that can be relabeled in which it was achieved."""
    importance: float
    """Mean probability to be chosen in those, with importance sampling."""
    uniform: float
    """The same without importance sampling."""


def draw(paths: Sequence[Path], options: Options) -> "Figure":
    """Left: how often each goal is achieved. Right: its probability to be chosen."""
    run = single_run(paths)
    config = read_config(run)
    env = config.env
    if not isinstance(env, GoalEnvConfig):
        raise UserError(f"{run} has no instructions ({env.task_name}): give a run with instructions")
    statistics = load_goal_statistics(load_latest_checkpoint(run / CHECKPOINTS))
    trajectories = list(islice(iter_trajectories(run), options.num_trajectories))
    relabel = replace(config.replay.relabel, importance_sampling=True)
    goals = priorities(
        trajectories, statistics, Relabeler(relabel), Relabeler(replace(relabel, importance_sampling=False))
    )
    if not goals:
        raise UserError(f"the replay store of {run} has no trajectory that can be relabeled: train longer")
    spaced = np.linspace(0, len(goals) - 1, min(options.num_goals, len(goals)))
    shown = [goals[at] for at in np.unique(spaced.astype(int))]

    places = np.arange(len(shown))
    figure, (frequency, chosen) = new_figure(
        columns=2, width=9.6, height=1.6 + 0.3 * len(shown), sharey=True, gridspec_kw={"width_ratios": [2, 3]}
    )
    frequency.barh(places, [100 * each.frequency for each in shown], 0.7, color=RANDOM_COLOR)
    chosen.barh(
        places - 0.19, [100 * each.importance for each in shown], 0.38, color=COLORS[0], label="importance sampling"
    )
    chosen.barh(places + 0.19, [100 * each.uniform for each in shown], 0.38, color=COLORS[6], label="uniform")
    frequency.set_yticks(places, [plain(env.goal_text(np.array(each.goal, np.float32))) for each in shown])
    frequency.invert_yaxis()
    frequency.set(xlabel="% of trajectories that achieve it", title="Goal frequency")
    count = f"{len(shown)} of {len(goals)} goals" if len(shown) < len(goals) else f"{len(goals)} goals"
    chosen.set(xlabel="% probability to be chosen if achieved", title=f"Goals that relabeling inserts ({count})")
    legend_below(chosen)
    for axes in (frequency, chosen):
        axes.grid(axis="y", visible=False)
    return figure


def priorities(
    trajectories: Sequence[Trajectory], statistics: GoalStatistics, importance: Relabeler, uniform: Relabeler
) -> list[Priority]:
    """Return all goals achieved in trajectories that can be relabeled, the most common first."""
    probs: dict[tuple[float, ...], list[tuple[float, float]]] = {}
    usable = 0
    for trajectory in trajectories:
        candidates = importance.candidates(trajectory)
        if candidates is None or not len(candidates[0]):
            continue
        usable += 1
        weighted, equal = (each.first_choice_prob(*candidates, statistics) for each in (importance, uniform))
        goals, of_candidate = np.unique(candidates[1], axis=0, return_inverse=True)
        for number, goal in enumerate(goals):
            here = of_candidate.reshape(-1) == number
            probs.setdefault(tuple(map(float, goal)), []).append((weighted[here].sum(), equal[here].sum()))
    means = {goal: np.mean(of_goal, axis=0) for goal, of_goal in probs.items()}
    found = [
        Priority(goal=goal, frequency=len(probs[goal]) / usable, importance=float(weighted), uniform=float(equal))
        for goal, (weighted, equal) in means.items()
    ]
    return sorted(found, key=lambda priority: (-priority.frequency, priority.goal))
