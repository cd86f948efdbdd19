"""MazeRunner: find a sequence of places in a maze that one has never seen (paper, section 5 and appendix C.4)."""

from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from jaxtyping import Bool, Float32, Float64, Int16, Int64, Shaped, UInt8

from yamame.data.goals import ACHIEVED_KEY, DESIRED_KEY, NO_GOAL
from yamame.envs.base import TrialVectorEnv
from yamame.envs.rendering import AGENT, FLOOR, GOAL, WALL, GridCanvas
from yamame.envs.vector.gymnasium_adapter import GymnasiumVectorAdapter
from yamame.envs.vector.numpy_env import NumpyVectorEnv, parse_reset_options
from yamame.envs.wrappers.instruction import GoalEnvConfig, make_instruction_trials
from yamame.errors import UserError, check_range

WEST, NORTH, EAST, SOUTH, STAY = range(5)
MIN_SIZE = 6
WALL_DENSITY = 0.75
"""Walls that are begun, as a share of all places where one could be."""
STEPS_PER_SIDE = 7.5
"""Steps after which a wall stops growing, per cell of the side."""
SPAWN_ROWS = 4
"""Rows above the lower border that are the same in every maze of a size."""


def side_length(size: int) -> int:
    """Cells along one side: odd, so 30 makes 31."""
    return 2 * (size // 2) + 1


def start_cell(side: int) -> int:
    """The lower end of the tunnel in which every episode begins."""
    return (side - 2) * side + side // 2


def max_safe_goals(side: int) -> int:
    """Cells but the start that are free in every maze: those of the spawn rows without the tunnel's two walls."""
    return SPAWN_ROWS * (side - 2) - 2 * (SPAWN_ROWS - 1) - 1


def sample_maze(rng: np.random.Generator, side: int) -> Bool[np.ndarray, "side side"]:
    """A random maze of an odd side of at least 7, True where there is a wall.

    Posts are the cells of even row and column. A wall begins at a random post and grows: at every step it looks at a
    random post two cells away, and where that is free goes there. At last the spawn rows are cleared and get a tunnel.

    Walls only ever grow to free posts, so they enclose nothing: every free cell can be reached from every other, which
    the spawn rows do not change. Same distribution as the authors' code, which takes it from mazelab.
    """
    near = _posts_around(side)
    posts = list(near)
    chance = Random(int(rng.integers(2**63))).random  # drawn one by one, where NumPy's would take most of the time
    grid = np.zeros((side, side), np.bool_)
    grid[[0, -1]] = grid[:, [0, -1]] = True
    wall = bytearray(grid.tobytes())
    for _ in range(int(WALL_DENSITY * (side // 2) ** 2)):
        post = posts[int(chance() * len(posts))]
        wall[post] = True
        for _ in range(int(STEPS_PER_SIDE * side)):
            around = near[post]
            ahead = around[int(chance() * len(around))]
            if not wall[ahead]:
                wall[ahead] = wall[(post + ahead) // 2] = True
                post = ahead
            elif all(map(wall.__getitem__, around)):
                break
    return _with_spawn_rows(np.frombuffer(wall, np.bool_).reshape(side, side))


def free_distances(wall: Bool[np.ndarray, "mazes side side"]) -> Int16[np.ndarray, "mazes side side 4"]:
    """Free cells between each free cell and the next wall to the west, north, east and south. (Walls: meaningless.)"""
    side = wall.shape[1]
    column = np.arange(side, dtype=np.int16)
    row = column[:, None]
    west = np.maximum.accumulate(np.where(wall, column, 0), axis=2)
    north = np.maximum.accumulate(np.where(wall, row, 0), axis=1)
    east = np.minimum.accumulate(np.where(wall, column, side)[:, :, ::-1], axis=2)[:, :, ::-1]
    south = np.minimum.accumulate(np.where(wall, row, side)[:, ::-1], axis=1)[:, ::-1]
    return np.stack([column - west, row - north, east - column, south - row], axis=3).astype(np.int16) - np.int16(1)


def shortest_paths(wall: Bool[np.ndarray, "side side"], cell: int) -> Int64[np.ndarray, "cells"]:
    """Fewest steps from one free cell to every cell, by a breadth-first search; -1 where there is no way."""
    side = len(wall)
    blocked = wall.ravel().tolist()
    steps = [-1] * side**2
    steps[cell] = 0
    edge = [cell]
    while edge:
        beyond = []
        for here in edge:
            for there in (here - 1, here - side, here + 1, here + side):
                if steps[there] < 0 and not blocked[there]:
                    steps[there] = steps[here] + 1
                    beyond.append(there)
        edge = beyond
    return np.array(steps)


@cache
def _posts_around(side: int) -> dict[int, tuple[int, ...]]:
    """Every post and those two cells away from it."""
    even = range(0, side, 2)
    return {
        row * side + column: tuple(
            r * side + c
            for r, c in ((row, column - 2), (row - 2, column), (row, column + 2), (row + 2, column))
            if 0 <= r < side and 0 <= c < side
        )
        for row in even
        for column in even
    }


def _with_spawn_rows(wall: Bool[np.ndarray, "side side"]) -> Bool[np.ndarray, "side side"]:
    side = len(wall)
    top, bottom, middle = side - 1 - SPAWN_ROWS, side - 1, side // 2
    wall[top:bottom, 1:-1] = False
    wall[top + 1 : bottom, [middle - 1, middle + 1]] = True
    return wall


Actions = Literal["discrete", "continuous"]
"""Kinds of actions. Discrete: west, north, east, south, stay. Continuous: `[down, right]` in [-1, 1], of which the
larger decides the axis (`down` if they are equal) and its sign the way; 0 is up or left."""


class MazeRunnerVectorEnv(NumpyVectorEnv):
    """E mazes in one call, each of `side_length(size)` cells along both sides, with cells numbered as in `maze_layout`.

    A task is a maze, and an instruction: k cells, k uniform in 1 .. `max_goals`, drawn without replacement from the
    free ones but the start; all of them can be reached. With `rewired` it is also a permutation of the directions that
    the actions stand for. Walls stop.

    Observation `[E, 6]`: row and column, then the free cells to the west, north, east and south, all over the side; the
    first two are left out without `position`. A goal is (row, column), in cells; the achieved one is where the agent
    is. Source: paper, appendix C.4.1. Differs from the paper's text: discrete actions have a fifth, stay, as in the
    authors' code. How they map continuous actions is not published; what `Actions` says is ours.

    Reset by `options["reset_mask"]`, on the same task where `options["new_task"]` is false.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        size: int = 15,
        actions: Actions = "discrete",
        rewired: bool = False,
        position: bool = True,
        max_goals: int = 3,
        render_mode: str | None = None,
    ) -> None:
        if size < MIN_SIZE:
            raise UserError(f"size is {size}: give at least {MIN_SIZE}")
        self.side = side = side_length(size)
        if not 1 <= max_goals <= max_safe_goals(side):
            raise UserError(f"max_goals is {max_goals}: give 1 to {max_safe_goals(side)} in a maze of size {size}")
        super().__init__(render_mode)
        self.num_envs, self.max_goals, self.rewired = num_envs, max_goals, rewired
        self._sees_position, self._continuous = position, actions == "continuous"
        self.single_observation_space = spaces.Dict(
            {
                "observation": spaces.Box(0.0, 1.0, (6 if position else 4,), np.float32),
                ACHIEVED_KEY: spaces.Box(NO_GOAL, side - 1, (1, 2), np.float32),
                DESIRED_KEY: spaces.Box(NO_GOAL, side - 1, (max_goals, 2), np.float32),
            }
        )
        self.single_action_space = spaces.Box(-1.0, 1.0, (2,), np.float32) if self._continuous else spaces.Discrete(5)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.wall = np.ones((num_envs, side, side), np.bool_)
        self.goal = np.full((num_envs, max_goals), -1)
        """Cells of the instruction, in order; -1 behind the last, and before the first reset."""
        self.wiring = np.tile(np.arange(4 if self._continuous else 5), (num_envs, 1))
        """The direction that each action (of continuous ones: each axis and sign) stands for."""
        self.cell = np.full(num_envs, start_cell(side))
        self._free_ahead = np.zeros((num_envs, side * side, 4), np.int16)
        self._place = np.stack(np.divmod(np.arange(side * side), side), axis=1).astype(np.float32)
        self._way = np.array([-1, -side, 1, side, 0])
        self._instruction = np.full((num_envs, max_goals, 2), NO_GOAL, np.float32)
        self._rows = np.arange(num_envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Float32[np.ndarray, "E ..."]], dict[str, Any]]:
        """Back to the start in the rows of the mask."""
        super().reset(seed=seed)
        rows, new_task = parse_reset_options(options, self.goal[:, 0] >= 0)
        if new_task.any():
            self._sample_tasks(np.flatnonzero(new_task))
        self.cell[rows] = start_cell(self.side)
        self.show()
        return self._observe(), {}

    def step(
        self, actions: Shaped[np.ndarray, "E ..."]
    ) -> tuple[
        dict[str, Float32[np.ndarray, "E ..."]],
        Float64[np.ndarray, "E"],
        Bool[np.ndarray, "E"],
        Bool[np.ndarray, "E"],
        dict[str, Any],
    ]:
        """One step in every maze. Rewards are 0 and nothing ends: these follow from the instruction."""
        chosen = _direction(actions) if self._continuous else actions
        ahead = self.cell + self._way[self.wiring[self._rows, chosen]]
        blocked = self.wall.reshape(self.num_envs, -1)[self._rows, ahead]
        self.cell = np.where(blocked, self.cell, ahead)
        never = np.zeros(self.num_envs, np.bool_)
        self.show()
        return self._observe(), np.zeros(self.num_envs), never, never.copy(), {}

    def set_tasks(
        self,
        rows: Int64[np.ndarray, "tasks"],
        wall: Bool[np.ndarray, "tasks side side"],
        goal: Int64[np.ndarray, "tasks goals"],
    ) -> None:
        """Put mazes and instructions of your own into some rows; go on with a `reset` whose `new_task` is false.

        Outermost cells must be walls, the start must be free. `goal`: cells in order, -1 behind the last.
        """
        self.wall[rows], self.goal[rows] = wall, goal
        self._free_ahead[rows] = free_distances(wall).reshape(len(rows), -1, 4)
        self._instruction[rows] = np.where(goal[:, :, None] < 0, NO_GOAL, self._place[goal])

    def _sample_tasks(self, rows: Int64[np.ndarray, "tasks"]) -> None:
        rng = self.np_random
        wall = np.stack([sample_maze(rng, self.side) for _ in rows])
        taken = wall.reshape(len(rows), -1).copy()
        taken[:, start_cell(self.side)] = True
        chance = np.where(taken, 1.0, rng.random(taken.shape))
        goal = chance.argpartition(range(self.max_goals), axis=1)[:, : self.max_goals]
        used = np.arange(self.max_goals) < rng.integers(1, self.max_goals + 1, (len(rows), 1))
        self.set_tasks(rows, wall, np.where(used, goal, -1))
        if self.rewired:
            self.wiring[rows] = rng.permuted(np.sort(self.wiring[rows], axis=1), axis=1)

    def _observe(self) -> dict[str, Float32[np.ndarray, "E ..."]]:
        here = self._place[self.cell]
        ahead = self._free_ahead[self._rows, self.cell]
        seen = np.concatenate([here, ahead], axis=1) if self._sees_position else ahead
        return {
            "observation": (seen / self.side).astype(np.float32),
            ACHIEVED_KEY: here[:, None],
            DESIRED_KEY: self._instruction.copy(),
        }

    def render_single(self, index: int) -> UInt8[np.ndarray, "height width 3"]:
        """What one maze looks like: the agent red, all goals of its instruction green, in their order."""
        board = GridCanvas(self.side, self.side, WALL)
        for cell in np.flatnonzero(~self.wall[index]):
            board.fill(*self._xy(cell), FLOOR)
        for number, cell in enumerate(self.goal[index][self.goal[index] >= 0], start=1):
            board.fill(*self._xy(cell), GOAL)
            board.text(*self._xy(cell), str(number), FLOOR)
        board.disc(*self._xy(self.cell[index]), AGENT, share=0.7)
        return board.image

    def _xy(self, cell: np.integer[Any]) -> tuple[int, int]:
        """Where a cell is on the board."""
        from_top, column = divmod(int(cell), self.side)
        return column, self.side - 1 - from_top


def _direction(actions: Float32[np.ndarray, "E 2"]) -> Int64[np.ndarray, "E"]:
    """The direction that continuous actions stand for, before any rewiring."""
    down, right = actions[:, 0], actions[:, 1]
    vertical = np.abs(down) >= np.abs(right)
    return np.where(vertical, np.where(down > 0, SOUTH, NORTH), np.where(right > 0, EAST, WEST))


@dataclass(frozen=True, kw_only=True)
class MazeRunnerConfig(GoalEnvConfig):
    """One episode in an unknown maze: explore it, and remember where one has been."""

    max_goals: int = 3
    """Sub-goals of the longest instruction; 1: the ablation "w/o multi-goal"."""
    size: int = 15
    """Cells along one side of the maze; an even number means one more."""
    horizon: int | None = None
    """Steps of a trial; None: the paper's 400 for size 15, 1000 for 30, and on the line through both for others."""
    actions: Actions = "discrete"
    """Five actions, or two numbers of which the larger decides where to go."""
    rewired: bool = False
    """Draw with every maze which action goes where; otherwise it is always the same."""
    position: bool = True
    """Tell the agent where it is; otherwise it has to follow from what it has seen and done."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "size", ge=MIN_SIZE)
        check_range(self, "horizon", ge=1)
        check_range(self, "max_goals", le=max_safe_goals(side_length(self.size)))

    @property
    def task_name(self) -> str:
        """Such as `maze-runner-15x15`, or `maze-runner-30x30-continuous-rewired-no-position`."""
        kind = (
            (self.actions == "continuous", "continuous"),
            (self.rewired, "rewired"),
            (not self.position, "no-position"),
        )
        return "-".join([f"maze-runner-{self.size}x{self.size}", *(word for it_is, word in kind if it_is)])

    @property
    def max_trial_steps(self) -> int:
        """The horizon."""
        return self.horizon or 400 + 75 * ((side_length(self.size) - 15) // 2)

    @property
    def action_names(self) -> tuple[str, ...]:
        """See `EnvConfig.action_names`."""
        return ("down", "right") if self.actions == "continuous" else ("west", "north", "east", "south", "stay")

    def build(self, num_envs: int, seed: int) -> TrialVectorEnv:
        """See `EnvConfig.build`."""
        mazes = MazeRunnerVectorEnv(
            num_envs,
            size=self.size,
            actions=self.actions,
            rewired=self.rewired,
            position=self.position,
            max_goals=self.max_goals,
        )
        return make_instruction_trials(
            GymnasiumVectorAdapter(mazes, seed), horizon=self.max_trial_steps, hide_future_goals=self.hide_future_goals
        )
