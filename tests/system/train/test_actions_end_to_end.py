"""Every kind of action through a whole run: trained, resumed, evaluated, loaded."""

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from action_environments import (
    SPACES,
    Forbidding,
    RepeatBits,
    RepeatPair,
    forbidding,
    forbidding_bits,
    forbidding_moves,
    forbidding_pairs,
)
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from tiny import TINY_NETWORK

import yamame
from yamame.errors import UserError

pytestmark = pytest.mark.slow

TINY: dict[str, Any] = {
    "env_steps": 120,
    "num_envs": 4,
    "updates_per_env_step": 0.1,
    "replay.batch_size": 4,
    **TINY_NETWORK,
    "eval": {"trials": 4, "final_trials": 8, "num_envs": 4, "interval_env_steps": 60},
}


class Matrix(gymnasium.Env[Any, Any]):
    """A nested Box of integers; 3 steps."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = spaces.Box(np.array([[0, -5], [1, 2]]), np.array([[3, 5], [2, 9]]), dtype=np.int64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: np.ndarray) -> Any:
        assert self.action_space.contains(action)
        self.time += 1
        return np.zeros(2, np.float32), float(action.sum()), self.time == 3, False, {}


CASES = {
    "pair": (RepeatPair, {}),
    "bits": (RepeatBits, {}),
    "matrix": (Matrix, {}),
    "masked-discrete": (forbidding_moves, {}),
    "masked-several": (forbidding_pairs, {"env.num_workers": 2}),
    "masked-bits": (forbidding_bits, {"env.action_mask_key": "legal"}),
}


@pytest.mark.parametrize("name", CASES)
def test_train_resume_evaluate_and_act(name: str, tmp_path: Path) -> None:
    make, settings = CASES[name]
    run = yamame.train(make, horizon=5, run_dir=tmp_path / "run", **TINY, **settings)
    assert run.result["updates"] > 5
    assert np.isfinite(run.result["return_mean"])
    longer = yamame.resume(run.directory, env_steps=200, modules=["action_environments", __name__])
    assert longer.result["env_steps"] >= 200 and longer.result["updates"] > run.result["updates"]
    act_alone(make(), run)
    act_together(make, run)


def act_alone(environment: gymnasium.Env[Any, Any], run: yamame.Run) -> None:
    policy = run.load()
    for episode in range(6):
        observation, info = environment.reset(seed=episode)
        policy.reset()
        reward, ended = 0.0, False
        while not ended:
            action = policy.act(observation, reward, action_mask=info.get("action_mask"))
            assert environment.action_space.contains(action)
            observation, reward, terminated, truncated, info = environment.step(action)
            ended = terminated or truncated


def act_together(make: Any, run: yamame.Run) -> None:
    vector = SyncVectorEnv([make] * 3)
    policy = run.load(num_envs=3)
    observation, info = vector.reset(seed=0)
    for _ in range(2):  # no episode is shorter than that
        action = policy.act(observation, action_mask=info.get("action_mask"))
        assert vector.action_space.contains(action)
        observation, *_, info = vector.step(action)


def test_the_same_seed_gives_the_same_run_whatever_the_workers(tmp_path: Path) -> None:
    make = forbidding("several")
    runs = [
        yamame.train(make, horizon=5, run_dir=tmp_path / str(workers), **TINY, **{"env.num_workers": workers})
        for workers in (0, 2)
    ]
    assert runs[0].result["return_mean"] == runs[1].result["return_mean"]


def test_a_loaded_policy_refuses_masks_that_it_cannot_follow(tmp_path: Path) -> None:
    run = yamame.train(forbidding("discrete"), horizon=5, run_dir=tmp_path / "run", **TINY)
    number = np.zeros(2, np.float32)
    with pytest.raises(UserError, match="allows no action"):
        run.load().act(number, action_mask=np.zeros(5))
    with pytest.raises(UserError, match="has 4 entries"):
        run.load().act(number, action_mask=np.ones(4))
    policy = run.load()
    policy.act(number, action_mask=np.ones(5))
    with pytest.raises(UserError, match="pass action_mask at every call"):
        policy.act(number)


def test_an_environment_that_allows_nothing_ends_the_run_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="environment 0 allows no action at step 0") as caught:
        yamame.train(partial(Hopeless, SPACES["discrete"]), horizon=5, run_dir=tmp_path / "run", **TINY)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


class Hopeless(Forbidding):
    """Allows nothing."""

    def _look(self, *, over: bool) -> Any:
        return super()._look(over=True)
