"""A new environment is one new file: an environment and its config, which trains without any other edit."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

from yamame.envs.config import EnvConfig

SOURCE = """
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from yamame.envs.base import TrialVectorEnv
from yamame.envs.config import SingleEnvConfig
from yamame.envs.wrappers.trials import TrialWrapper


class CoinEnv(gymnasium.Env[Any, Any]):
    observation_space, action_space = spaces.Box(0.0, 1.0, (1,), np.float32), spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        if (options or {}).get("new_task", True):
            self.coin = int(self.np_random.integers(2))
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> Any:
        return np.ones(1, np.float32), float(action == self.coin), True, False, {}


@dataclass(frozen=True, kw_only=True)
class CoinConfig(SingleEnvConfig):
    attempts: int = 3

    @property
    def task_name(self) -> str:
        return "coin"

    @property
    def max_trial_steps(self) -> int:
        return self.attempts

    def build(self, num_envs: int, seed: int) -> TrialVectorEnv:
        envs = self.make_vector_env(CoinEnv, num_envs, seed)
        return TrialWrapper(envs, horizon=self.attempts, attempts=self.attempts)
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EnvConfig:
    (tmp_path / "coin.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("coin").CoinConfig(num_workers=0)
    del sys.modules["coin"]


def test_one_file_is_an_environment(config: EnvConfig) -> None:
    trials = config.build(4, seed=0)
    trials.reset()
    steps = [trials.step(np.ones(4, np.int64)) for _ in range(6)]
    for first in (0, 3):  # one coin a trial
        rewards = [step.reward.tolist() for step in steps[first : first + 3]]
        assert rewards[0] == rewards[1] == rewards[2]
    assert [step.terminated.all() for step in steps] == [False, False, True] * 2
    assert all(step.episode_start.all() for step in steps)
