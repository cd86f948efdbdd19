"""A small environment whose every number can be computed beforehand, and a vector environment that hides what it is."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv


class CountingEnv(gymnasium.Env[np.ndarray, int]):
    """Task k lasts 2 + k % 3 steps and ends terminated and successful if k is even, truncated if odd.

    Observation: task, episodes played on it so far, steps of this episode. Reward: step count + 10 * action.
    """

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0.0, 1000.0, (3,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.seeds: list[int | None] = []
        self.options: list[Any] = []
        self.task, self.episode, self.count = -1, 0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.options.append(options)
        if (options or {}).get("new_task", True):
            self.task, self.episode = int(self.np_random.integers(100)), -1
        self.episode, self.count = self.episode + 1, 0
        return self._observe(), {}

    def step(self, action: int) -> Any:
        self.count += 1
        ended, even = self.count == 2 + self.task % 3, self.task % 2 == 0
        info = {"success": even} if ended else {}
        return self._observe(), float(self.count + 10 * action), ended and even, ended and not even, info

    def _observe(self) -> np.ndarray:
        return np.array([self.task, self.episode, self.count], np.float32)


class OpaqueVectorEnv(VectorEnv):
    """Resets itself, without masks and options, as third-party vector environments do."""

    def __init__(self, num_envs: int, mode: AutoresetMode) -> None:
        self.inner = SyncVectorEnv([CountingEnv] * num_envs, autoreset_mode=mode)
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": mode}
        self.single_observation_space = self.inner.single_observation_space
        self.single_action_space = self.inner.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self.inner.reset(seed=seed)

    def step(self, actions: Any) -> Any:
        return self.inner.step(actions)
