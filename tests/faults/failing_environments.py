"""Environments that fail at a given step or reset, in a module that workers import quickly."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space


@dataclass(frozen=True)
class FailingEnv:
    """Makes environments, the first of which with the unlucky seed fails, once.

    Episodes last 4 steps; an observation is the task, the attempt on it and the step of that, the reward is the step.
    `fault` says how the unlucky one fails: in the step of that number, over all episodes, or in the reset.
    """

    fault: str
    unlucky: int
    at: int
    marks: Path
    """Where it says that it has failed: the one in its place does not, in whatever process that is."""
    bad_close: bool = False

    def __call__(self) -> gymnasium.Env[Any, Any]:
        return _Failing(self)


class _Failing(gymnasium.Env[np.ndarray, int]):
    observation_space = spaces.Box(-1000.0, 1000.0, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, plan: FailingEnv) -> None:
        self.plan = plan
        self.unlucky = False
        self.task = self.attempt = self.time = -1
        self.steps = self.resets = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.unlucky = self.unlucky or seed == self.plan.unlucky
        self.resets += 1
        self.attempt, self.time = self.attempt + 1, 0
        if (options or {}).get("new_task", True):
            self.task, self.attempt = int(self.np_random.integers(1000)), 0
        if self.plan.fault == "raise_in_reset" and self.resets == self.plan.at and self._falls_due():
            raise RuntimeError("no level was found")
        if self.plan.fault == "nan_in_reset" and self.resets == self.plan.at and self._falls_due():
            return np.full(3, np.nan, np.float32), {}
        if self.plan.fault == "kill_in_reset" and self.resets == self.plan.at and self._falls_due():
            os.kill(os.getpid(), signal.SIGKILL)
        return self._observe(), {}

    def step(self, action: int) -> Any:
        self.time += 1
        self.steps += 1
        observation, reward = self._observe(), float(self.time)
        if self.steps == self.plan.at and not self.plan.fault.endswith("_in_reset") and self._falls_due():
            match self.plan.fault:
                case "raise":
                    raise ValueError("the dice fell off the table\nand are gone")
                case "nan":
                    observation = np.full(3, np.nan, np.float32)
                case "infinite_reward":
                    reward = -np.inf
                case "odd_reward":
                    return observation, [1.0, 2.0], False, False, {}
                case "hang":
                    time.sleep(60)
                case "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
        return observation, reward, False, self.time == 4, {}

    def close(self) -> None:
        if self.plan.bad_close:
            raise OSError("the window is gone")

    def _observe(self) -> np.ndarray:
        return np.array([self.task, self.attempt, self.time], np.float32)

    def _falls_due(self) -> bool:
        if not self.unlucky or (self.plan.marks / "failed").exists():
            return False
        (self.plan.marks / "failed").touch()
        return True


class AlwaysFailing(gymnasium.Env[np.ndarray, int]):
    """Fails at the same step of every episode."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, at: int) -> None:
        self.at = at

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> Any:
        self.time += 1
        if self.time == self.at:
            raise ValueError("out of oil")
        return np.zeros(2, np.float32), 0.0, self.time == 5, False, {}


class FailingVectorEnv(VectorEnv):
    """Three rows of `_Failing`'s task; `fault` happens to row 1 at step `at` of the first one that is made."""

    made = 0

    def __init__(self, fault: str, at: int, mode: AutoresetMode = AutoresetMode.DISABLED) -> None:
        type(self).made += 1
        self.first = type(self).made == 1
        self.fault, self.at, self.mode = fault, at, mode
        self.metadata = {"autoreset_mode": mode}
        self.num_envs = 3
        self.single_observation_space = _Failing.observation_space
        self.single_action_space = _Failing.action_space
        self.observation_space = batch_space(self.single_observation_space, 3)
        self.action_space = batch_space(self.single_action_space, 3)
        self.task, self.attempt, self.time = np.full(3, -1), np.zeros(3, int), np.zeros(3, int)
        self.steps = self.resets = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.resets += 1
        if self.first and self.fault == "raise_in_reset" and self.resets == self.at:
            raise RuntimeError("no level was found")
        options = options or {}
        self._start(np.broadcast_to(options.get("reset_mask", True), 3), options.get("new_task", True))
        return self._observe(), {}

    def step(self, actions: Any) -> Any:
        self.steps += 1
        self.time += 1
        reward, ended = self.time.astype(np.float32), self.time == 4
        info: dict[str, Any] = {}
        if ended.any() and self.mode is AutoresetMode.SAME_STEP:
            final = np.full(3, None, object)
            for row in np.flatnonzero(ended):
                final[row] = self._observe()[row]
            info = {"final_obs": final, "_final_obs": ended}
            self._start(ended, True)
        observation = self._observe()
        if self.first and self.steps == self.at:
            match self.fault:
                case "raise":
                    raise ValueError("the dice fell off the table")
                case "nan":
                    observation[1, 2] = np.nan
                case "infinite_reward":
                    reward[1] = np.inf
                case "odd_reward":
                    reward = reward[:2]
        return observation, reward, np.zeros(3, np.bool_), ended, info

    def _start(self, rows: np.ndarray, new_task: Any) -> None:
        new = rows & (np.broadcast_to(new_task, 3) | (self.task < 0))
        self.attempt[rows] += 1
        self.attempt[new] = 0
        self.task[new] = self.np_random.integers(1000, size=new.sum())
        self.time[rows] = 0

    def _observe(self) -> np.ndarray:
        return np.stack([self.task, self.attempt, self.time], axis=1).astype(np.float32)


class UnreliableRecall(gymnasium.Env[np.ndarray, int]):
    """A bit is shown once and named two steps later; 5 % of all steps fail, in one way or another."""

    observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.bit, self.time = int(self.np_random.integers(2)), 0
        return np.array([1.0, self.bit], np.float32), {}

    def step(self, action: int) -> Any:
        self.time += 1
        observation, reward = np.zeros(2, np.float32), float(self.time == 2 and action == self.bit)
        luck = self.np_random.random()
        if luck < 0.02:
            raise RuntimeError("the simulator has gone")
        if luck < 0.03:
            observation = np.full(2, np.inf, np.float32)
        elif luck < 0.04:
            reward = np.nan
        elif luck < 0.05:
            return observation, reward, "over", False, {}
        return observation, reward, self.time == 2, False, {}
