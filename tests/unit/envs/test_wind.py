import numpy as np
import pytest

from yamame.envs.wind import GOAL, GOAL_RADIUS, WindConfig, WindEnv, WindVectorEnv, wind_tasks
from yamame.errors import UserError


def calm(num_envs=1, **settings):
    """Points at the origin, without any wind."""
    points = WindVectorEnv(num_envs, **settings)
    points.reset(seed=0)
    points.wind[:] = 0.0
    points.reset(options={"new_task": False})
    return points


def test_tasks_are_those_of_the_benchmark():
    winds = wind_tasks()
    assert winds.shape == (60, 2) and (np.abs(winds) < 0.08).all()
    np.testing.assert_array_equal(winds, wind_tasks())
    first, last = [-0.03807605, -0.05461056], winds[59]
    np.testing.assert_allclose(winds[0], first, atol=1e-8)
    stream = np.random.RandomState(1337)
    one_by_one = [[stream.uniform(-0.08, 0.08), stream.uniform(-0.08, 0.08)] for _ in range(60)]
    np.testing.assert_array_equal(one_by_one[59], last)


def test_training_and_held_out_tasks_are_apart_and_all_occur():
    seen = []
    for held_out in (False, True):
        points = WindVectorEnv(2000, held_out=held_out)
        points.reset(seed=0)
        seen.append({tuple(wind) for wind in points.wind})
    training, held_out = ({tuple(wind) for wind in part} for part in np.split(wind_tasks(), [40]))
    assert seen == [training, held_out] and not training & held_out


def test_a_step_adds_action_and_wind():
    points = WindVectorEnv(3)
    observation, _ = points.reset(seed=1)
    np.testing.assert_array_equal(observation, np.zeros((3, 2)))
    action = np.array([[0.1, -0.05], [0.0, 0.0], [7.0, -7.0]], np.float32)
    effect = np.array([[0.1, -0.05], [0.0, 0.0], [0.1, -0.1]])
    for time in (1, 2):
        observation = points.step(action)[0]
        assert observation.dtype == np.float32
        np.testing.assert_allclose(observation, time * (effect + points.wind), rtol=1e-6)


def test_reward_at_every_step_inside_the_disc_and_only_there():
    points = calm()
    up, still, out = [0.0, 0.1], [0.0, 0.0], [0.04, 0.0]
    rewards = [points.step(np.array([action], np.float32)) for action in [up] * 10 + [still] * 3 + [out, still]]
    earned = [float(reward[0]) for _, reward, *_ in rewards]
    assert earned == [0.0] * 9 + [1.0] * 4 + [0.0] * 2
    assert [bool(info["success"][0]) for *_, info in rewards] == [each == 1.0 for each in earned]


@pytest.mark.parametrize(("distance", "earned"), [(0.0299, 1.0), (0.0301, 0.0)])
def test_the_disc_has_its_radius_all_around(distance, earned):
    angle = np.linspace(0, 2 * np.pi, 16, endpoint=False)
    points = calm(16)
    points._position[:] = GOAL + distance * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    np.testing.assert_array_equal(points.step(np.zeros((16, 2), np.float32))[1], earned)


def test_an_episode_is_truncated_at_its_horizon():
    points = calm(horizon=3)
    flags = [points.step(np.zeros((1, 2), np.float32))[2:4] for _ in range(3)]
    assert [(bool(ended[0]), bool(cut[0])) for ended, cut in flags] == [(False, False), (False, False), (False, True)]


def oracle(points):
    """Fly against the known wind: as far as it goes towards the near edge of the disc, and then stay."""
    edge = GOAL - [0.0, GOAL_RADIUS * 0.999]
    return np.clip(edge - points._position - points.wind, -0.1, 0.1)


@pytest.mark.parametrize(("config", "published"), [(WindConfig().eval_config(), 62), (WindConfig(), 63)])
def test_oracle_reaches_the_published_mean(config, published):
    tasks = np.unique(wind_tasks()[40:] if config.held_out else wind_tasks()[:40], axis=0)
    trials = config.build(len(tasks), seed=0)
    points = trials.env._env
    trials.reset()
    points.wind[:] = tasks  # each task once
    total = np.zeros(len(tasks))
    for time in range(75):
        step = trials.step(10 * oracle(points))  # trials take actions in [-1, 1]
        total += step.reward
        assert not step.terminated.any() and (step.truncated == (time == 74)).all()
    assert published <= total.mean() < published + 1
    steps_there = np.ceil((1.0 - GOAL_RADIUS) / (0.1 + tasks[:, 1]))  # no wind moves more sideways than it can be met
    np.testing.assert_array_equal(total, 76 - steps_there)


def test_random_policy_earns_its_known_return():
    points, rng = WindVectorEnv(20_000), np.random.default_rng(2)
    points.reset(seed=1)
    total = sum(points.step(rng.uniform(-0.1, 0.1, (20_000, 2)).astype(np.float32))[1] for _ in range(75))
    # 400,000 trials of a simulator written apart: 0.0092 +- 0.0002, standard deviation of one trial 0.107
    assert abs(np.mean(total) - 0.0092) < 4 * 0.107 / np.sqrt(20_000)


def test_batched_is_n_singles():
    batch, rng = WindVectorEnv(5, horizon=6), np.random.default_rng(0)
    batch.reset(seed=3)
    singles = [WindEnv(horizon=6) for _ in range(5)]
    for single, wind in zip(singles, batch.wind, strict=True):
        single.reset(seed=9)
        single.vector_env.wind[:] = wind
        single.reset(options={"new_task": False})
    for _ in range(6):
        actions = rng.uniform(-0.1, 0.1, (5, 2)).astype(np.float32)
        observation, reward, terminated, truncated, _ = batch.step(actions)
        for row, single in enumerate(singles):
            one = single.step(actions[row])
            np.testing.assert_array_equal(one[0], observation[row])
            assert one[1:4] == (reward[row], terminated[row], truncated[row])


def test_masked_reset_leaves_other_rows_and_keeps_the_wind_unless_the_task_is_new():
    points = WindVectorEnv(90)
    points.reset(seed=0)
    wind = points.wind.copy()
    before = points.step(np.full((90, 2), 0.1, np.float32))[0]
    mask, new_task = np.arange(90) < 60, np.arange(90) < 30
    observation, _ = points.reset(options={"reset_mask": mask, "new_task": new_task})
    np.testing.assert_array_equal(observation[60:], before[60:])
    assert (observation[:60] == 0).all()
    np.testing.assert_array_equal(points.wind[30:], wind[30:])
    assert (points.wind[:30] != wind[:30]).any()


def test_first_reset_samples_a_task_whatever_new_task_is():
    points = WindVectorEnv(9)
    points.reset(seed=0, options={"new_task": False})
    assert np.isfinite(points.wind).all()


def test_same_seed_same_winds():
    winds = [(points := WindVectorEnv(50), points.reset(seed=seed), points.wind)[-1].tolist() for seed in (1, 1, 2)]
    assert winds[0] == winds[1] != winds[2]


def test_no_time_is_refused():
    with pytest.raises(UserError, match="horizon"):
        WindConfig(horizon=0)
    with pytest.raises(UserError, match="horizon"):
        WindVectorEnv(1, horizon=0)


def test_names_and_lengths():
    config = WindConfig(horizon=50)
    assert (config.task_name, config.max_trial_steps) == ("wind", 50)
    test_tasks = config.eval_config()
    assert (test_tasks.task_name, test_tasks.max_trial_steps) == ("wind-held-out", 50)
    assert test_tasks.eval_config() == test_tasks
