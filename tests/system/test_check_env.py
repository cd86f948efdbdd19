"""What `check_env` finds in environments, and what it refuses."""

import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import yamame

pytestmark = pytest.mark.slow


class Sound(gymnasium.Env[np.ndarray, int]):
    """Name the bit of the first step at the last one."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)
    length = 4

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time, self.bit = 0, self.sample()
        return self.observe(), {}

    def sample(self) -> int:
        return int(self.np_random.integers(2))

    def observe(self) -> np.ndarray:
        return np.array([self.bit if self.time == 0 else -1, self.time / 4], np.float32)

    def reward(self, action: int) -> float:
        return float(self.time == self.length and action == self.bit)

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return self.observe(), self.reward(action), self.time == self.length, False, {}


class Unseeded(Sound):
    flips = np.random.default_rng(0)

    def sample(self) -> int:
        return int(self.flips.integers(2))


class OneTask(Sound):
    def sample(self) -> int:
        return 1

    def reward(self, action: int) -> float:
        return 0.5


class Unrewarded(Sound):
    def reward(self, action: int) -> float:
        return 0.0


class Blank(Sound):
    def observe(self) -> np.ndarray:
        return np.zeros(2, np.float32)


class Endless(Sound):
    length = 1000


class Slow(Sound):
    def reward(self, action: int) -> float:
        time.sleep(0.2)
        return super().reward(action)


class Broken(Sound):
    def step(self, action: int) -> Any:
        observation, *rest = super().step(action)
        return observation * np.nan, *rest


class OldReset(Sound):
    def reset(self, **_: Any) -> Any:
        return super().reset(**_)[0]


class NoSeed(Sound):
    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


class BrokenReset(Sound):
    def sample(self) -> int:
        raise TypeError("got an unexpected keyword argument 'bits'")


class OldStep(Sound):
    def step(self, action: int) -> Any:
        return super().step(action)[:4]


class Unbounded(Sound):
    action_space = spaces.Box(-np.inf, np.inf, (2,))  # type: ignore[assignment]

    def reward(self, action: Any) -> float:
        return float(np.sum(action))


class Raising(Sound):
    def reward(self, action: int) -> float:
        raise ZeroDivisionError("no bit left")


@pytest.mark.parametrize(
    ("env", "found"),
    [
        (Sound, []),
        ("CartPole-v1", []),
        (Unseeded, ["the same seed and actions give different trials"]),
        (OneTask, ["all seeds give the same first observation"]),
        (Unrewarded, ["no reward in 8 trials"]),
        pytest.param(Slow, ["5 steps per second"], marks=pytest.mark.thorough),  # half a minute
        (Blank, ["the observation never changes"]),
        (Endless, ["no reward in 8 trials", "no trial of random actions ended before the horizon of 9"]),
    ],
)
def test_findings(env: Any, found: list[str]) -> None:
    findings = yamame.check_env(env, **({} if isinstance(env, str) else {"horizon": 9}))
    assert len(findings) == len(found), findings
    assert all(finding.startswith(start) for finding, start in zip(findings, found, strict=True))


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (Broken, "NaN"),
        (OldReset, r"reset does not return \(observation, info\): is it made for old Gym"),
        (NoSeed, r"'seed': define reset\(self, \*, seed=None, options=None\), or is it made for old Gym"),
        (OldStep, r"environment 0: .*step does not return .*: is it made for old Gym"),
        (Unbounded, "infinite bounds: declare finite ones"),
        (Raising, "ZeroDivisionError: no bit left"),
        (lambda: 3, "got int"),
    ],
)
def test_what_training_would_refuse(env: Any, message: str) -> None:
    with pytest.raises(yamame.UserError, match=message):
        yamame.check_env(env, horizon=9)


def test_a_type_error_inside_of_reset_is_the_environments_own() -> None:
    with pytest.raises(yamame.UserError, match=r"^the environment raised TypeError: .*'bits'") as raised:
        yamame.check_env(BrokenReset, horizon=9)
    assert "old Gym" not in str(raised.value)


def test_the_advice_for_infinite_bounds_works() -> None:
    with pytest.raises(yamame.UserError) as raised:
        yamame.check_env(Unbounded, horizon=9)
    wrapper = str(raised.value).partition("for example with ")[2]
    assert yamame.check_env(lambda: eval(wrapper, {"gymnasium": gymnasium, "env": Unbounded()}), horizon=9) == []


def test_a_recipe_is_no_environment() -> None:
    with pytest.raises(yamame.UserError, match=r"^bandit is a recipe, whose environment needs no check"):
        yamame.check_env("bandit")


def test_the_first_of_many_broken_environments_is_named(tmp_path: Path) -> None:
    with pytest.raises(yamame.UserError, match=r"environment 0: .*step does not return"):
        yamame.train(OldStep, horizon=9, env_steps=100, num_envs=4, quiet=True, run_dir=tmp_path / "run")
