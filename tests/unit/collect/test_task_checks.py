"""Attempts of a trial that do not share their task are found; environments that keep it are not reported."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import yamame


class Doors(gymnasium.Env[np.ndarray, int]):
    """One of five doors has the prize, another one in every episode."""

    observation_space, action_space = spaces.Box(0.0, 1.0, (1,)), spaces.Discrete(5)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.begin((options or {}).get("new_task", True))
        return np.zeros(1, np.float32), {}

    def begin(self, new_task: bool) -> None:
        self.prize = int(self.np_random.integers(5))

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.ones(1, np.float32), float(action == self.prize), True, False, {}


class Keeps(Doors):
    def begin(self, new_task: bool) -> None:
        if new_task:
            super().begin(new_task)


class KeepsWhatItSampled(Doors):
    """Takes as many random numbers whether the task is kept or not."""

    def begin(self, new_task: bool) -> None:
        sampled = int(self.np_random.integers(5))
        self.prize = sampled if new_task else self.prize


class KeepsAndVaries(Keeps):
    """Has random numbers of its own in every episode."""

    def begin(self, new_task: bool) -> None:
        super().begin(new_task)
        self.np_random.integers(9)


class OneTask(Doors):
    def begin(self, new_task: bool) -> None:
        self.prize = 2


def findings(env: type[Doors], attempts: int | None) -> list[str]:
    return [each for each in yamame.check_env(env, horizon=6, attempts=attempts) if "new_task" in each]


@pytest.mark.parametrize("attempts", [6, None])
def test_only_ignored_tasks_are_found(attempts: int | None) -> None:
    (finding,) = findings(Doors, attempts)
    assert finding.startswith("reset with options['new_task'] False gives the same episodes as without it")
    for env in (Keeps, KeepsWhatItSampled, KeepsAndVaries, OneTask):
        assert findings(env, attempts) == [], env


def test_trials_of_one_attempt_need_no_task_to_be_kept() -> None:
    assert findings(Doors, 1) == []
