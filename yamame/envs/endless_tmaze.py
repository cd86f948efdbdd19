"""Endless T-Maze: corridor after corridor, each with a cue of its own, so that a memory must be rewritten.

Source: Memory Gym turns memory tasks into endless ones (Pleines et al. 2023), and T-Mazes are those of Ni et al. 2023.
Differs from both: a fixed number of steps, so that the maximum return is known.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Bool, Float32, Int64, UInt8
from typing_extensions import override

from yamame.envs.base import TrialVectorEnv
from yamame.envs.config import EnvConfig
from yamame.envs.rendering import AGENT, FLOOR, GOAL, HINT, WALL, GridCanvas
from yamame.envs.vector.gymnasium_adapter import GymnasiumVectorAdapter
from yamame.envs.vector.numpy_env import NumpyVectorEnv, SingleEnvAdapter, StepResult, parse_reset_options
from yamame.envs.wrappers.trials import TrialWrapper
from yamame.errors import UserError, check_range

FORWARD, LEFT, RIGHT = range(3)


class EndlessTMazeVectorEnv(NumpyVectorEnv):
    """E mazes: `corridors` corridors of `corridor_length` steps, and a junction at the end of each.

    A cue at the start of a corridor shows which way to turn at its end. A turn, right or wrong, leads to the start of
    the next corridor, which has a cue of its own. The episode has `corridors * (corridor_length + 1)` steps, just
    enough for all corridors.

    Actions: forward, which has no effect at the junction; left and right, which have no effect before it. Observation
    `[E, 2]`: `[0, cue]` in the first step of a corridor (cue = -1, left, or 1, right), `[0, 0]` in its other steps and
    `[1, 0]` at the junction. Reward: `1 / corridors` for the turn that the cue showed, `-1 / corridors` for the other
    one, and 0 otherwise. The maximum return is 1. The expected return is 0 for every policy that ignores the cues:
    each of its turns is right with probability 1/2.

    Reset by `options["reset_mask"]`, with the same cues where `options["new_task"]` is False. `info["success"]`: the
    episode ended, and every corridor ended with the turn that its cue showed.

    Args:
        corridor_length: Steps from the start of a corridor to its junction.
        corridors: Number of corridors.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        corridor_length: int = 10,
        corridors: int = 10,
        render_mode: str | None = None,
    ) -> None:
        if corridor_length < 1 or corridors < 1:
            raise UserError(f"corridor_length is {corridor_length} and corridors {corridors}: give at least 1")
        super().__init__(num_envs, spaces.Box(-1.0, 1.0, (2,), np.float32), spaces.Discrete(3), render_mode)
        self.corridor_length, self.corridors = corridor_length, corridors
        self.episode_length = endless_tmaze_episode_length(corridor_length, corridors)
        self.cues = np.zeros((num_envs, corridors), np.int64)
        """Cue of each corridor, -1 (left) or 1 (right); 0 before the first reset."""
        self._corridor, self._x, self._time, self._correct = np.zeros((4, num_envs), np.int64)
        self._cue_shown = np.zeros(num_envs, np.bool_)

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32[np.ndarray, "E 2"], dict[str, Any]]:
        super().reset(seed=seed)
        rows, new_task = parse_reset_options(options, self.cues[:, 0] != 0)
        self.cues[new_task] = self.np_random.integers(2, size=(int(new_task.sum()), self.corridors)) * 2 - 1
        for counter in (self._corridor, self._x, self._time, self._correct):
            counter[rows] = 0
        self._cue_shown[rows] = True
        return self._observe(), {}

    @override
    def step(self, actions: Int64[np.ndarray, "E"]) -> StepResult[Float32[np.ndarray, "E 2"]]:
        """Step every maze. At the end both flags are set."""
        turned = self._at_junction() & (actions != FORWARD)
        correct = turned & (np.where(actions == RIGHT, 1, -1) == self._cue())
        self._x = np.where(turned, 0, np.minimum(self._x + (actions == FORWARD), self.corridor_length))
        self._corridor += turned
        self._correct += correct
        self._time += 1
        self._cue_shown = turned & (self._corridor < self.corridors)
        ended = self._time >= self.episode_length
        reward = np.where(turned, np.where(correct, 1.0, -1.0), 0.0) / self.corridors
        success = ended & (self._correct == self.corridors)
        return self._observe(), reward, ended, ended.copy(), {"success": success}

    @override
    def render_single(self, index: int) -> UInt8[np.ndarray, "height width 3"]:
        """Return a frame: the cell that the cue shows green, the cue (while visible) a yellow arrow, the agent red."""
        canvas, junction = GridCanvas(self.corridor_length + 3, 5, WALL), self.corridor_length
        for x, y in [*((x, 0) for x in range(junction)), *((junction, y) for y in (-1, 0, 1))]:
            canvas.fill(x + 1, y + 2, FLOOR)
        left_is_up = -int(self._cue()[index])
        canvas.fill(junction + 1, left_is_up + 2, GOAL)
        if self._cue_shown[index]:
            canvas.arrow(1, left_is_up + 2, HINT, up=left_is_up > 0, fraction=0.9)
        canvas.disc(int(self._x[index]) + 1, 2, AGENT, fraction=0.7)
        return canvas.image

    def _at_junction(self) -> Bool[np.ndarray, "E"]:
        return (self._x == self.corridor_length) & (self._corridor < self.corridors)

    def _cue(self) -> Int64[np.ndarray, "E"]:
        """Return the cue of the present corridor; of the last one after all."""
        corridor = np.minimum(self._corridor, self.corridors - 1)
        return self.cues[np.arange(self.num_envs), corridor]

    def _observe(self) -> Float32[np.ndarray, "E 2"]:
        return np.stack([self._at_junction(), self._cue_shown * self._cue()], axis=1).astype(np.float32)


class EndlessTMazeEnv(SingleEnvAdapter):
    """One maze of `EndlessTMazeVectorEnv`, whose arguments it takes."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(EndlessTMazeVectorEnv(1, **kwargs))


def endless_tmaze_episode_length(corridor_length: int, corridors: int) -> int:
    """Return the number of steps of every episode."""
    return corridors * (corridor_length + 1)


@dataclass(frozen=True, kw_only=True)
class EndlessTMazeConfig(EnvConfig):
    """Remember one bit again and again, each time instead of the one before: tests a memory that is rewritten."""

    action_names = ("forward", "left", "right")
    corridor_length: int = 10
    """Steps from the start of a corridor to its junction."""
    corridors: int = 10
    """Number of corridors of a trial."""

    def __post_init__(self) -> None:
        check_range(self, "corridor_length", "corridors", ge=1)

    @property
    @override
    def max_trial_steps(self) -> int:
        return endless_tmaze_episode_length(self.corridor_length, self.corridors)

    @property
    @override
    def task_name(self) -> str:
        """Such as `endless-tmaze-10x10`: corridors x length."""
        return f"endless-tmaze-{self.corridors}x{self.corridor_length}"

    @override
    def build(self, num_envs: int, seed: int) -> TrialVectorEnv:
        mazes = EndlessTMazeVectorEnv(num_envs, corridor_length=self.corridor_length, corridors=self.corridors)
        return TrialWrapper(GymnasiumVectorAdapter(mazes, seed), horizon=self.max_trial_steps, attempts=1)
