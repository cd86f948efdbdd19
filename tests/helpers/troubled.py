"""Environments that bring a collector into trouble, in a module that its process imports quickly."""

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


@dataclass(frozen=True)
class Troubled:
    """Makes environments whose episodes last 4 steps.

    `marks` is a folder where the first collector to come leaves its mark: it alone is slow.
    """

    raises_at: int = 0
    """The step, counted over all episodes, in which each raises."""
    cannot_be_made: bool = False
    sleeps: float = 0.0
    """Seconds that each step of the one collector takes."""
    marks: Path | None = None

    def __call__(self) -> gymnasium.Env[np.ndarray, int]:
        if self.cannot_be_made:
            raise RuntimeError("no licence")
        return _Troubled(self)


class _Troubled(gymnasium.Env[np.ndarray, int]):
    observation_space = spaces.Box(0.0, 4.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, plan: Troubled) -> None:
        self.plan = plan
        self.time = self.steps = 0
        self.slow = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.time, self.steps = self.time + 1, self.steps + 1
        if self.plan.marks and self.steps == 1:
            with suppress(FileExistsError):
                (self.plan.marks / "slow").touch(exist_ok=False)
                self.slow = True
        if self.slow:
            time.sleep(self.plan.sleeps)
        if self.steps == self.plan.raises_at:
            raise RuntimeError("not today")
        return np.full(1, self.time, np.float32), float(action), self.time == 4, False, {}
