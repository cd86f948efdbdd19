"""Dark Key-To-Door: find an invisible key, then an invisible door, attempt after attempt (paper, appendix C.2)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Float32, Int64, UInt8
from typing_extensions import override

from yamame.envs.base import TrialVectorEnv
from yamame.envs.config import EnvConfig, SupportsSolution
from yamame.envs.rendering import AGENT, FLOOR, GOAL, HINT, WALL, GridCanvas
from yamame.envs.vector.gymnasium_adapter import GymnasiumVectorAdapter
from yamame.envs.vector.numpy_env import NumpyVectorEnv, SingleEnvAdapter, StepResult, parse_reset_options
from yamame.envs.wrappers.trials import TrialWrapper
from yamame.errors import UserError, check_range

_MOVES = np.array([(0, -1), (-1, 0), (0, 1), (1, 0), (0, 0)])


class DarkKeyToDoorVectorEnv(NumpyVectorEnv):
    """E rooms of `size` x `size` cells. The index of a cell is `x * size + y`.

    A task is a start, a key and a door, each sampled uniformly (they may coincide). Actions: y-1, x-1, y+1, x+1, stay;
    a move into a wall has no effect. Reward 1 for reaching the key for the first time, and 1 for reaching the door at a
    later step, which terminates the episode. Observation `[E, 4]`: `x / size`, `y / size`, has key,
    `t / attempt_length`.

    Differs from the authors' code, whose episodes have 51 steps (their limit is checked one step late): an episode is
    truncated after exactly `attempt_length` steps, as in the paper.

    Reset by `options["reset_mask"]`, on the same task where `options["new_task"]` is False. `info["success"]`: the
    door was opened at this step. The arguments are fields of `DarkKeyToDoorConfig`.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        size: int = 9,
        attempt_length: int = 50,
        fixed_start: bool = False,
        room_seed: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        if size < 1 or attempt_length < 1:
            raise UserError(f"size is {size} and attempt_length {attempt_length}: give at least 1")
        space = spaces.Box(0.0, 1.0, (4,), np.float32)
        super().__init__(num_envs, space, spaces.Discrete(len(_MOVES)), render_mode)
        self.attempt_length = attempt_length
        self.size = size
        self.start, self.key, self.door = np.full((3, num_envs), -1, np.int64)
        """Cell indices of the task; -1 before the first reset."""
        self._fixed_start = (size // 2) * size + size // 2 if fixed_start else None
        self._room_seed = room_seed
        xy_of_cell = np.stack(np.divmod(np.arange(size * size), size), axis=1)
        self._next_cell = np.clip(xy_of_cell[:, None] + _MOVES, 0, size - 1) @ np.array([size, 1])
        self._observed_xy = (xy_of_cell / size).astype(np.float32)
        self._cell, self._time = np.zeros((2, num_envs), np.int64)
        self._has_key = np.zeros(num_envs, np.bool_)

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32[np.ndarray, "E 4"], dict[str, Any]]:
        super().reset(seed=seed)
        rows, new_task = parse_reset_options(options, self.start >= 0)
        if self._room_seed is None:
            cells = self.np_random.integers(self.size**2, size=(3, int(new_task.sum())))
        else:
            cells = np.random.default_rng(self._room_seed).integers(self.size**2, size=(3, 1))
        self.start[new_task], self.key[new_task], self.door[new_task] = cells
        if self._fixed_start is not None:
            self.start[new_task] = self._fixed_start
        self._cell[rows] = self.start[rows]
        self._time[rows] = 0
        self._has_key[rows] = False
        return self._observe(), {}

    @override
    def step(self, actions: Int64[np.ndarray, "E"]) -> StepResult[Float32[np.ndarray, "E 4"]]:
        self._cell = self._next_cell[self._cell, actions]
        self._time += 1
        opened = self._has_key & (self._cell == self.door)
        found = ~self._has_key & (self._cell == self.key)
        self._has_key |= found
        out_of_time = (self._time >= self.attempt_length) & ~opened
        reward = (found | opened).astype(np.float64)
        return self._observe(), reward, opened, out_of_time, {"success": opened.copy()}

    def shortest_moves(self) -> Int64[np.ndarray, "E"]:
        """Return the first action of a shortest way to the key, or with the key to the door; along x before y.

        A door in the cell of the key is open at the step after: there the action is to stay.
        """
        x, y = np.divmod(self._cell, self.size)
        goal_x, goal_y = np.divmod(np.where(self._has_key, self.door, self.key), self.size)
        conditions = [x > goal_x, x < goal_x, y > goal_y, y < goal_y]
        return np.select(conditions, [1, 3, 0, 2], 4)

    @override
    def render_single(self, index: int) -> UInt8[np.ndarray, "height width 3"]:
        """Return a frame: the door green, the key (until it is found) yellow, the agent red."""
        canvas = GridCanvas(self.size, self.size, WALL)
        for x, y in np.ndindex(self.size, self.size):
            canvas.fill(x, y, FLOOR)
        canvas.fill(*divmod(int(self.door[index]), self.size), GOAL)
        if not self._has_key[index]:
            canvas.square(*divmod(int(self.key[index]), self.size), HINT, fraction=0.7)
        canvas.disc(*divmod(int(self._cell[index]), self.size), AGENT, fraction=0.5)
        return canvas.image

    def _observe(self) -> Float32[np.ndarray, "E 4"]:
        observation = np.empty((self.num_envs, 4), np.float32)
        observation[:, :2] = self._observed_xy[self._cell]
        observation[:, 2] = self._has_key
        observation[:, 3] = self._time / self.attempt_length
        return observation


