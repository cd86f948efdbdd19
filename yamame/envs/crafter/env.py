"""`CrafterEnv`: the real Crafter as a Gymnasium environment that announces goals (paper, Appendix C.5)."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from jaxtyping import Int64

from yamame.data.goals import ACHIEVED_KEY, DESIRED_KEY, NO_GOAL
from yamame.envs.crafter.game import ACTIONS, CrafterGame
from yamame.envs.crafter.goals import (
    MAX_ACHIEVED,
    MAX_ACHIEVED_EXPANDED,
    WORDS,
    Goal,
    achieved_expanded_goals,
    achieved_goals,
)
from yamame.envs.crafter.instructions import InstructionSampler
from yamame.envs.crafter.views import FRAME_PIXELS, ObservationMode, observation_spaces, observe

_MAX_SEED = 2**31 - 1


class CrafterEnv(gymnasium.Env[dict[str, np.ndarray], Any]):
    """One player in one world after another; a task is a world, with all that will be drawn in it, and an instruction.

    Observation: what `view` shows, and two leaves of goals, three tokens each: `achieved_goal`, what the last step
    achieved, and `desired_goal`, the instruction. The reward is always 0, for what an instruction is worth is for
    `Instructed` to say. Without `instructions` there are no such leaves, and the reward is Crafter's own.

    The 17 actions are Crafter's. Death terminates an episode; nothing truncates it. `info["achievements"]`: how often
    each of the 22 was had in this episode. `reset(options={"new_task": False})` repeats the task.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(
        self,
        instructions: InstructionSampler | None,
        *,
        slots: int = 5,
        view: ObservationMode = "textures",
        expanded: bool = False,
    ) -> None:
        self.instruction: tuple[Goal, ...] = ()
        """The sub-goals of this episode."""
        self._instructions = instructions
        self._slots = slots
        self._view: ObservationMode = view
        self._expanded = expanded
        self._most_achieved = MAX_ACHIEVED_EXPANDED if expanded else MAX_ACHIEVED
        self._world_seed: int | None = None
        self._game = CrafterGame(draws=view != "textures")
        self.action_space = spaces.Discrete(len(ACTIONS))
        seen = observation_spaces(view)
        if instructions is not None:
            seen |= {ACHIEVED_KEY: _goal_space(self._most_achieved), DESIRED_KEY: _goal_space(slots)}
        self.observation_space = spaces.Dict(seen)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """As Gymnasium; a new task unless `options["new_task"]` is false."""
        super().reset(seed=seed)
        if self._world_seed is None or (options or {}).get("new_task", True):
            self._world_seed = int(self.np_random.integers(_MAX_SEED))
            self.instruction = self._instructions.sample(self.np_random) if self._instructions else ()
        self._game.reset(self._world_seed)
        return self._observation([]), {"achievements": self._game.achievements}

    def step(self, action: int | np.integer) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """As Gymnasium."""
        before = self._game.achievements
        reward = self._game.step(int(action))
        achieved: list[Goal] = []
        if self._instructions:
            achieved = self._achieved_since(before)
            self._instructions.update(achieved)
            reward = 0.0
        return self._observation(achieved), reward, self._game.dead, False, {"achievements": self._game.achievements}

    def render(self) -> np.ndarray:
        """What the package shows, large."""
        return self._game.render_frame(FRAME_PIXELS)

    def _achieved_since(self, before: dict[str, int]) -> list[Goal]:
        after, position = self._game.achievements, self._game.position
        goals = achieved_goals(before, after, position)
        if self._expanded:
            put_stone = after["place_stone"] > before["place_stone"]
            target = position[0] + self._game.facing[0], position[1] + self._game.facing[1]
            goals += achieved_expanded_goals(target if put_stone else None, self._game.adjacent_materials())
        return goals

    def _observation(self, achieved: Sequence[Goal]) -> dict[str, np.ndarray]:
        seen = observe(self._view, self._game)
        if self._instructions is None:
            return seen
        rows = {
            ACHIEVED_KEY: _goal_rows(achieved, self._most_achieved),
            DESIRED_KEY: _goal_rows(self.instruction, self._slots),
        }
        return {**seen, **rows}


def _goal_space(rows: int) -> spaces.Box:
    return spaces.Box(int(NO_GOAL), len(WORDS) - 1, (rows, 3), np.int64)


def _goal_rows(goals: Sequence[Goal], rows: int) -> Int64[np.ndarray, "{rows} 3"]:
    filled = np.full((rows, 3), int(NO_GOAL), np.int64)
    filled[: len(goals)] = np.array(goals, np.int64).reshape(-1, 3)
    return filled
