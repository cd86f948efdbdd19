"""GridNavi: find an unseen goal in a small grid, then walk straight to it in later attempts (Zintgraf et al. 2020)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Float32, Int64, UInt8
from typing_extensions import override

from yamame.envs.base import TrialVectorEnv
from yamame.envs.config import EnvConfig
from yamame.envs.rendering import AGENT, FLOOR, GOAL, WALL, GridCanvas
from yamame.envs.vector.gymnasium_adapter import GymnasiumVectorAdapter
from yamame.envs.vector.numpy_env import NumpyVectorEnv, SingleEnvAdapter, StepResult, parse_reset_options
from yamame.envs.wrappers.trials import TrialWrapper
from yamame.errors import UserError, check_range

STAY, UP, RIGHT, DOWN, LEFT = range(5)
_MOVES = np.array([(0, 0), (0, 1), (1, 0), (0, -1), (-1, 0)])
_MIN_SIZE = 3
"""Cells along one side of the smallest grid that has a cell for the goal."""


class GridNaviVectorEnv(NumpyVectorEnv):
    """E grids of `size` x `size` cells. The index of a cell is `x * size + y`.

    A task is a goal, sampled uniformly from the cells that neither are the start, the corner (0, 0), nor touch it.
    Actions: stay, up, right, down, left; a move into a wall has no effect. Reward of each step: 1 at the goal and -0.1
    elsewhere. An episode has `attempt_length` steps, also beyond the goal. Observation `[E, 2]`: `x / size` and
    `y / size`. The goal is not observed, only the reward.

    Reset by `options["reset_mask"]`, with the same goal where `options["new_task"]` is False. `info["success"]`: the
    episode ended at the goal. The arguments are fields of `GridNaviConfig`.
    """

    def __init__(
        self, num_envs: int = 1, *, size: int = 5, attempt_length: int = 15, render_mode: str | None = None
    ) -> None:
        if size < _MIN_SIZE or attempt_length < 1:
            raise UserError(
                f"size is {size} and attempt_length {attempt_length}: give at least {_MIN_SIZE} and at least 1"
            )
        super().__init__(num_envs, spaces.Box(0.0, 1.0, (2,), np.float32), spaces.Discrete(len(_MOVES)), render_mode)
        self.size, self.attempt_length = size, attempt_length
        self.goal = np.full(num_envs, -1, np.int64)
        """Cell index of the goal; -1 before the first reset."""
        xy_of_cell = np.stack(np.divmod(np.arange(size * size), size), axis=1)
        self._possible_goals = np.flatnonzero(xy_of_cell.max(axis=1) > 1)
        self._next_cell = np.clip(xy_of_cell[:, None] + _MOVES, 0, size - 1) @ np.array([size, 1])
        self._observed_xy = (xy_of_cell / size).astype(np.float32)
        self._cell, self._time = np.zeros((2, num_envs), np.int64)

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32[np.ndarray, "E 2"], dict[str, Any]]:
        super().reset(seed=seed)
        rows, new_task = parse_reset_options(options, self.goal >= 0)
        self.goal[new_task] = self.np_random.choice(self._possible_goals, size=int(new_task.sum()))
        self._cell[rows] = self._time[rows] = 0
        return self._observed_xy[self._cell], {}

    @override
    def step(self, actions: Int64[np.ndarray, "E"]) -> StepResult[Float32[np.ndarray, "E 2"]]:
        """Step every grid. At the end both flags are set."""
        self._cell = self._next_cell[self._cell, actions]
        self._time += 1
        at_goal = self._cell == self.goal
        ended = self._time >= self.attempt_length
        reward = np.where(at_goal, 1.0, -0.1)
        return self._observed_xy[self._cell], reward, ended, ended.copy(), {"success": ended & at_goal}

    @override
    def render_single(self, index: int) -> UInt8[np.ndarray, "height width 3"]:
        """Return a frame: the goal green, the agent red."""
        canvas = GridCanvas(self.size, self.size, WALL)
        for x, y in np.ndindex(self.size, self.size):
            canvas.fill(x, y, FLOOR)
        canvas.fill(*divmod(int(self.goal[index]), self.size), GOAL)
        canvas.disc(*divmod(int(self._cell[index]), self.size), AGENT, fraction=0.5)
        return canvas.image


class GridNaviEnv(SingleEnvAdapter):
    """One grid of `GridNaviVectorEnv`, whose arguments it takes."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(GridNaviVectorEnv(1, **kwargs))


@dataclass(frozen=True, kw_only=True)
class GridNaviConfig(EnvConfig):
    """Search for a goal in the first attempt, and exploit in later attempts what was found."""

    action_names = ("stay", "up", "right", "down", "left")
    size: int = 5
    """Cells along one side of the grid."""
    attempts: int = 4
    """Attempts of a trial."""
    attempt_length: int = 15
    """Number of steps of an attempt."""

    def __post_init__(self) -> None:
        check_range(self, "size", ge=_MIN_SIZE)
        check_range(self, "attempts", "attempt_length", ge=1)

    @property
    @override
    def max_trial_steps(self) -> int:
        return self.attempts * self.attempt_length

    @property
    @override
    def task_name(self) -> str:
        """Such as `gridnavi-5x5`."""
        return f"gridnavi-{self.size}x{self.size}"

    @override
    def build(self, num_envs: int, seed: int) -> TrialVectorEnv:
        grids = GridNaviVectorEnv(num_envs, size=self.size, attempt_length=self.attempt_length)
        return TrialWrapper(GymnasiumVectorAdapter(grids, seed), horizon=self.max_trial_steps, attempts=self.attempts)
