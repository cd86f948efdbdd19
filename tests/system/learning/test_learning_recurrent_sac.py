"""Recurrent SAC learns what needs memory. Minutes: `pytest -n 0 -m learning`."""

from pathlib import Path

import gymnasium
import numpy as np
import pytest

import yamame

pytestmark = [pytest.mark.learning, pytest.mark.timeout(1800)]


class WithoutVelocities(gymnasium.ObservationWrapper):
    """CartPole whose observation has the two positions alone."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        space = env.observation_space
        assert isinstance(space, gymnasium.spaces.Box)
        self.observation_space = gymnasium.spaces.Box(space.low[::2], space.high[::2], dtype=np.float32)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return observation[::2]


def cart_pole() -> gymnasium.Env:
    return WithoutVelocities(gymnasium.make("CartPole-v1"))


def test_cart_pole_without_velocities(tmp_path: Path) -> None:
    run = yamame.train(
        cart_pole,
        algorithm="recurrent_sac",
        env_steps=20_000,
        num_envs=4,
        context_length=16,
        updates_per_env_step=0.5,
        replay={"batch_size": 32, "min_batch_transitions": 0},
        run_dir=tmp_path / "run",
    )
    assert run.result["return_mean"] >= 100  # random actions 22
