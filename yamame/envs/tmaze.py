"""T-Maze: a cue at the beginning of a corridor says where to turn at its end (Ni et al. 2023; paper, Appendix C.2)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from jaxtyping import Bool, Float32, Float64, Int64, UInt8

from yamame.envs.base import TrialVectorEnv
from yamame.envs.config import EnvConfig
from yamame.envs.rendering import AGENT, FLOOR, GOAL, HINT, WALL, GridCanvas
from yamame.envs.vector.gymnasium_adapter import GymnasiumVectorAdapter
from yamame.envs.vector.numpy_env import NumpyVectorEnv, parse_reset_options
from yamame.envs.wrappers.trials import TrialWrapper
from yamame.errors import UserError, check_range

RIGHT, UP, LEFT, DOWN = range(4)
_ACTION_NAMES = ("right", "up", "left", "down")
_MOVE_X = np.array([1, 0, -1, 0])
_MOVE_Y = np.array([0, 1, 0, -1])


class TMazeVectorEnv(NumpyVectorEnv):
    """E mazes in one call. A corridor of `horizon` steps from the start to the junction, a goal above or below that.

    Passive: the start is the oracle, and the episode has `horizon + 1` steps. Active: the oracle is one step to the
    left of the start, and the episode has `horizon + 3`, just enough to go there first.

    Observation `[E, 2]`: `[0, cue]` on the first visit to the oracle (cue = -1 or 1, where the goal is), `[0, 0]` in
    the corridor, `[1, y]` at the junction and the two cells beside it. Reward: at the last step 1 at the goal and 0
    elsewhere; before it `-penalty` for every action but right (active: the first step is free). This is the paper's
    penalty; Ni et al. punish being behind time instead. The best return is 1.

    Reset by `options["reset_mask"]`, on the same goal where `options["new_task"]` is false. `info["success"]`: the
    episode has ended at the goal.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        horizon: int = 30,
        passive: bool = True,
        penalty: float | None = None,
        render_mode: str | None = None,
    ) -> None:
        if horizon < 1:
            raise UserError(f"the corridor has length {horizon}: give a horizon of at least 1")
        super().__init__(render_mode)
        self.num_envs = num_envs
        self.single_observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.single_action_space = spaces.Discrete(4)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.episode_length = tmaze_episode_length(horizon, passive=passive)
        self.goal = np.zeros(num_envs, np.int64)
        """-1 (down) or 1 (up); 0 before the first reset."""
        self._start = 0 if passive else 1
        self._junction = self._start + horizon
        self._penalty = 1.0 / horizon if penalty is None else penalty
        self._x, self._y, self._time = np.zeros((3, num_envs), np.int64)
        self._cue_shown, self._cue_seen = np.zeros((2, num_envs), np.bool_)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32[np.ndarray, "E 2"], dict[str, Any]]:
        """Back to the start in the rows of the mask."""
        super().reset(seed=seed)
        rows, new_task = parse_reset_options(options, self.goal != 0)
        self.goal[new_task] = self.np_random.integers(2, size=int(new_task.sum())) * 2 - 1
        self._x[rows] = self._start
        self._y[rows] = 0
        self._time[rows] = 0
        self._cue_shown[rows] = self._cue_seen[rows] = self._start == 0
        self.show()
        return self._observe(), {}

    def step(
        self, actions: Int64[np.ndarray, "E"]
    ) -> tuple[
        Float32[np.ndarray, "E 2"],
        Float64[np.ndarray, "E"],
        Bool[np.ndarray, "E"],
        Bool[np.ndarray, "E"],
        dict[str, Any],
    ]:
        """One step of every maze; a move into a wall is ignored. Both flags are set at the end."""
        x, y = self._x + _MOVE_X[actions], self._y + _MOVE_Y[actions]
        is_cell = (x >= 0) & (x <= self._junction) & ((y == 0) | ((x == self._junction) & (np.abs(y) == 1)))
        self._x, self._y = np.where(is_cell, x, self._x), np.where(is_cell, y, self._y)
        self._time += 1
        self._cue_shown = (self._x == 0) & ~self._cue_seen
        self._cue_seen |= self._cue_shown
        ended = self._time >= self.episode_length
        success = ended & (self._y == self.goal)
        punished = ~ended & (actions != RIGHT) & (self._time > self._start)
        reward = success - self._penalty * punished
        self.show()
        return self._observe(), reward, ended, ended.copy(), {"success": success}

    def render_single(self, index: int) -> UInt8[np.ndarray, "height width 3"]:
        """What one maze looks like: the goal green, the cue (as long as it is shown) a yellow arrow, the agent red."""
        board = GridCanvas(self._junction + 3, 5, WALL)
        for x, y in [*((x, 0) for x in range(self._junction)), *((self._junction, y) for y in (-1, 0, 1))]:
            board.fill(x + 1, y + 2, FLOOR)
        goal = int(self.goal[index])
        board.fill(self._junction + 1, goal + 2, GOAL)
        if self._cue_shown[index]:
            board.arrow(1, goal + 2, HINT, up=goal > 0, share=0.9)
        board.disc(int(self._x[index]) + 1, int(self._y[index]) + 2, AGENT, share=0.7)
        return board.image

    def _observe(self) -> Float32[np.ndarray, "E 2"]:
        second = np.where(self._cue_shown, self.goal, self._y)
        return np.stack([self._x == self._junction, second], axis=1).astype(np.float32)


