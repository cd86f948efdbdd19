"""Crafter as a Gymnasium environment with goals (paper, appendix C.5)."""

from collections.abc import Sequence
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from jaxtyping import Int64
from typing_extensions import override

from yamame.data.goals import ACHIEVED_KEY, DESIRED_KEY, NO_GOAL
from yamame.envs.crafter.game import ACTIONS, IMAGE_PIXELS, ITEMS, MAP_COLUMNS, MAP_ROWS, TEXTURES, CrafterGame
from yamame.envs.crafter.goals import (
    MAX_ACHIEVED,
    MAX_ACHIEVED_EXPANDED,
    WORDS,
    Goal,
    achieved_expanded_goals,
    achieved_goals,
)
from yamame.envs.crafter.instructions import InstructionSampler

ObservationMode = Literal["textures", "pixels", "crop"]
"""`textures`: ids of the textures around the player and a vector of the rest, the paper's default; `pixels`: Crafter's
own image; `crop`: its map without the inventory, and the inventory as a vector."""

CROP_ROWS = 48
"""Rows of the 64 of an image that are above the inventory; the map has 49 of them."""
INFO_SIZE = 2 + len(ITEMS) + 2 + 1
"""Size of the vector: facing direction (2), inventory, position (2), daylight."""
FRAME_PIXELS = 432
"""Width and height of rendered frames; each texture of 16 x 16 pixels is enlarged three times."""
_MAX_SEED = 2**31 - 1


class CrafterEnv(gymnasium.Env[dict[str, np.ndarray], Any]):
    """One player in one world after another. A task is a world, with all its random events, and an instruction.

    Observation: the leaves of `observation_mode` and two leaves of goals of three tokens each: `achieved_goal`, the
    goals that the last step achieved, and `desired_goal`, the instruction. The reward is 0: `InstructionWrapper` adds
    it. Without a sampler there are no leaves of goals, and the reward is Crafter's own.

    The 17 actions are Crafter's. Death terminates an episode, which is never truncated. `info["achievements"]`: count
    of each of the 22 achievements in this episode. `reset(options={"new_task": False})` repeats the task.

    Args:
        slots: Maximum number of sub-goals of an instruction.
        expanded: Whether the goals of expanded worlds exist.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(
        self,
        instruction_sampler: InstructionSampler | None,
        *,
        slots: int = 5,
        observation_mode: ObservationMode = "textures",
        expanded: bool = False,
    ) -> None:
        self.instruction: tuple[Goal, ...] = ()
        """The sub-goals of this episode."""
        self._instruction_sampler = instruction_sampler
        self._slots = slots
        self._observation_mode: ObservationMode = observation_mode
        self._expanded = expanded
        self._max_achieved = MAX_ACHIEVED_EXPANDED if expanded else MAX_ACHIEVED
        self._world_seed: int | None = None
        self._game = CrafterGame(draws_images=observation_mode != "textures")
        self.action_space = spaces.Discrete(len(ACTIONS))
        leaves = observation_spaces(observation_mode)
        if instruction_sampler is not None:
            for name, rows in ((ACHIEVED_KEY, self._max_achieved), (DESIRED_KEY, slots)):
                leaves[name] = spaces.Box(int(NO_GOAL), len(WORDS) - 1, (rows, 3), np.int64)
        self.observation_space = spaces.Dict(leaves)

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        super().reset(seed=seed)
        if self._world_seed is None or (options or {}).get("new_task", True):
            self._world_seed = int(self.np_random.integers(_MAX_SEED))
            sampler = self._instruction_sampler
            self.instruction = sampler.sample(self.np_random) if sampler else ()
        self._game.reset(self._world_seed)
        return self._observe([]), {"achievements": self._game.achievements}

    @override
    def step(self, action: int | np.integer) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        before = self._game.achievements
        reward = self._game.step(int(action))
        achieved: list[Goal] = []
        if self._instruction_sampler:
            achieved = self._achieved_since(before)
            self._instruction_sampler.update(achieved)
            reward = 0.0
        return self._observe(achieved), reward, self._game.dead, False, {"achievements": self._game.achievements}

    @override
    def render(self) -> np.ndarray:
        return self._game.render_frame(FRAME_PIXELS)

    def _achieved_since(self, before: dict[str, int]) -> list[Goal]:
        after, position = self._game.achievements, self._game.position
        goals = achieved_goals(before, after, position)
        if self._expanded:
            placed_stone = after["place_stone"] > before["place_stone"]
            target = position[0] + self._game.facing[0], position[1] + self._game.facing[1]
            goals += achieved_expanded_goals(target if placed_stone else None, self._game.adjacent_materials())
        return goals

    def _observe(self, achieved: Sequence[Goal]) -> dict[str, np.ndarray]:
        leaves = observe(self._observation_mode, self._game)
        if self._instruction_sampler is None:
            return leaves
        goals = {
            ACHIEVED_KEY: _goal_rows(achieved, self._max_achieved),
            DESIRED_KEY: _goal_rows(self.instruction, self._slots),
        }
        return {**leaves, **goals}


def _goal_rows(goals: Sequence[Goal], rows: int) -> Int64[np.ndarray, "{rows} 3"]:
    padded = np.full((rows, 3), int(NO_GOAL), np.int64)
    padded[: len(goals)] = np.array(goals, np.int64).reshape(-1, 3)
    return padded


def observation_spaces(mode: ObservationMode) -> dict[str, spaces.Space[Any]]:
    """Return the spaces of the leaves of an observation."""
    match mode:
        case "textures":
            textures = spaces.Box(0, TEXTURES - 1, (MAP_ROWS, MAP_COLUMNS), np.uint8)
            return {"textures": textures, "info": spaces.Box(-1.0, 1.0, (INFO_SIZE,), np.float32)}
        case "pixels":
            return {"image": spaces.Box(0, 255, (IMAGE_PIXELS, IMAGE_PIXELS, 3), np.uint8)}
        case "crop":
            image = spaces.Box(0, 255, (CROP_ROWS, IMAGE_PIXELS, 3), np.uint8)
            return {"image": image, "inventory": spaces.Box(0.0, 1.0, (len(ITEMS),), np.float32)}


def observe(mode: ObservationMode, game: CrafterGame) -> dict[str, np.ndarray]:
    """Return the leaves of an observation. Source of the scales: the authors' code.

    Differs from the paper's runs, where textures at the border of the world were scrambled: outside it they are 0.
    """
    if mode == "textures":
        x, y = game.position
        inventory = [count / 10 for count in game.inventory]
        info = [*game.facing, *inventory, (x - 30) / 60, (y - 30) / 60, game.daylight]
        return {"textures": game.textures(), "info": np.array(info, np.float32)}
    assert game.image is not None, "make the game with draws_images=True"
    if mode == "pixels":
        return {"image": game.image}
    return {"image": game.image[:CROP_ROWS], "inventory": np.array(game.inventory, np.float32) / 10}
