"""Images, tokens, texts and numbers, seen once and needed later: learned from scratch. Minutes each."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import yamame

pytestmark = [pytest.mark.learning, pytest.mark.timeout(900)]

SETTINGS: dict[str, Any] = {
    "num_envs": 24,
    "env.num_workers": 0,
    "updates_per_env_step": 0.04,
    "env_steps_per_iteration": 960,
    "learner": {"learning_rate": 1e-3, "lr_warmup_updates": 50},
    "eval": {"interval_env_steps": 4800, "trials": 96, "num_envs": 24, "stop_return": 0.99},
}


class ColorOfTheSquare(gymnasium.Env[np.ndarray, int]):
    """A square somewhere in the first image says by its color which action earns 1 at the end; the rest is noise."""

    observation_space = spaces.Box(0, 255, (16, 16, 3), np.uint8)
    action_space = spaces.Discrete(3)
    length = 8

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        self.answer = int(self.np_random.integers(3))
        return image(self.np_random, self.answer), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.time += 1
        ended = self.time == self.length
        return image(self.np_random, None), float(ended and action == self.answer), ended, False, {}


class FourMessages(gymnasium.Env[dict[str, Any], int]):
    """Each part of the first observation holds one bit, and each of the last four steps asks for one of them."""

    observation_space = spaces.Dict(
        {
            "camera": ColorOfTheSquare.observation_space,
            "grid": spaces.MultiDiscrete(np.full((3, 3), 6)),
            "word": spaces.Text(6, min_length=0, charset="eflghirt "),
            "number": spaces.Box(-1.0, 1.0, (2,)),
        }
    )
    action_space = spaces.Discrete(2)
    length = 7

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        self.answers = self.np_random.integers(2, size=4)
        color, token, word, sign = (int(answer) for answer in self.answers)
        observation = self._nothing(color)
        row, column = self.np_random.integers(3, size=2)
        observation["grid"][row, column] = 4 + token
        observation["word"] = " " * int(self.np_random.integers(2)) + ("left", "right")[word]
        observation["number"][0] = sign - 0.5
        return observation, {}

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        self.time += 1
        question = self.time - (self.length - 3)
        right = question >= 0 and action == self.answers[question]
        return self._nothing(None), 0.25 * float(right), self.time == self.length, False, {}

    def _nothing(self, color: int | None) -> dict[str, Any]:
        return {
            "camera": image(self.np_random, color),
            "grid": self.np_random.integers(4, size=(3, 3)),
            "word": "",
            "number": np.array([0.0, self.np_random.uniform(-1.0, 1.0)], np.float32),
        }


class CellOfAView(gymnasium.Env[np.ndarray, int]):
    """One cell of the first view, a grid of 7 x 7 cells of three categories, says which action earns 1 at the end.

    All other cells, and all later views, are those of one of twenty rooms.
    """

    observation_space = spaces.MultiDiscrete(np.broadcast_to([11, 6, 3], (7, 7, 3)))
    action_space = spaces.Discrete(2)
    length = 10

    def __init__(self) -> None:
        rng, shape = np.random.default_rng(0), (20, 7, 7)
        objects = rng.choice([0, 1, 2, 4, 8], size=shape, p=[0.3, 0.3, 0.2, 0.1, 0.1])
        self.rooms = np.stack([objects, rng.integers(6, size=shape), rng.integers(3, size=shape)], axis=-1)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        self.answer = int(self.np_random.integers(2))
        view = self._view()
        view[2, 6, 0] = 5 + self.answer
        return view, {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.time += 1
        ended = self.time == self.length
        return self._view(), float(ended and action == self.answer), ended, False, {}

    def _view(self) -> np.ndarray:
        view: np.ndarray = self.rooms[self.np_random.integers(len(self.rooms))].copy()
        return view


def image(rng: np.random.Generator, color: int | None) -> np.ndarray:
    image = rng.integers(60, size=(16, 16, 3), dtype=np.uint8)
    if color is not None:
        top, left = rng.integers(12, size=2)
        image[top : top + 4, left : left + 4, color] = 255
    return image


def test_a_picture_is_remembered(tmp_path: Path) -> None:
    run = yamame.train(ColorOfTheSquare, horizon=8, env_steps=96_000, run_dir=tmp_path / "run", size="tiny", **SETTINGS)
    assert run.evaluate(trials=256)["return_mean"] >= 0.95


def test_every_part_of_a_mixed_observation_is_remembered(tmp_path: Path) -> None:
    run = yamame.train(FourMessages, horizon=7, env_steps=144_000, run_dir=tmp_path / "run", size="tiny", **SETTINGS)
    assert run.evaluate(trials=256)["return_mean"] >= 0.95


def test_one_cell_of_a_view_is_remembered_by_the_default_agent(tmp_path: Path) -> None:
    """With embedded cells and one learning rate it is a guess, 0.52, after 30,000 steps."""
    run = yamame.train(CellOfAView, env_steps=30_000, eval={"stop_return": 0.99}, run_dir=tmp_path / "run")
    assert run.evaluate(trials=256)["return_mean"] >= 0.95