def tmaze_episode_length(horizon: int, *, passive: bool) -> int:
    """Number of steps of an episode, always the same."""
    return horizon + 1 if passive else horizon + 3


@dataclass(frozen=True, kw_only=True)
class PassiveTMazeConfig(EnvConfig):
    """Remember one bit over the whole corridor: only memory is tested."""

    horizon: int = 30
    """Length of the corridor in steps."""

    def __post_init__(self) -> None:
        check_range(self, "horizon", ge=1)

    @property
    def task_name(self) -> str:
        """Such as `passive-tmaze-30`."""
        return f"passive-tmaze-{self.horizon}"

    @property
    def max_trial_steps(self) -> int:
        """Steps of the one episode."""
        return tmaze_episode_length(self.horizon, passive=True)

    @property
    def action_names(self) -> tuple[str, ...]:
        """See `EnvConfig.action_names`."""
        return _ACTION_NAMES

    def build(self, num_envs: int, seed: int) -> TrialVectorEnv:
        """See `EnvConfig.build`."""
        mazes = TMazeVectorEnv(num_envs, horizon=self.horizon, passive=True)
        return TrialWrapper(GymnasiumVectorAdapter(mazes, seed), horizon=self.max_trial_steps, attempts=1)


@dataclass(frozen=True, kw_only=True)
class ActiveTMazeConfig(EnvConfig):
    """Fetch the bit first, then remember it: memory and credit over time are tested together."""

    horizon: int = 30
    """Length of the corridor in steps."""

    def __post_init__(self) -> None:
        check_range(self, "horizon", ge=1)

    @property
    def task_name(self) -> str:
        """Such as `active-tmaze-30`."""
        return f"active-tmaze-{self.horizon}"

    @property
    def max_trial_steps(self) -> int:
        """Steps of the one episode."""
        return tmaze_episode_length(self.horizon, passive=False)

    @property
    def action_names(self) -> tuple[str, ...]:
        """See `EnvConfig.action_names`."""
        return _ACTION_NAMES

    def build(self, num_envs: int, seed: int) -> TrialVectorEnv:
        """See `EnvConfig.build`."""
        mazes = TMazeVectorEnv(num_envs, horizon=self.horizon, passive=False)
        return TrialWrapper(GymnasiumVectorAdapter(mazes, seed), horizon=self.max_trial_steps, attempts=1)
