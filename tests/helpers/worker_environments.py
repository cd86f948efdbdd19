"""Environments for workers, in a module that workers import quickly."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from counting_environment import CountingEnv
from gymnasium import spaces

from yamame.errors import UserError


class NestedEnv(CountingEnv):
    """Every kind of leaf, continuous actions, random in all it does."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Dict(
            near=spaces.Tuple([spaces.Box(-9, 9, (2,), np.float64), spaces.Discrete(4, start=2)]),
            picture=spaces.Box(0, 255, (3, 2, 1), np.uint8),
            bits=spaces.MultiBinary(3),
        )
        self.action_space = spaces.Box(-2.0, 6.0, (2,), np.float64)

    def step(self, action: np.ndarray) -> Any:
        observation, _, terminated, truncated, info = super().step(0)
        return observation, float(action.sum() + self.np_random.normal()), terminated, truncated, info

    def _observe(self) -> Any:
        rng = self.np_random
        return {
            "near": (rng.uniform(-9, 9, 2), int(rng.integers(2, 6))),
            "picture": rng.integers(0, 256, (3, 2, 1), np.uint8),
            "bits": rng.integers(0, 2, 3, np.int8),
        }


class UnfitEnv(CountingEnv):
    """Never works in the row whose seed is given."""

    def __init__(self, seed: int, fault: str) -> None:
        super().__init__()
        self.unfit_seed, self.fault = seed, fault

    def reset(self, **arguments: Any) -> Any:
        observation, info = super().reset(**arguments)
        if self.unfit_seed in self.seeds:
            match self.fault:
                case "raise":
                    raise ValueError("the dice fell off the table")
                case "user":
                    raise UserError("buy new dice")
                case "exit":
                    os._exit(3)
                case "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                case "nan":
                    observation = np.full(3, np.nan, np.float32)
        return observation, info

    def step(self, action: int) -> Any:
        if self.fault == "user-later":
            raise UserError("buy new dice")
        return super().step(action)


class OtherSpacesEnv(CountingEnv):
    """Its space depends on the process."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(0.0, float(os.getpid()), (3,), np.float32)


class SlowEnv(CountingEnv):
    """Waits at every step."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def step(self, action: int) -> Any:
        time.sleep(self.seconds)
        return super().step(action)


class StrictSlowEnv(SlowEnv):
    """Refuses reset options, as those of some packages do."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        assert not options, options
        return super().reset(seed=seed)


class StallsInResetEnv(CountingEnv):
    """Its second reset never ends, once: a file says that it was met."""

    def __init__(self, mark: Path) -> None:
        super().__init__()
        self._mark, self._resets = mark, 0

    def reset(self, **arguments: Any) -> Any:
        self._resets += 1
        with suppress(FileExistsError):
            if self._resets == 2:
                self._mark.touch(exist_ok=False)
                time.sleep(1_000)
        return super().reset(**arguments)
