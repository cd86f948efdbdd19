"""Rooms: find three goals in order, each worth ten times the one before, in rooms behind corridors."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Float32, Int64, UInt8
from typing_extensions import override

from yamame.envs.base import TrialVectorEnv
from yamame.envs.config import EnvConfig
from yamame.envs.rendering import AGENT, FLOOR, GOAL, GREY, HINT, WALL, GridCanvas
from yamame.envs.vector.gymnasium_adapter import GymnasiumVectorAdapter
from yamame.envs.vector.numpy_env import NumpyVectorEnv, SingleEnvAdapter, StepResult, parse_reset_options
from yamame.envs.wrappers.trials import TrialWrapper
from yamame.errors import ConfigFieldError, UserError, check_range

STAY, UP, RIGHT, DOWN, LEFT = range(5)
_MOVES = np.array([(0, 0), (0, 1), (1, 0), (0, -1), (-1, 0)])
_CORNERS = np.array([(-1, -1), (-1, 1), (1, -1), (1, 1)])
"""Of a room, from its middle, in units of its half-width; the first two are on its left."""
GOAL_REWARDS = (1.0, 10.0, 100.0)
STEP_REWARD = -0.1
_MIN_ROOM_SIZE = 3


class RoomsVectorEnv(NumpyVectorEnv):
    """E rows of three square rooms, joined by corridors of one cell's width. Positions are (x, y) from the middle.

    Three goals are in corners, all choices equally likely: the first one in the middle room, where the agent starts;
    the second one in the room on the first one's side; the third one in another corner of the middle room. A step onto
    a goal, or on one, earns 1, 10 and 100: the second one after the first one was reached, the third one after the
    second one. All other steps earn -0.1. Goals keep paying, so that it is best to stay at the third one. Actions:
    stay, up, right, down, left; a move into a wall has no effect. Observation `[E, 2]`: x and y in fractions of the
    farthest cell's. Neither goals nor which of them were reached are observed, only the reward.

    Rules of the multi-stage gridworld in the code of Zintgraf et al. 2021, whose cells are observed in whole numbers.

    Reset by `options["reset_mask"]`, with the same goals where `options["new_task"]` is False. `info["success"]`: the
    third goal paid. The arguments are fields of `RoomsConfig`.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        room_size: int = 3,
        corridor_length: int = 3,
        attempt_length: int = 50,
        render_mode: str | None = None,
    ) -> None:
        if room_size < _MIN_ROOM_SIZE or room_size % 2 == 0 or corridor_length < 1 or attempt_length < 1:
            raise UserError(
                f"room_size is {room_size}, corridor_length {corridor_length} and attempt_length {attempt_length}: "
                f"give an odd number of at least {_MIN_ROOM_SIZE}, at least 1 and at least 1"
            )
        super().__init__(num_envs, spaces.Box(-1.0, 1.0, (2,), np.float32), spaces.Discrete(len(_MOVES)), render_mode)
        self.attempt_length = attempt_length
        self._half = room_size // 2
        self._room_distance = room_size + corridor_length
        self._farthest = np.array([self._room_distance + self._half, self._half])
        x, y = np.meshgrid(*(np.arange(-far, far + 1) for far in self._farthest), indexing="ij")
        in_room = np.abs((x + self._half) % self._room_distance - self._half) <= self._half
        self._is_floor = in_room | (y == 0)
        self.goals = np.zeros((num_envs, 3, 2), np.int64)
        """Positions of the three goals."""
        self._has_task = np.zeros(num_envs, np.bool_)
        self._num_reached = np.zeros(num_envs, np.int64)
        """Goals that were reached in their order."""
        self._position = np.zeros((num_envs, 2), np.int64)
        self._time = np.zeros(num_envs, np.int64)

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32[np.ndarray, "E 2"], dict[str, Any]]:
        super().reset(seed=seed)
        rows, new_task = parse_reset_options(options, self._has_task)
        self.goals[new_task] = self._sample_goals(int(new_task.sum()))
        self._has_task |= new_task
        self._position[rows], self._time[rows], self._num_reached[rows] = 0, 0, 0
        return self._observation(), {}

    def _sample_goals(self, count: int) -> Int64[np.ndarray, "count 3 2"]:
        first, second = self.np_random.integers(4, size=(2, count))
        third = (first + self.np_random.integers(1, 4, size=count)) % 4
        corner = self._half * _CORNERS[np.stack([first, second, third], axis=1)]
        corner[:, 1, 0] += self._room_distance * np.sign(corner[:, 0, 0])
        return corner

    def _observation(self) -> Float32[np.ndarray, "E 2"]:
        return (self._position / self._farthest).astype(np.float32)

    @override
    def step(self, actions: Int64[np.ndarray, "E"]) -> StepResult[Float32[np.ndarray, "E 2"]]:
        """Step every row of rooms. At the end both flags are set."""
        moved = np.clip(self._position + _MOVES[actions], -self._farthest, self._farthest)
        is_free = self._is_floor[tuple((moved + self._farthest).T)]
        self._position = np.where(is_free[:, None], moved, self._position)
        self._time += 1
        at_goal = (self._position[:, None] == self.goals).all(axis=2)
        pays = at_goal & (np.arange(3) <= self._num_reached[:, None])
        reached = np.where(pays.any(axis=1), pays.argmax(axis=1) + 1, 0)
        self._num_reached = np.maximum(self._num_reached, reached)
        reward = np.array([STEP_REWARD, *GOAL_REWARDS])[reached]
        ended = self._time >= self.attempt_length
        return self._observation(), reward, ended, ended.copy(), {"success": reached == len(GOAL_REWARDS)}

    @override
    def render_single(self, index: int) -> UInt8[np.ndarray, "height width 3"]:
        """Return a frame: goals numbered, those that pay green, others yellow; the agent red."""
        width, height = (2 * self._farthest + 1).tolist()
        canvas = GridCanvas(width, height, WALL)
        for x, y in np.argwhere(self._is_floor).tolist():
            canvas.fill(x, y, FLOOR)
        for number, (x, y) in enumerate((self.goals[index] + self._farthest).tolist()):
            canvas.fill(x, y, GOAL if number <= self._num_reached[index] else HINT)
            canvas.text(x, y, str(number + 1), GREY)
        x, y = (self._position[index] + self._farthest).tolist()
        canvas.disc(x, y, AGENT, fraction=0.5)
        return canvas.image


