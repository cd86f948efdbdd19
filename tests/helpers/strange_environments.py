"""Environments that a run must refuse or tolerate, under Gymnasium ids: `strange_environments:Unbounded-v0`."""

import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Strange(gymnasium.Env[Any, Any]):
    """Episodes of three steps; what is strange is in the arguments."""

    def __init__(
        self,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        nan_at_step: int | None = None,
        stall_at_step: int | None = None,
    ) -> None:
        self.observation_space = observation_space or spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = action_space or spaces.Discrete(2)
        self._nan_at_step = nan_at_step
        self._stall_at_step = stall_at_step
        self._steps = -1
        self._time = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._time = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._time += 1
        return self._observe(), 1.0, self._time == 3, False, {}

    def _observe(self) -> Any:
        self._steps += 1
        if self._steps == self._stall_at_step:
            Path("stalled").touch()
            time.sleep(60)
        if isinstance(self.observation_space, spaces.Box):
            return np.full((2,), np.nan if self._steps == self._nan_at_step else 0.0, np.float32)
        return self.observation_space.sample()


_IDS: dict[str, dict[str, Any]] = {
    "TextAction-v0": {"action_space": spaces.Text(5)},
    "MixedAction-v0": {"action_space": spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(-1.0, 1.0))},
    "Unbounded-v0": {"action_space": spaces.Box(-np.inf, np.inf, (3,), np.float32)},
    "NaNAtOnce-v0": {"nan_at_step": 0},
    "NaNLater-v0": {"nan_at_step": 40},
    "Slow-v0": {"stall_at_step": 8},
    "Sound-v0": {},
}

for _name, _arguments in _IDS.items():
    gymnasium.register(_name, entry_point=Strange, kwargs=_arguments)
