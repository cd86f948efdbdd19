"""MazeRunner: find a sequence of places in a maze that one has never seen (paper, section 5 and appendix C.4)."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from jaxtyping import Bool, Float32, Float64, Int64, Shaped, UInt8

from yamame.environments.adapters.batched import NumpyVectorEnv, parse_reset_options
from yamame.environments.adapters.vector_adapter import GymnasiumVectorAdapter
from yamame.environments.drawing import AGENT, FLOOR, GOAL, WALL, GridCanvas
from yamame.environments.goal_config import GoalEnvConfig
from yamame.environments.instructed import make_instruction_trials
from yamame.environments.maze_layout import (
    EAST,
    NORTH,
    SMALLEST_SIZE,
    SOUTH,
    WEST,
    sample_maze,
    max_safe_goals,
    free_distances,
    side_length,
    start_cell,
)
from yamame.records.errors import UserError
from yamame.records.goals import ACHIEVED_LEAF, DESIRED_LEAF, NO_GOAL
from yamame.records.interfaces import TrialVectorEnv
from yamame.records.limits import check_range

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
        if size < SMALLEST_SIZE:
            raise UserError(f"size is {size}: give at least {SMALLEST_SIZE}")
        self.side = side = side_length(size)
        if not 1 <= max_goals <= max_safe_goals(side):
            raise UserError(f"max_goals is {max_goals}: give 1 to {max_safe_goals(side)} in a maze of size {size}")
        super().__init__(render_mode)
        self.num_envs, self.max_goals, self.rewired = num_envs, max_goals, rewired
        self._sees_position, self._continuous = position, actions == "continuous"
        self.single_observation_space = spaces.Dict(
            {
                "observation": spaces.Box(0.0, 1.0, (6 if position else 4,), np.float32),
                ACHIEVED_LEAF: spaces.Box(NO_GOAL, side - 1, (1, 2), np.float32),
                DESIRED_LEAF: spaces.Box(NO_GOAL, side - 1, (max_goals, 2), np.float32),
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
            ACHIEVED_LEAF: here[:, None],
            DESIRED_LEAF: self._instruction.copy(),
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
        check_range(self, "size", ge=SMALLEST_SIZE)
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
        return make_instruction_trials(GymnasiumVectorAdapter(mazes, seed), horizon=self.max_trial_steps, hide_future_goals=self.hide_future_goals)
