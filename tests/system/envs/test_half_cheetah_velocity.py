import sys

import gymnasium
import numpy as np
import pytest

from yamame.envs.half_cheetah_velocity import HalfCheetahVelocity, HalfCheetahVelocityConfig
from yamame.errors import UserError

pytest.importorskip("mujoco")


def test_reward_follows_from_the_simulators_own_velocity():
    ours, plain = HalfCheetahVelocity(), gymnasium.make("HalfCheetah-v5").unwrapped
    rng = np.random.default_rng(0)
    first, _ = ours.reset(seed=7)
    np.testing.assert_array_equal(first, plain.reset(seed=7)[0])
    assert first.shape == (17,) and 0 <= ours.target_velocity <= 3
    for _ in range(50):
        action = rng.uniform(-1, 1, 6).astype(np.float32)
        before = float(plain.data.qpos[0])
        expected, *_ = plain.step(action)
        velocity = (float(plain.data.qpos[0]) - before) / 0.05
        observation, reward, terminated, truncated, info = ours.step(action)
        np.testing.assert_array_equal(observation, expected)
        assert info["x_velocity"] == pytest.approx(velocity)
        energy = float((action.astype(np.float64) ** 2).sum())
        assert reward == pytest.approx(-abs(velocity - ours.target_velocity) - 0.05 * energy)
        assert not terminated and not truncated


def test_running_at_the_target_velocity_costs_nothing():
    cheetah = HalfCheetahVelocity(attempt_length=20)
    cheetah.reset(seed=0)
    simulator = cheetah.unwrapped
    total = 0.0
    for _ in range(20):
        start = simulator.data.qpos[0]
        simulator.data.qvel[:] = 0.0  # the body is carried along instead of running
        simulator.data.qvel[0] = cheetah.target_velocity
        simulator.model.opt.gravity[:] = 0.0
        simulator.data.qpos[1] = 5.0
        total += cheetah.step(np.zeros(6, np.float32))[1]
        assert simulator.data.qpos[0] > start
    assert -0.05 * 20 * cheetah.target_velocity < total <= 0.0  # within 5 % of the velocity, against 100 % at rest


def test_the_target_stays_unless_the_task_is_new():
    cheetah = HalfCheetahVelocity()
    cheetah.reset(seed=3, options={"new_task": False})
    first = cheetah.target_velocity
    assert np.isfinite(first)
    cheetah.reset(options={"new_task": False})
    assert cheetah.target_velocity == first
    cheetah.reset()
    assert cheetah.target_velocity != first


def test_targets_are_uniform():
    cheetah = HalfCheetahVelocity()
    targets = []
    for seed in range(300):
        cheetah.reset(seed=seed)
        targets.append(cheetah.target_velocity)
    quartiles = np.histogram(targets, bins=4, range=(0.0, 3.0))[0]
    assert quartiles.sum() == 300 and np.abs(quartiles - 75).max() < 30


def test_an_attempt_ends_by_time_alone_and_a_trial_has_three():
    config = HalfCheetahVelocityConfig(attempt_length=4, num_workers=0)
    trials = config.build(2, seed=0)
    trials.reset()
    cheetahs = trials.env._envs
    targets, flags = [], []
    for _ in range(24):
        targets.append(tuple(each.target_velocity for each in cheetahs))
        step = trials.step(np.zeros((2, 6), np.float32))
        assert not step.terminated.any()
        flags.append((bool(step.episode_start.all()), bool(step.truncated.all())))
    assert len(set(targets[:12])) == len(set(targets[12:])) == 1 and targets[0] != targets[12]
    assert flags[:12] == [(time % 4 == 3, time == 11) for time in range(12)] == flags[12:]


def test_random_policy_earns_its_known_return():
    trials, rng = HalfCheetahVelocityConfig(num_workers=0).build(16, seed=1), np.random.default_rng(2)
    trials.reset()
    attempts = np.zeros((3, 16))
    for time in range(600):
        attempts[time // 200] += trials.step(rng.uniform(-1, 1, (16, 6)).astype(np.float32)).reward
    # 100 attempts of the plain simulator: mean -346, standard deviation 179, most of it from the target
    assert np.abs(attempts.mean(axis=1) + 346).max() < 4 * 179 / np.sqrt(16)


def test_same_seed_same_trials_wherever_they_are_stepped():
    def seen(seed, workers):
        trials, rng = (
            HalfCheetahVelocityConfig(attempt_length=5, num_workers=workers).build(2, seed),
            np.random.default_rng(0),
        )
        log = [trials.reset()["observation"].tolist()]
        for _ in range(20):
            step = trials.step(rng.uniform(-1, 1, (2, 6)).astype(np.float32))
            log.append([step.reward.tolist(), step.observation["observation"].tolist()])
        trials.close()
        return log

    assert seen(4, 0) == seen(4, 2) != seen(5, 0)


def test_missing_package_is_answered_with_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium.envs.mujoco.half_cheetah_v5", None)
    with pytest.raises(UserError, match=r"pip install 'yamame\[mujoco\]'"):
        HalfCheetahVelocityConfig().build(1, 0)


def test_impossible_lengths_are_refused():
    with pytest.raises(UserError, match="attempt_length"):
        HalfCheetahVelocity(attempt_length=0)
    with pytest.raises(UserError, match="attempts"):
        HalfCheetahVelocityConfig(attempts=0)


def test_names_and_lengths():
    config = HalfCheetahVelocityConfig(attempts=2, attempt_length=30)
    assert (config.task_name, config.max_trial_steps) == ("half-cheetah-velocity", 60)
    assert HalfCheetahVelocityConfig().max_trial_steps == 600
