"""benchmarks/recurrent_ppo.py: the rival beside the default agent."""

import json
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces
from recurrent_ppo import NUM_ENVS, TrialsVecEnv
from scripts import script
from unaided_tasks import TASKS

SMALL = ("--env-steps", "300", "--eval.final-trials", "8", "--eval.interval-env-steps", "0", "--num-envs", "4")


@pytest.mark.parametrize(
    "name", ["combination", "recall-dict", "blinking-catch-pixels", "package-delivery", "tmaze-30"]
)
def test_trials_are_episodes(name: str) -> None:
    env = TrialsVecEnv(TASKS[name].env.build(NUM_ENVS, 0))
    observation, generator, returns = env.reset(), np.random.default_rng(0), np.zeros(NUM_ENVS)
    env.action_space.seed(0)
    for _ in range(TASKS[name].env.max_trial_steps):
        assert_contains(env, observation)
        choices = getattr(env.action_space, "nvec", getattr(env.action_space, "n", None))
        size = (NUM_ENVS, *np.shape(choices))
        observation, reward, done, infos = env.step(generator.integers(choices, size=size))
        returns += reward
        if done.any():
            break
    ended = np.flatnonzero(done)
    assert len(ended)
    for each in ended:
        assert env.finished[each] == [(pytest.approx(returns[each], abs=1e-4), env.finished[each][0][1])]
        assert "terminal_observation" in infos[each]
    env.close()


def assert_contains(env: TrialsVecEnv, observation: np.ndarray | dict[str, np.ndarray]) -> None:
    for number in range(NUM_ENVS):
        if isinstance(env.observation_space, spaces.Dict):
            assert isinstance(observation, dict)
            own = {name: leaf[number] for name, leaf in observation.items()}
        else:
            own = np.asarray(observation)[number].astype(env.observation_space.dtype)
        assert env.observation_space.contains(own), own


@pytest.mark.slow
@pytest.mark.thorough
def test_equal_steps_and_equal_minutes(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "unaided", tmp_path / "recurrent_ppo"
    chosen = ("--tasks", "catch", "--seeds", "0")
    command = ("--beside", str(ours), "--output-dir", str(theirs), *chosen, "--env-steps", "1024")
    early = script("recurrent_ppo", *command)
    assert early.returncode == 2 and "has no finished run of catch, seed 0" in early.stderr
    assert script("unaided", "--output-dir", str(ours), *chosen, *SMALL).returncode == 0
    made = script("recurrent_ppo", *command)
    assert made.returncode == 0, made.stderr
    found = json.loads((theirs / "catch-seed0.json").read_text())
    assert set(found) == {"steps", "minutes", "default agent"}
    assert found["steps"]["env_steps"] >= 1024
    assert found["minutes"]["train_seconds"] >= found["default agent"]["train_seconds"]
    assert "catch" in made.stdout and "at equal minutes on" in made.stdout
    before = (theirs / "catch-seed0.json").read_text()
    assert script("recurrent_ppo", *command).returncode == 0
    assert (theirs / "catch-seed0.json").read_text() == before

    shorter = ("--beside", str(ours), "--output-dir", str(tmp_path / "minutes"), *chosen, "--minutes-only")
    assert script("recurrent_ppo", *shorter, "--env-steps", "1024").returncode == 2
    assert script("recurrent_ppo", *shorter).returncode == 0
    assert set(json.loads((tmp_path / "minutes/catch-seed0.json").read_text())) == {"minutes", "default agent"}
