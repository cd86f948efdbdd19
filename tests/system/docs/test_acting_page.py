"""The page about acting: what it does beyond running, and what it says of threads and of files."""

import shutil
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from guide_reader import follow, small_runs
from gymnasium import spaces
from tiny import TINY_RUN

import yamame

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the blocks of the page define."""
    with pytest.MonkeyPatch.context() as patch, small_runs():
        folder = tmp_path_factory.mktemp("followed")
        patch.chdir(folder)
        names = follow("acting.md")
        names["run"] = yamame.open(names["run"].directory.resolve())
        return names


def test_the_missing_reset_is_warned_of_once(names: dict[str, Any]) -> None:
    assert ["longer than the 31 steps of training" in str(each.message) for each in names["caught"]] == [True]


class Attempts(gymnasium.Env[np.ndarray, int]):
    """Episodes of two steps; remembers the options of its resets."""

    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.new_task: list[bool] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.new_task.append((options or {}).get("new_task", True))
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return np.ones(1, np.float32), float(self.time), self.time == 2, False, {}


def test_a_trial_of_several_episodes(names: dict[str, Any], tmp_path: Path) -> None:
    """The inputs of the network are those of training: each reward once, and a flag at the start of each episode."""
    run = yamame.train(Attempts, horizon=6, attempts=3, env_steps=48, run_dir=tmp_path / "run", **TINY_RUN)
    policy, env, steps = run.load(), Attempts(), []
    act = policy._policy.act
    policy._policy.act = lambda step, **options: (steps.append(step), act(step, **options))[1]  # type: ignore
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        names["play_trial"](policy, env, 3)
        names["play_trial"](policy, env, 3)
    assert env.new_task == [True, False, False] * 2
    for trial in (steps[:6], steps[6:]):
        assert [int(step.time[0]) for step in trial] == list(range(6))
        assert [bool(step.episode_start[0]) for step in trial] == [True, False] * 3
        assert [float(step.previous_reward[0]) for step in trial] == [0.0, 1.0, 2.0, 1.0, 2.0, 1.0]


def test_a_late_decision_takes_effect_later_and_gets_the_sum_of_rewards(names: dict[str, Any]) -> None:
    controller = names["Controller"](names["run"].directory, np.zeros(2, np.float32), 3, 0.0)
    decided, rewards = threading.Event(), []

    def act(observation: Any, reward: float) -> int:
        rewards.append(reward)
        assert decided.wait(60)
        return len(rewards)

    controller.policy.act = act
    assert [controller.tick(None, reward) for reward in (0.0, 1.0, 2.0)] == [3, 3, 3]
    assert controller.num_late == 3
    decided.set()
    assert controller.pending.result(60) == 1
    assert controller.tick(None, 4.0) == 1
    controller.budget_seconds = 60
    assert controller.tick(None, 8.0) == 2 and rewards == [0.0, 15.0]
    controller.start_trial()
    assert (controller.pending, controller.action, controller.reward) == (None, 3, 0.0)


def test_a_policy_for_each_thread(names: dict[str, Any]) -> None:
    observations = np.random.default_rng(0).random((31, 2), np.float32)

    def actions(policy: yamame.LoadedPolicy) -> list[int]:
        return [int(policy.act(observation, deterministic=True)) for observation in observations]

    alone = actions(names["run"].load())
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(actions, [names["run"].load() for _ in range(4)]))
    assert together == [alone] * 4


def test_three_things_of_a_run_are_enough(names: dict[str, Any], tmp_path: Path) -> None:
    run = names["run"].directory
    for name in ("config.json", "spaces.json"):
        shutil.copy(run / name, tmp_path)
    latest = names["run"].checkpoints[0]
    shutil.copytree(latest, tmp_path / "checkpoints" / latest.name)
    observation = np.array([0.0, 1.0], np.float32)
    assert yamame.load(tmp_path).act(observation, deterministic=True) == names["run"].load().act(
        observation, deterministic=True
    )
