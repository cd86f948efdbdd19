"""Which goals relabeling asks for in hindsight: by rarity, and if all were alike (fig. 27).

Given that a goal was achieved in a stored trajectory that can be told anew: the chance that it is the first which is
put into the instruction. Exact, from the run's replay and from what its checkpoint knows of the rarity of goals.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from yamame.algorithms.amago.goal_statistics import GoalStatistics
from yamame.algorithms.amago.relabeling import Relabeler
from yamame.checkpoint import load_latest_checkpoint
from yamame.data.trajectory import Trajectory
from yamame.data.verify import iter_valid_trajectories
from yamame.envs.wrappers.instruction import GoalEnvConfig
from yamame.errors import UserError, check_range
from yamame.run_dir import CHECKPOINTS
from yamame.run_state import load_goal_statistics
from yamame.runs import read_config
from yamame.tools.data import DataSource, task_spec_of
from yamame.tools.plots import COLORS, RANDOM_COLOR, finish, new_figure, plain
from yamame.tools.run_groups import single_run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of the picture."""

    goals: int = 20
    """Goals that are shown at most, evenly spread from the commonest to the rarest."""
    trajectories: int = 2000
    """The oldest so many of the replay are looked at."""

    def __post_init__(self) -> None:
        check_range(self, "num_goals", ge=2)
        check_range(self, "num_trajectories", ge=1)


@dataclass(frozen=True, kw_only=True)
class Priority:
    """What becomes of one goal."""

    goal: tuple[float, ...]
    frequency: float
    """Share of the trajectories that can be relabeled in which it was achieved."""
    by_rarity: float
    """Mean chance to be chosen, in those."""
    uniform: float
    """The like if all that were achieved are alike."""


def draw(paths: Sequence[Path], options: Options) -> "Figure":
    """Left: how often each goal is achieved. Right: its chance to be chosen, by rarity and uniformly."""
    run = single_run(paths)
    config = read_config(run)
    env = config.env
    if not isinstance(env, GoalEnvConfig):
        raise UserError(f"{run} has no instructions ({env.task_name}): relabeling-priorities needs a run that has")
    statistics = load_goal_statistics(load_latest_checkpoint(run / CHECKPOINTS))
    trajectories = list(
        islice(iter_valid_trajectories(DataSource.from_path(run).store, task_spec_of(run).schema), options.trajectories)
    )
    relabel = replace(config.replay.relabel, importance_sampling=True)
    found = priorities(
        trajectories, statistics, Relabeler(relabel), Relabeler(replace(relabel, importance_sampling=False))
    )
    if not found:
        raise UserError(f"the replay of {run} holds nothing that could be relabeled: let it train longer")
    shown = [found[at] for at in np.unique(np.linspace(0, len(found) - 1, min(options.goals, len(found))).astype(int))]

    places = np.arange(len(shown))
    figure, (often, chosen) = new_figure(
        columns=2, width=9.6, height=1.6 + 0.3 * len(shown), sharey=True, gridspec_kw={"width_ratios": [2, 3]}
    )
    often.barh(places, [100 * each.frequency for each in shown], 0.7, color=RANDOM_COLOR)
    chosen.barh(places - 0.19, [100 * each.by_rarity for each in shown], 0.38, color=COLORS[0], label="by rarity")
    chosen.barh(places + 0.19, [100 * each.uniform for each in shown], 0.38, color=COLORS[6], label="uniformly")
    often.set_yticks(places, [plain(env.goal_text(np.array(each.goal, np.float32))) for each in shown])
    often.invert_yaxis()
    often.set(xlabel="% of trajectories that achieve it", title="How common a goal is")
    count = f"{len(shown)} of {len(found)} goals" if len(shown) < len(found) else f"{len(found)} goals"
    chosen.set(xlabel="% chance to be chosen where it was achieved", title=f"What relabeling picks ({count})")
    chosen.legend(frameon=False, fontsize=9, loc="lower right")
    for axes in (often, chosen):
        axes.grid(axis="y", visible=False)
    return finish(figure)


def priorities(
    trajectories: Sequence[Trajectory], statistics: GoalStatistics, by_rarity: Relabeler, uniform: Relabeler
) -> list[Priority]:
    """Of all goals that were achieved in trajectories that can be relabeled, the commonest first."""
    chances: dict[tuple[float, ...], list[tuple[float, float]]] = {}
    usable = 0
    for trajectory in trajectories:
        candidates = by_rarity.candidates(trajectory)
        if candidates is None or not len(candidates[0]):
            continue
        usable += 1
        rare, alike = (each.first_choice_prob(*candidates, statistics) for each in (by_rarity, uniform))
        goals, of_candidate = np.unique(candidates[1], axis=0, return_inverse=True)
        for number, goal in enumerate(goals):
            here = of_candidate.reshape(-1) == number
            chances.setdefault(tuple(map(float, goal)), []).append((rare[here].sum(), alike[here].sum()))
    means = {goal: np.mean(of_goal, axis=0) for goal, of_goal in chances.items()}
    found = [
        Priority(goal=goal, frequency=len(chances[goal]) / usable, by_rarity=float(rare), uniform=float(alike))
        for goal, (rare, alike) in means.items()
    ]
    return sorted(found, key=lambda priority: (-priority.frequency, priority.goal))