class RoomsEnv(SingleEnvAdapter):
    """One row of rooms of `RoomsVectorEnv`, whose arguments it takes."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(RoomsVectorEnv(1, **kwargs))


@dataclass(frozen=True, kw_only=True)
class RoomsConfig(EnvConfig):
    """Find three goals in order, each worth ten times the one before."""

    action_names = ("stay", "up", "right", "down", "left")
    room_size: int = 3
    """Cells along one side of a room, an odd number."""
    corridor_length: int = 3
    """Cells between two rooms."""
    attempts: int = 1
    """Attempts of a trial. Goals stay where they are, and have to be reached in their order again."""
    attempt_length: int = 50
    """Number of steps of an attempt."""

    def __post_init__(self) -> None:
        check_range(self, "room_size", ge=_MIN_ROOM_SIZE)
        check_range(self, "corridor_length", "attempts", "attempt_length", ge=1)
        if self.room_size % 2 == 0:
            raise ConfigFieldError(self, "room_size", f"must be odd, got {self.room_size}")

    @property
    @override
    def max_trial_steps(self) -> int:
        return self.attempts * self.attempt_length

    @property
    @override
    def task_name(self) -> str:
        """Such as `rooms-3x3`."""
        return f"rooms-{self.room_size}x{self.room_size}"

    @override
    def build(self, num_envs: int, seed: int) -> TrialVectorEnv:
        rooms = RoomsVectorEnv(
            num_envs,
            room_size=self.room_size,
            corridor_length=self.corridor_length,
            attempt_length=self.attempt_length,
        )
        return TrialWrapper(GymnasiumVectorAdapter(rooms, seed), horizon=self.max_trial_steps, attempts=self.attempts)
