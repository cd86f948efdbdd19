"""Rewards that float32 cannot hold: found, refused, and no false alarms."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from collecting import collect_trials
from gymnasium import spaces

from yamame.collect.collector import Collector, RandomPolicy
from yamame.collect.exploration import Explorer, NoExploration
from yamame.collect.reward_range import RewardRange
from yamame.data.trajectory import Trajectory
from yamame.envs.env_fn import EnvFnConfig
from yamame.errors import UserError

RNG = np.random.default_rng(0)
DIGITS = RNG.integers(2, size=(8, 4)).astype(float)


def finding_of(rewards: np.ndarray) -> str | None:
    found = RewardRange()
    for trial in rewards:
        found.record(trial)
    return found.finding()


@pytest.mark.parametrize("unit", [1e-12, 1e-6, 0.1, 1.0, 1e6, 1e12])
def test_units_and_small_offsets_are_fine(unit: float) -> None:
    few, noise = np.zeros((8, 4)), RNG.normal(size=(8, 4))
    few[3, 2] = 1.0
    for rewards in (DIGITS, few, noise, DIGITS + 1000.0, np.full((8, 4), 0.1), np.zeros((8, 4))):
        assert finding_of(rewards * unit) is None


def test_rounding_errors_of_the_environment_are_fine() -> None:
    assert finding_of(np.array([[0.3 - 0.2, 0.1], [1.1 - 1.0, 0.4 - 0.3]])) is None


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_offsets_that_hide_the_rest_are_named(unit: float) -> None:
    found = finding_of((DIGITS + 1e8) * unit)
    assert found and "subtract a constant" in found and "\n" not in found


def test_offsets_of_single_steps_are_named() -> None:
    assert finding_of(np.array([[1e8], [1e8 + 1.0]])) == (
        "rewards from 100000000 to 100000001 differ by 1, and float32 rounds them by up to 1: subtract a constant, so "
        "that they are near 0"
    )


def test_rewards_whose_squares_are_zero_are_named() -> None:
    assert finding_of(DIGITS * -1e-25) == (
        "no reward is larger than 1e-25 in size, whose square is 0 in float32: scale rewards"
    )
    assert finding_of(np.array([[1e-25, 1.0]])) is None


class Pays(gymnasium.Env[Any, Any]):
    observation_space, action_space = spaces.Box(0.0, 1.0, (1,)), spaces.Discrete(2)
    amounts: tuple[float, ...] = (0.1,)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return np.zeros(1, np.float32), self.amounts[self.time % len(self.amounts)], False, self.time == 4, {}


def collect(pays: type[Pays], num_workers: int = 0) -> tuple[Collector, list[Trajectory]]:
    envs = EnvFnConfig(env_fn=pays, horizon=9, num_workers=num_workers).build(2, 0)
    collector = Collector(envs, "", Explorer(NoExploration(), envs.action_space, 2, np.random.default_rng(0)))
    try:
        policy = RandomPolicy(envs.action_space, np.random.default_rng(0))
        return collector, list(collect_trials(collector, policy, 20))
    finally:
        collector.close()


class Offset(Pays):
    amounts = (1e8 + 0.25, 1e8 + 0.75)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_collector_sees_what_the_environment_returned(num_workers: int) -> None:
    collector, trials = collect(Offset, num_workers)
    assert "from 100000000.25 to 100000000.75 differ by 0.5" in str(collector.rewards.finding())
    assert {trial.reward.dtype for trial in trials} == {np.dtype(np.float32)}
    assert collector.start().previous_reward.dtype == np.float32


@pytest.mark.parametrize("amount", [1e15, -1e30, 1e39, 1e300])
def test_rewards_too_large_to_learn_from_end_the_run(amount: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pays, "amounts", (0.0, 0.0, 0.0, amount))
    with pytest.raises(UserError) as error:
        collect(Pays)
    assert str(error.value) == (
        f"environment 0 returned the reward {amount:g} at step 3 of its episode, expected magnitudes below 1e+15: "
        "scale or clip rewards"
    )
