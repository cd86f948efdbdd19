"""MazeRunner: reach a sequence of cells in an unknown maze (paper, section 5 and appendix C.4)."""

from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from jaxtyping import Bool, Float32, Int16, Int64, Shaped, UInt8
from typing_extensions import override

from yamame.data.goals import ACHIEVED_KEY, DESIRED_KEY, NO_GOAL
from yamame.envs.base import TrialVectorEnv
from yamame.envs.config import GoalEnvConfig
from yamame.envs.rendering import AGENT, FLOOR, GOAL, WALL, GridCanvas
from yamame.envs.vector.gymnasium_adapter import GymnasiumVectorAdapter
from yamame.envs.vector.numpy_env import NumpyVectorEnv, StepResult, parse_reset_options
from yamame.envs.wrappers.instruction import make_trials
from yamame.errors import UserError, check_range

WEST, NORTH, EAST, SOUTH, STAY = range(5)
MIN_SIZE = 6
WALL_DENSITY = 0.75
"""Number of walls started, as a fraction of the cells where one could start."""
STEPS_PER_SIDE = 7.5
"""Maximum growth steps of a wall, per cell of the side."""
SPAWN_ROWS = 4
"""Rows above the lower border, which are the same in every maze of a size."""


def side_length(size: int) -> int:
    """Return the number of cells along one side: odd, so 31 for 30."""
    return 2 * (size // 2) + 1


def start_cell(side: int) -> int:
    """Return the lower end of the tunnel, in which every episode starts."""
    return (side - 2) * side + side // 2


def max_safe_goals(side: int) -> int:
    """Return the number of cells, other than the start, that are free in every maze: those of the spawn rows."""
    return SPAWN_ROWS * (side - 2) - 2 * (SPAWN_ROWS - 1) - 1


def sample_maze(rng: np.random.Generator, side: int) -> Bool[np.ndarray, "side side"]:
    """Return a random maze of an odd side of at least 7, True where there is a wall.

    Posts are the cells of even row and column. A wall starts at a random post and grows: at every step it tries a
    random post two cells away, and moves there if it is free. Finally the spawn rows are cleared and get a tunnel.

    Walls only grow to free posts, so they enclose nothing: every free cell can be reached from every other, which the
    spawn rows do not change. Same distribution as the authors' code, which takes it from mazelab.
    """
    near = _neighboring_posts(side)
    posts = list(near)
    uniform = Random(int(rng.integers(2**63))).random  # numbers one by one: several times faster than NumPy's
    grid = np.zeros((side, side), np.bool_)
    grid[[0, -1]] = grid[:, [0, -1]] = True
    wall = bytearray(grid.tobytes())
    for _ in range(int(WALL_DENSITY * (side // 2) ** 2)):
        post = posts[int(uniform() * len(posts))]
        wall[post] = True
        for _ in range(int(STEPS_PER_SIDE * side)):
            neighbors = near[post]
            ahead = neighbors[int(uniform() * len(neighbors))]
            if not wall[ahead]:
                wall[ahead] = wall[(post + ahead) // 2] = True
                post = ahead
            elif all(map(wall.__getitem__, neighbors)):
                break
    maze = np.frombuffer(wall, np.bool_).reshape(side, side)
    top, bottom, middle = side - 1 - SPAWN_ROWS, side - 1, side // 2
    maze[top:bottom, 1:-1] = False
    maze[top + 1 : bottom, [middle - 1, middle + 1]] = True
    return maze


def free_distances(wall: Bool[np.ndarray, "mazes side side"]) -> Int16[np.ndarray, "mazes side side 4"]:
    """Return the number of free cells between each free cell and the next wall to the west, north, east and south."""
    side = wall.shape[1]
    column = np.arange(side, dtype=np.int16)
    row = column[:, None]
    west = np.maximum.accumulate(np.where(wall, column, 0), axis=2)
    north = np.maximum.accumulate(np.where(wall, row, 0), axis=1)
    east = np.minimum.accumulate(np.where(wall, column, side)[:, :, ::-1], axis=2)[:, :, ::-1]
    south = np.minimum.accumulate(np.where(wall, row, side)[:, ::-1], axis=1)[:, ::-1]
    return np.stack([column - west, row - north, east - column, south - row], axis=3).astype(np.int16) - np.int16(1)


@cache
def _neighboring_posts(side: int) -> dict[int, tuple[int, ...]]:
    """Return, for every post, the posts two cells away."""
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


Actions = Literal["discrete", "continuous"]
"""Discrete: west, north, east, south, stay. Continuous: `[down, right]` in [-1, 1]; the one of larger magnitude (`down`
if they are equal) selects the axis, and its sign the direction; 0 is up or left."""


class MazeRunnerVectorEnv(NumpyVectorEnv):
    """E mazes of `side_length(size)` cells along both sides. The index of a cell is `row * side + column`.

    A task is a maze and an instruction: k cells, k uniform in 1 .. `max_goals`, sampled without replacement from the
    free cells except the start; all of them can be reached. With `rewired` it also has a permutation of the directions
    of the actions. A move into a wall has no effect.

    Observation `[E, 6]`: row and column (only with `position`), then the number of free cells to the west, north, east
    and south, all divided by the side. A goal is (row, column), in cells; the achieved one is the agent's position.

    Paper: appendix C.4.1. Differs from the paper: discrete actions have a fifth, stay, as in the authors' code. The
    authors' mapping of continuous actions is not published; that of `Actions` is our own.

    Reset by `options["reset_mask"]`, on the same task where `options["new_task"]` is False. The arguments are fields of
    `MazeRunnerConfig`.
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
        space = spaces.Dict(
            {
                "observation": spaces.Box(0.0, 1.0, (6 if position else 4,), np.float32),
                ACHIEVED_KEY: spaces.Box(NO_GOAL, side - 1, (1, 2), np.float32),
                DESIRED_KEY: spaces.Box(NO_GOAL, side - 1, (max_goals, 2), np.float32),
            }
        )
        self.max_goals, self.rewired = max_goals, rewired
        self._observes_position, self._continuous = position, actions == "continuous"
        action_space = spaces.Box(-1.0, 1.0, (2,), np.float32) if self._continuous else spaces.Discrete(5)
        super().__init__(num_envs, space, action_space, render_mode)
        self.wall = np.ones((num_envs, side, side), np.bool_)
        self.goal = np.full((num_envs, max_goals), -1)
        """Cells of the instruction, in order; -1 after the last, and before the first reset."""
        self.wiring = np.tile(np.arange(4 if self._continuous else 5), (num_envs, 1))
        """Direction of each action (continuous: of each axis and sign)."""
        self.cell = np.full(num_envs, start_cell(side))
        self._free_ahead = np.zeros((num_envs, side * side, 4), np.int16)
        self._row_column = np.stack(np.divmod(np.arange(side * side), side), axis=1).astype(np.float32)
        self._offset = np.array([-1, -side, 1, side, 0])
        self._instruction = np.full((num_envs, max_goals, 2), NO_GOAL, np.float32)
        self._rows = np.arange(num_envs)

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Float32[np.ndarray, "E ..."]], dict[str, Any]]:
        super().reset(seed=seed)
        rows, new_task = parse_reset_options(options, self.goal[:, 0] >= 0)
        if new_task.any():
            self._sample_tasks(np.flatnonzero(new_task))
        self.cell[rows] = start_cell(self.side)
        return self._observe(), {}

    @override
    def step(self, actions: Shaped[np.ndarray, "E ..."]) -> StepResult[dict[str, Float32[np.ndarray, "E ..."]]]:
        """Step every maze. Rewards are 0 and nothing ends: `InstructionWrapper` adds both."""
        chosen = _direction(actions) if self._continuous else actions
        ahead = self.cell + self._offset[self.wiring[self._rows, chosen]]
        blocked = self.wall.reshape(self.num_envs, -1)[self._rows, ahead]
        self.cell = np.where(blocked, self.cell, ahead)
        never = np.zeros(self.num_envs, np.bool_)
        return self._observe(), np.zeros(self.num_envs), never, never.copy(), {}

    def set_tasks(
        self,
        rows: Int64[np.ndarray, "tasks"],
        wall: Bool[np.ndarray, "tasks side side"],
        goal: Int64[np.ndarray, "tasks goals"],
    ) -> None:
        """Set the mazes and instructions of some rows. Call `reset` with `new_task` False afterwards.

        Args:
            rows: Environments.
            wall: True where there is a wall. The border must be walls, the start must be free.
            goal: Cells in order, -1 after the last.
        """
        self.wall[rows], self.goal[rows] = wall, goal
        self._free_ahead[rows] = free_distances(wall).reshape(len(rows), -1, 4)
        self._instruction[rows] = np.where(goal[:, :, None] < 0, NO_GOAL, self._row_column[goal])

    def _sample_tasks(self, rows: Int64[np.ndarray, "tasks"]) -> None:
        rng = self.np_random
        wall = np.stack([sample_maze(rng, self.side) for _ in rows])
        excluded = wall.reshape(len(rows), -1).copy()
        excluded[:, start_cell(self.side)] = True
        rank = np.where(excluded, 1.0, rng.random(excluded.shape))
        goal = rank.argpartition(range(self.max_goals), axis=1)[:, : self.max_goals]
        is_goal = np.arange(self.max_goals) < rng.integers(1, self.max_goals + 1, (len(rows), 1))
        self.set_tasks(rows, wall, np.where(is_goal, goal, -1))
        if self.rewired:
            self.wiring[rows] = rng.permuted(np.sort(self.wiring[rows], axis=1), axis=1)

    def _observe(self) -> dict[str, Float32[np.ndarray, "E ..."]]:
        here = self._row_column[self.cell]
        ahead = self._free_ahead[self._rows, self.cell]
        cells = np.concatenate([here, ahead], axis=1) if self._observes_position else ahead
        return {
            "observation": (cells / self.side).astype(np.float32),
            ACHIEVED_KEY: here[:, None],
            DESIRED_KEY: self._instruction.copy(),
        }

    @override
    def render_single(self, index: int) -> UInt8[np.ndarray, "height width 3"]:
        """Return a frame: the agent red, the goals of its instruction green, numbered in order."""
        canvas = GridCanvas(self.side, self.side, WALL)
        for cell in np.flatnonzero(~self.wall[index]):
            canvas.fill(*self._xy(cell), FLOOR)
        for number, cell in enumerate(self.goal[index][self.goal[index] >= 0], start=1):
            canvas.fill(*self._xy(cell), GOAL)
            canvas.text(*self._xy(cell), str(number), FLOOR)
        canvas.disc(*self._xy(self.cell[index]), AGENT, fraction=0.7)
        return canvas.image

    def _xy(self, cell: np.integer[Any]) -> tuple[int, int]:
        """Return the canvas coordinates of a cell."""
        from_top, column = divmod(int(cell), self.side)
        return column, self.side - 1 - from_top


def _direction(actions: Float32[np.ndarray, "E 2"]) -> Int64[np.ndarray, "E"]:
    """Return the directions of continuous actions, before any rewiring."""
    down, right = actions[:, 0], actions[:, 1]
    vertical = np.abs(down) >= np.abs(right)
    return np.where(vertical, np.where(down > 0, SOUTH, NORTH), np.where(right > 0, EAST, WEST))


@dataclass(frozen=True, kw_only=True)
class MazeRunnerConfig(GoalEnvConfig):
    """One episode in an unknown maze: explore it, and remember the way."""

    max_goals: int = 3
    """Maximum number of sub-goals of an instruction; 1: the ablation "w/o multi-goal"."""
    size: int = 15
    """Cells along one side of the maze; an even number means one more."""
    horizon: int | None = None
    """Steps of a trial; None: the paper's 400 for size 15, 1000 for 30, and linear in the size for others."""
    actions: Actions = "discrete"
    """Five discrete actions, or two numbers the larger of which selects the axis."""
    rewired: bool = False
    """Sample with every maze which action moves in which direction; otherwise always the same."""
    position: bool = True
    """Observe the position; otherwise it follows from past observations and actions only."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "size", ge=MIN_SIZE)
        check_range(self, "horizon", ge=1)
        check_range(self, "max_goals", le=max_safe_goals(side_length(self.size)))

    @property
    @override
    def task_name(self) -> str:
        """Such as `maze-runner-15x15`, or `maze-runner-30x30-continuous-rewired-no-position`."""
        suffixes = (
            (self.actions == "continuous", "continuous"),
            (self.rewired, "rewired"),
            (not self.position, "no-position"),
        )
        return "-".join([f"maze-runner-{self.size}x{self.size}", *(suffix for is_set, suffix in suffixes if is_set)])

    @property
    @override
    def max_trial_steps(self) -> int:
        return self.horizon or 400 + 75 * ((side_length(self.size) - 15) // 2)

    @property
    @override
    def action_names(self) -> tuple[str, ...]:
        return ("down", "right") if self.actions == "continuous" else ("west", "north", "east", "south", "stay")

    @override
    def build(self, num_envs: int, seed: int) -> TrialVectorEnv:
        mazes = MazeRunnerVectorEnv(
            num_envs,
            size=self.size,
            actions=self.actions,
            rewired=self.rewired,
            position=self.position,
            max_goals=self.max_goals,
        )
        return make_trials(
            GymnasiumVectorAdapter(mazes, seed), horizon=self.max_trial_steps, hide_future_goals=self.hide_future_goals
        )