class DarkKeyToDoorEnv(SingleEnvAdapter):
    """One room of `DarkKeyToDoorVectorEnv`, whose arguments it takes."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(DarkKeyToDoorVectorEnv(1, **kwargs))


@dataclass(frozen=True, kw_only=True)
class DarkKeyToDoorConfig(EnvConfig, SupportsSolution):
    """As many attempts in one room as fit into the horizon: exploit in later attempts what earlier ones found."""

    action_names = ("down", "left", "up", "right", "stay")
    attempts = None
    """As many as fit into the horizon."""

    size: int = 9
    """Cells along one side of the room."""
    horizon: int = 500
    """Steps of a trial, over all its attempts."""
    attempt_length: int = 50
    """Maximum number of steps of an attempt."""
    fixed_start: bool = False
    """Always start in the middle of the room; otherwise the start is part of the task."""
    room_seed: int | None = None
    """Seed of the only room of all trials, for agents that learn a single task; unset: each trial has a new one."""

    def __post_init__(self) -> None:
        check_range(self, "size", "horizon", "attempt_length", ge=1)
        check_range(self, "room_seed", ge=0)

    @property
    @override
    def task_name(self) -> str:
        """Such as `dark-key-to-door-9x9`, or `dark-key-to-door-8x8-fixed-start`."""
        return f"dark-key-to-door-{self.size}x{self.size}" + ("-fixed-start" if self.fixed_start else "")

    @override
    def build(self, num_envs: int, seed: int) -> TrialVectorEnv:
        rooms = DarkKeyToDoorVectorEnv(
            num_envs,
            size=self.size,
            attempt_length=self.attempt_length,
            fixed_start=self.fixed_start,
            room_seed=self.room_seed,
        )
        return TrialWrapper(GymnasiumVectorAdapter(rooms, seed), horizon=self.horizon, attempts=None)

    @override
    def solve(self, envs: TrialVectorEnv) -> Int64[np.ndarray, "E"]:
        assert isinstance(envs, TrialWrapper) and isinstance(envs.env, GymnasiumVectorAdapter)
        rooms = envs.env.env
        assert isinstance(rooms, DarkKeyToDoorVectorEnv)
        return rooms.shortest_moves()
