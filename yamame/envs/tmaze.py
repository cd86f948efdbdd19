"""T-Maze: a cue at the start of a corridor shows where to turn at its end (Ni et al. 2023; paper, appendix C.2)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from jaxtyping import Float32, Int64, UInt8
from typing_extensions import override

from yamame.envs.base import TrialVectorEnv
from yamame.envs.config import EnvConfig
from yamame.envs.rendering import AGENT, FLOOR, GOAL, HINT, WALL, GridCanvas
from yamame.envs.vector.gymnasium_adapter import GymnasiumVectorAdapter
from yamame.envs.vector.numpy_env import NumpyVectorEnv, SingleEnvAdapter, StepResult, parse_reset_options
from yamame.envs.wrappers.trials import TrialWrapper
from yamame.errors import UserError, check_range

RIGHT, UP, LEFT, DOWN = range(4)
_MOVE_X = np.array([1, 0, -1, 0])
_MOVE_Y = np.array([0, 1, 0, -1])


class TMazeVectorEnv(NumpyVectorEnv):
    """E mazes: a corridor of `horizon` steps from the start to the junction, with a goal above or below the junction.

    Passive: the start is the oracle, and the episode has `horizon + 1` steps. Active: the oracle is one step to the
    left of the start, and the episode has `horizon + 3` steps, just enough to visit the oracle first.

    Observation `[E, 2]`: `[0, cue]` at the first visit to the oracle (cue = -1 or 1, the side of the goal), `[0, 0]` in
    the corridor, `[1, y]` at the junction and the two cells next to it. Reward: at the last step 1 at the goal and 0
    elsewhere; before it `-penalty` for every action but right (active: the first step is free). This is the paper's
    penalty; Ni et al. penalize being late instead. The maximum return is 1.

    Reset by `options["reset_mask"]`, with the same goal where `options["new_task"]` is False. `info["success"]`: the
    episode ended at the goal.

    Args:
        horizon: Length of the corridor in steps.
        passive: Whether the agent starts at the oracle.
        penalty: Penalty of a step that is not to the right; None: `1 / horizon`.
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
        super().__init__(num_envs, spaces.Box(-1.0, 1.0, (2,), np.float32), spaces.Discrete(4), render_mode)
        self.episode_length = tmaze_episode_length(horizon, passive=passive)
        self.goal = np.zeros(num_envs, np.int64)
        """Side of the goal, -1 (down) or 1 (up); 0 before the first reset."""
        self._start = 0 if passive else 1
        self._junction = self._start + horizon
        self._penalty = 1.0 / horizon if penalty is None else penalty
        self._x, self._y, self._time = np.zeros((3, num_envs), np.int64)
        self._cue_shown, self._cue_seen = np.zeros((2, num_envs), np.bool_)

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32[np.ndarray, "E 2"], dict[str, Any]]:
        super().reset(seed=seed)
        rows, new_task = parse_reset_options(options, self.goal != 0)
        self.goal[new_task] = self.np_random.integers(2, size=int(new_task.sum())) * 2 - 1
        self._x[rows] = self._start
        self._y[rows] = 0
        self._time[rows] = 0
        self._cue_shown[rows] = self._cue_seen[rows] = self._start == 0
        return self._observe(), {}

    @override
    def step(self, actions: Int64[np.ndarray, "E"]) -> StepResult[Float32[np.ndarray, "E 2"]]:
        """Step every maze. A move into a wall has no effect. At the end both flags are set."""
        x, y = self._x + _MOVE_X[actions], self._y + _MOVE_Y[actions]
        is_cell = (x >= 0) & (x <= self._junction) & ((y == 0) | ((x == self._junction) & (np.abs(y) == 1)))
        self._x, self._y = np.where(is_cell, x, self._x), np.where(is_cell, y, self._y)
        self._time += 1
        self._cue_shown = (self._x == 0) & ~self._cue_seen
        self._cue_seen |= self._cue_shown
        ended = self._time >= self.episode_length
        success = ended & (self._y == self.goal)
        penalized = ~ended & (actions != RIGHT) & (self._time > self._start)
        reward = success - self._penalty * penalized
        return self._observe(), reward, ended, ended.copy(), {"success": success}

    @override
    def render_single(self, index: int) -> UInt8[np.ndarray, "height width 3"]:
        """Return a frame: the goal green, the cue (while it is visible) a yellow arrow, the agent red."""
        canvas = GridCanvas(self._junction + 3, 5, WALL)
        for x, y in [*((x, 0) for x in range(self._junction)), *((self._junction, y) for y in (-1, 0, 1))]:
            canvas.fill(x + 1, y + 2, FLOOR)
        goal = int(self.goal[index])
        canvas.fill(self._junction + 1, goal + 2, GOAL)
        if self._cue_shown[index]:
            canvas.arrow(1, goal + 2, HINT, up=goal > 0, fraction=0.9)
        canvas.disc(int(self._x[index]) + 1, int(self._y[index]) + 2, AGENT, fraction=0.7)
        return canvas.image

    def _observe(self) -> Float32[np.ndarray, "E 2"]:
        second = np.where(self._cue_shown, self.goal, self._y)
        return np.stack([self._x == self._junction, second], axis=1).astype(np.float32)


class TMazeEnv(SingleEnvAdapter):
    """One maze of `TMazeVectorEnv`, whose arguments it takes."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(TMazeVectorEnv(1, **kwargs))


def tmaze_episode_length(horizon: int, *, passive: bool) -> int:
    """Return the number of steps of every episode."""
    return horizon + 1 if passive else horizon + 3


@dataclass(frozen=True, kw_only=True)
class _TMazeConfig(EnvConfig):
    action_names = ("right", "up", "left", "down")
    horizon: int = 30
    """Length of the corridor in steps."""
    _PASSIVE: ClassVar[bool]

    def __post_init__(self) -> None:
        check_range(self, "horizon", ge=1)

    @property
    @override
    def max_trial_steps(self) -> int:
        return tmaze_episode_length(self.horizon, passive=self._PASSIVE)

    @override
    def build(self, num_envs: int, seed: int) -> TrialVectorEnv:
        mazes = TMazeVectorEnv(num_envs, horizon=self.horizon, passive=self._PASSIVE)
        return TrialWrapper(GymnasiumVectorAdapter(mazes, seed), horizon=self.max_trial_steps, attempts=1)


@dataclass(frozen=True, kw_only=True)
class PassiveTMazeConfig(_TMazeConfig):
    """Remember one bit over the whole corridor: tests memory alone."""

    _PASSIVE = True

    @property
    @override
    def task_name(self) -> str:
        """Such as `passive-tmaze-30`."""
        return f"passive-tmaze-{self.horizon}"


@dataclass(frozen=True, kw_only=True)
class ActiveTMazeConfig(_TMazeConfig):
    """Fetch the bit first, then remember it: tests memory and credit assignment together."""

    _PASSIVE = False

    @property
    @override
    def task_name(self) -> str:
        """Such as `active-tmaze-30`."""
        return f"active-tmaze-{self.horizon}"
