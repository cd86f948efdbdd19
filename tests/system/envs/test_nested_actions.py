"""Dict and Tuple actions in vector environments of every kind, and in whole runs that learn."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from action_environments import STEPS, ReachPoint, RepeatParts
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import yamame
from yamame.data.actions import ACTION_MASK_KEY
from yamame.envs.vector.autotune import make_vector_env
from yamame.envs.vector.gymnasium_adapter import make_episode_vector_env

ROWS = 3


def played(envs: Any) -> list[np.ndarray]:
    """Rewards and observations of a few steps of the first allowed, or of middle, actions."""
    every = np.ones(ROWS, np.bool_)
    observation, found = envs.reset(every, every), []
    for _ in range(STEPS):
        if ACTION_MASK_KEY in observation:
            bits, digits = np.split(observation[ACTION_MASK_KEY], [2], axis=1)  # in the order of their names
            action = np.stack([bits.argmax(axis=1), digits.argmax(axis=1)], axis=1)
        else:
            action = np.full((ROWS, 2), 0.3, np.float32)
        step = envs.step(action)
        observation = step.observation
        found += [step.reward, *observation.values()]
    envs.close()
    return found


@pytest.mark.parametrize("make", [RepeatParts, ReachPoint])
def test_every_kind_of_vector_environment_takes_nested_actions(make: Any) -> None:
    serial = played(make_vector_env(make, ROWS, 3, 0))
    for step in zip(serial, played(make_vector_env(make, ROWS, 3, 2)), strict=True):
        np.testing.assert_array_equal(*step)
    sync = SyncVectorEnv([make] * ROWS, autoreset_mode=AutoresetMode.DISABLED)
    assert len(played(make_episode_vector_env(sync, 3))) == len(serial)


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("make", "steps", "random"),
    [(RepeatParts, 3_000, 1 / 4), (ReachPoint, 6_000, 0.36)],
)
def test_nested_actions_are_learned(make: Any, steps: int, random: float, tmp_path: Path) -> None:
    assert all("speed" not in finding for finding in yamame.check_env(make, horizon=STEPS))
    run = yamame.train(make, horizon=STEPS, run_dir=tmp_path / "run", env_steps=steps, size="tiny", **SETTINGS)
    print(make.__name__, run.result["return_mean"], run.result["wall_seconds"])
    assert run.result["return_mean"] >= 0.85 > 2 * random
    policy, env = yamame.load(run.directory), make()
    total, (observation, info) = 0.0, env.reset(seed=1)
    for _ in range(STEPS):
        action = policy.act(observation, deterministic=True, action_mask=info.get("action_mask"))
        observation, reward, _, _, info = env.step(action)  # raises if the action is not in the space
        total += reward
    assert total >= 0.7


SETTINGS: dict[str, Any] = {
    "seed": 0,
    "env.num_workers": 0,
    "updates_per_env_step": 0.1,
    "learner.learning_rate": 2e-3,
    "compute": {"device": "cpu"},
    "eval": {"interval_env_steps": 1_000, "trials": 64, "final_trials": 64, "stop_return": 0.9},
}
