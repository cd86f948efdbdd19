"""Difficulty of MazeRunner's tasks: steps of a tree search with the map, and of one that explores."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64

from yamame.envs.maze_runner import (
    EAST,
    NORTH,
    SOUTH,
    WEST,
    MazeRunnerConfig,
    MazeRunnerVectorEnv,
    free_distances,
    start_cell,
)

NEVER = -1
"""Stands for the number of steps to a goal that cannot be reached."""


@dataclass(frozen=True, kw_only=True)
class MazeDifficulty:
    """Steps after which each sub-goal of many random tasks is completed; `NEVER` where there is no way.

    Source: paper, appendix C.4.1, which chose the horizons by such statistics of an oracle. It gives no numbers.
    """

    length: Int64[np.ndarray, "tasks"]
    """k: sub-goals of each instruction."""
    oracle: Int64[np.ndarray, "tasks goals"]
    """For one who knows the maze: as few as there can be. Columns from the k-th on repeat the k-th."""
    explorer: Int64[np.ndarray, "tasks goals"]
    """For one who believes that everything not seen yet is free, and always takes the shortest way by that."""

    @property
    def reachable(self) -> float:
        """Fraction of the instructions that can be completed at all."""
        return float((self.oracle[:, -1] != NEVER).mean())

    def completed(self, steps: Int64[np.ndarray, "tasks goals"], horizon: int) -> float:
        """Fraction of the instructions that `oracle` or `explorer` completes within the horizon."""
        return float(((steps[:, -1] != NEVER) & (steps[:, -1] <= horizon)).mean())

    def mean_return(self, steps: Int64[np.ndarray, "tasks goals"], horizon: int) -> float:
        """Sub-goals that `oracle` or `explorer` completes within the horizon, on average."""
        its_own = np.arange(steps.shape[1]) < self.length[:, None]
        return float(((steps != NEVER) & (steps <= horizon) & its_own).sum(axis=1).mean())


def maze_difficulty(config: MazeRunnerConfig, *, tasks: int = 1000, seed: int = 0) -> MazeDifficulty:
    """The statistics of so many tasks of a config; what its agents do or see plays no part."""
    mazes = MazeRunnerVectorEnv(tasks, size=config.size, max_goals=config.max_goals)
    mazes.reset(seed=seed)
    oracle = [oracle_steps(wall, goals) for wall, goals in zip(mazes.wall, mazes.goal, strict=True)]
    explorer = [explorer_steps(wall, goals) for wall, goals in zip(mazes.wall, mazes.goal, strict=True)]
    length = (mazes.goal >= 0).sum(axis=1)
    return MazeDifficulty(length=length, oracle=np.array(oracle), explorer=np.array(explorer))


def oracle_steps(wall: Bool[np.ndarray, "side side"], goals: Int64[np.ndarray, "goals"]) -> list[int]:
    """Steps after which an oracle with the map completes each goal (cells in order, -1 behind the last)."""
    here, steps, after = start_cell(len(wall)), 0, []
    for goal in goals:
        if goal >= 0 and steps != NEVER:
            leg = int(shortest_paths(wall, here)[goal])
            steps = NEVER if leg < 0 else steps + leg
            here = int(goal)
        after.append(steps)
    return after


def explorer_steps(wall: Bool[np.ndarray, "side side"], goals: Int64[np.ndarray, "goals"]) -> list[int]:
    """Steps after which one who knows what was seen so far completes each goal.

    It knows the border and the walls that the four sensors end at, believes all else to be free, and steps to the
    neighbour nearest to the goal by that belief: of equals to the first of west, north, east and south.
    """
    side = len(wall)
    known = np.zeros(side * side, np.bool_)
    known.reshape(side, side)[[0, -1]] = known.reshape(side, side)[:, [0, -1]] = True
    walls_seen = _walls_seen(wall)
    here, steps, after = start_cell(side), 0, []
    for goal in goals:
        while goal >= 0 and steps != NEVER and here != goal:
            known[walls_seen[here]] = True
            believed = shortest_paths(known.reshape(side, side), int(goal))
            around = np.array([here - 1, here - side, here + 1, here + side])
            nearest = np.where(believed[around] < 0, side * side, believed[around]).argmin()
            steps = NEVER if believed[here] < 0 else steps + 1
            here = int(around[nearest])
        after.append(steps)
    return after


def _walls_seen(wall: Bool[np.ndarray, "side side"]) -> Int64[np.ndarray, "cells 4"]:
    """The wall that ends the sight in each direction, from every free cell."""
    side = len(wall)
    way = np.array([-1, -side, 1, side])
    ahead = free_distances(wall[None])[0].reshape(-1, 4).astype(np.int64) + 1
    return np.arange(side * side)[:, None] + way[[WEST, NORTH, EAST, SOUTH]] * ahead


def shortest_paths(wall: Bool[np.ndarray, "side side"], cell: int) -> Int64[np.ndarray, "cells"]:
    """Return the minimum number of steps from one free cell to every cell; -1 where there is no path."""
    side = len(wall)
    blocked = wall.ravel().tolist()
    steps = [-1] * side**2
    steps[cell] = 0
    frontier = [cell]
    while frontier:
        reached = []
        for here in frontier:
            for there in (here - 1, here - side, here + 1, here + side):
                if steps[there] < 0 and not blocked[there]:
                    steps[there] = steps[here] + 1
                    reached.append(there)
        frontier = reached
    return np.array(steps)
