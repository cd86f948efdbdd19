import numpy as np
import pytest
from gymnasium import spaces

from yamame.collect.exploration import (
    BilevelEpsilonGreedy,
    EpsilonGreedy,
    ExplorationConfig,
    Explorer,
    NoExploration,
    TMazeEpsilonGreedy,
)
from yamame.errors import UserError


def levels(config: ExplorationConfig, times: list[int], horizon: int, env_steps: int, u: float = 1.0) -> np.ndarray:
    return config.epsilon(np.array(times), horizon, env_steps, np.full(len(times), u))


def explorer(config: ExplorationConfig, space: spaces.Space, num_envs: int, seed: int = 0) -> Explorer:
    return Explorer(config, space, num_envs, np.random.default_rng(seed))


@pytest.mark.parametrize(
    ("env_steps", "expected"),
    [
        (0, [1.0, 0.9, 0.802]),  # 1 - 0.2 t / h
        (500, [0.525, 0.465, 0.4062]),  # from 0.525 to 0.405
        (1000, [0.05, 0.03, 0.0104]),
        (9999, [0.05, 0.03, 0.0104]),
    ],
)
def test_bi_level_falls_within_a_trial_and_over_training(env_steps, expected):
    config = BilevelEpsilonGreedy(anneal_env_steps=1000)
    np.testing.assert_allclose(levels(config, [0, 50, 99], 100, env_steps), expected, rtol=1e-12)
    np.testing.assert_allclose(
        levels(config, [0, 50, 99], 100, env_steps, u=0.5), np.multiply(expected, 0.5), rtol=1e-12
    )


@pytest.mark.parametrize(
    ("env_steps", "expected"),
    [
        (0, [1.0, 0.525]),  # end 0.05 at once
        (20, [0.981, 0.506]),  # start 0.981, end 0.05 - 0.95 * 0.02 = 0.031
        (500, [0.525, 0.2675]),  # end 0.01
        (2000, [0.05, 0.03]),
    ],
)
def test_bi_level_as_published_has_the_wrong_end(env_steps, expected):
    config = BilevelEpsilonGreedy(anneal_env_steps=1000, match_official_code=True)
    np.testing.assert_allclose(levels(config, [0, 50], 100, env_steps), expected, rtol=1e-12)


def test_t_maze_is_calm_in_the_corridor_only():
    config = TMazeEpsilonGreedy(anneal_env_steps=1000)
    annealed, calm = 0.505, 0.5 / 11
    expected = [annealed] + [calm] * 7 + [annealed] * 3
    np.testing.assert_allclose(levels(config, list(range(11)), 11, 500), expected, rtol=1e-12)
    np.testing.assert_allclose(levels(config, [0, 10], 11, 0), [1.0, 1.0])
    np.testing.assert_allclose(levels(config, [0, 10], 11, 5000), [0.01, 0.01])


def test_t_maze_noise_may_be_kept_to_the_last_step():
    config = TMazeEpsilonGreedy(anneal_env_steps=10, final_eps=0.3, num_junction_steps=1)
    np.testing.assert_allclose(levels(config, list(range(5)), 5, 100), [0.3, 0.1, 0.1, 0.1, 0.3], rtol=1e-12)


def test_t_maze_shorter_than_its_edges_has_no_corridor():
    np.testing.assert_allclose(levels(TMazeEpsilonGreedy(anneal_env_steps=10), [0, 1, 2, 3], 4, 0), 1.0)


def test_epsilon_greedy_ignores_time_in_the_trial():
    config = EpsilonGreedy(anneal_env_steps=100)
    for env_steps, expected in [(0, 1.0), (50, 0.525), (100, 0.05), (1000, 0.05)]:
        np.testing.assert_allclose(levels(config, [0, 7, 99], 100, env_steps), expected, rtol=1e-12)


@pytest.mark.parametrize("config", [EpsilonGreedy, BilevelEpsilonGreedy, TMazeEpsilonGreedy])
def test_a_schedule_of_no_length_is_refused(config):
    with pytest.raises(UserError, match="anneal_env_steps must be at least 1, not 0"):
        config(anneal_env_steps=0)


def test_noise_scales():
    rng = np.random.default_rng(0)
    drawn = BilevelEpsilonGreedy().sample_noise_scale(rng, 10_000)
    assert drawn.min() >= 0.0
    assert drawn.max() <= 1.0
    assert abs(drawn.mean() - 0.5) < 0.01
    assert abs(drawn.std() - 12**-0.5) < 0.01
    for fixed in (BilevelEpsilonGreedy(randomize_noise_scale=False), EpsilonGreedy(), TMazeEpsilonGreedy()):
        np.testing.assert_array_equal(fixed.sample_noise_scale(rng, 3), np.ones(3))
    np.testing.assert_array_equal(NoExploration().sample_noise_scale(rng, 3), np.zeros(3))


def test_the_noise_scale_is_sampled_at_the_start_of_each_trial_only():
    subject = explorer(BilevelEpsilonGreedy(), spaces.Discrete(3), 4)
    action = np.zeros(4, np.int64)
    subject.add_noise(action, np.zeros(4, np.int64), 10, 0)
    first = subject.noise_scale_E.copy()
    assert len(set(first)) == 4
    subject.add_noise(action, np.array([1, 0, 1, 1]), 10, 0)
    changed = subject.noise_scale_E != first
    np.testing.assert_array_equal(changed, [False, True, False, False])


@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.Box(-1, 1, (2,))])
def test_trials_that_start_early_have_noise_level_one_until_they_end(space: spaces.Space):
    config = BilevelEpsilonGreedy(anneal_env_steps=1, trial_end_final_eps=0.0, random_env_steps=100)
    subject = explorer(config, space, 4)
    action = np.zeros((4, *space.shape), np.float32 if space.shape else np.int64)
    subject.add_noise(action, np.zeros(4, np.int64), 10, 99)
    np.testing.assert_array_equal(subject.epsilon_E, 1.0)
    np.testing.assert_array_equal(subject.noise_scale_E, 1.0)

    subject.add_noise(action, np.array([5, 5, 0, 0]), 10, 100)
    np.testing.assert_array_equal(subject.random_E, [True, True, False, False])
    np.testing.assert_array_equal(subject.epsilon_E[:2], 1.0)
    assert (subject.epsilon_E[2:] <= config.trial_start_final_eps).all()
    assert (subject.noise_scale_E[2:] < 1.0).all()

    restored = explorer(config, space, 4)
    restored.load_state_dict(subject.state_dict())
    restored.add_noise(action, np.array([6, 6, 1, 1]), 10, 104)
    np.testing.assert_array_equal(restored.epsilon_E[:2], 1.0)
    assert (restored.epsilon_E[2:] < 1.0).all()


def test_small_noise_scales_of_discrete_actions_are_as_frequent_as_large_ones():
    config = BilevelEpsilonGreedy(log_noise_scale=True)
    drawn = config.sample_noise_scale(np.random.default_rng(0), 10_000, 100)
    assert drawn.min() >= 0.01 and drawn.max() <= 1.0
    assert (drawn < 0.1).mean() == pytest.approx(0.5, abs=0.02)
    unlimited = config.sample_noise_scale(np.random.default_rng(0), 10_000, 10**9)
    assert unlimited.min() >= 0.001
    for uniform in (
        config.sample_noise_scale(np.random.default_rng(0), 10_000),
        BilevelEpsilonGreedy().sample_noise_scale(np.random.default_rng(0), 10_000, 100),
    ):
        assert (uniform < 0.1).mean() == pytest.approx(0.1, abs=0.02)
    fixed = BilevelEpsilonGreedy(log_noise_scale=True, randomize_noise_scale=False)
    np.testing.assert_array_equal(fixed.sample_noise_scale(np.random.default_rng(0), 3, 100), np.ones(3))


def test_the_explorer_scales_noise_by_the_horizon_for_discrete_actions_alone():
    config = BilevelEpsilonGreedy(log_noise_scale=True)
    medians = []
    for space in (spaces.Discrete(3), spaces.MultiDiscrete([3, 2]), spaces.Box(-1, 1, (2,))):
        subject = explorer(config, space, 2_000)
        dtype = np.float32 if isinstance(space, spaces.Box) else np.int64
        subject.add_noise(np.zeros((2_000, *space.shape), dtype), np.zeros(2_000, np.int64), 100, 0)
        medians.append(np.median(subject.noise_scale_E))
    assert medians == pytest.approx([0.1, 0.1, 0.5], abs=0.05)


def test_some_trials_are_random_at_their_end_alone():
    """Of 20 steps: the last one in a quarter of these trials, all in few, and no step before them."""
    config = EpsilonGreedy(initial_eps=0.0, final_eps=0.0, random_end_prob=0.5)
    num_envs, horizon = 4_000, 20
    subject = explorer(config, spaces.Discrete(1000), num_envs)
    chosen = np.zeros(num_envs, np.int64)
    executed = np.stack(
        [subject.add_noise(chosen, np.full(num_envs, time), horizon, 0) != chosen for time in range(horizon)]
    )
    random_steps = executed.sum(axis=0)
    assert (random_steps > 0).mean() == pytest.approx(0.5, abs=0.03)
    expected = np.log(2) / np.log(horizon + 1)
    assert (random_steps == 1).sum() / (random_steps > 0).sum() == pytest.approx(expected, abs=0.03)
    assert (random_steps >= horizon - 1).any()
    first = executed.argmax(axis=0)[random_steps > 0]
    assert (first + random_steps[random_steps > 0] >= horizon - 1).all()

    # resumed in the middle of the trials, they go on
    restored = explorer(config, spaces.Discrete(1000), num_envs)
    restored.load_state_dict(subject.state_dict())
    np.testing.assert_array_equal(restored.first_random_step_E, subject.first_random_step_E)
    earlier = {name: value for name, value in subject.state_dict().items() if name != "first_random_step"}
    restored.load_state_dict(earlier)
    assert (restored.first_random_step_E == -1).all()


def test_noise_of_a_box_does_not_wait_for_the_end():
    subject = explorer(BilevelEpsilonGreedy(random_end_prob=1.0), spaces.Box(-1, 1, (2,)), 50)
    subject.add_noise(np.zeros((50, 2), np.float32), np.zeros(50, np.int64), 20, 0)
    assert (subject.epsilon_E > 0).all()


@pytest.mark.parametrize("space", [spaces.Discrete(9), spaces.Box(-1, 1, (2,))])
def test_actions_of_a_policy_that_explores_by_itself_get_no_noise(space: spaces.Space):
    config = EpsilonGreedy(final_eps=1.0, repeat_exponent=1.0, random_env_steps=1)
    subject, explores = explorer(config, space, 4), np.array([True, False, True, False])
    chosen = np.full((4, *space.shape), 0.5 if space.shape else 8, np.float32 if space.shape else np.int64)
    executed = np.stack([subject.add_noise(chosen, np.full(4, t), 20, 1, None, explores) for t in range(20)])
    assert (executed[:, explores] == chosen[explores]).all()
    assert (executed[:, ~explores] != chosen[~explores]).any(axis=0).all()
    np.testing.assert_array_equal(subject.epsilon_E > 0, ~explores)
    assert not subject.repeated_E[explores].any()

    # the first trials are random, whoever acts
    subject = explorer(config, space, 4)
    executed = np.stack([subject.add_noise(chosen, np.full(4, t), 20, 0, None, explores) for t in range(20)])
    assert (executed != chosen).any(axis=0).all()


def test_trials_that_start_early_take_no_action_of_the_policy():
    num_envs = 20_000
    config = BilevelEpsilonGreedy(random_env_steps=1, repeat_exponent=2.0)
    executed = explorer(config, spaces.Discrete(4), num_envs).add_noise(
        np.full(num_envs, 2), np.zeros(num_envs, np.int64), 10, 0
    )
    np.testing.assert_allclose(np.bincount(executed, minlength=4) / num_envs, 0.25, atol=0.01)


def test_a_negative_number_of_random_steps_is_refused():
    with pytest.raises(UserError, match="random_env_steps must be at least 0, not -1"):
        EpsilonGreedy(random_env_steps=-1)


def test_discrete_actions_are_replaced_as_often_as_epsilon_says_by_uniform_ones():
    num_envs, epsilon = 60_000, 0.3
    subject = explorer(EpsilonGreedy(initial_eps=epsilon), spaces.Discrete(4), num_envs)
    policy_action = np.full(num_envs, 2)
    executed = subject.add_noise(policy_action, np.zeros(num_envs, np.int64), 10, 0)
    assert executed.dtype == np.int64
    frequency = np.bincount(executed, minlength=4) / num_envs
    np.testing.assert_allclose(frequency, [0.075, 0.075, 0.775, 0.075], atol=0.006)
    np.testing.assert_array_equal(policy_action, 2)


def test_each_environment_is_perturbed_at_its_own_level():
    num_envs = 20_000
    subject = explorer(TMazeEpsilonGreedy(), spaces.Discrete(2), num_envs)
    time = np.where(np.arange(num_envs) % 2, 5, 0)
    executed = subject.add_noise(np.zeros(num_envs, np.int64), time, 1000, 0)
    assert abs(executed[time == 0].mean() - 0.5) < 0.02
    assert executed[time == 5].mean() < 0.002


def test_box_noise_is_normal_scaled_by_epsilon():
    num_envs, epsilon = 40_000, 0.2
    subject = explorer(EpsilonGreedy(initial_eps=epsilon), spaces.Box(-1, 1, (2,)), num_envs)
    mean = np.array([0.0, 0.1], np.float32)
    executed = subject.add_noise(np.tile(mean, (num_envs, 1)), np.zeros(num_envs, np.int64), 10, 0)
    assert executed.dtype == np.float32
    np.testing.assert_allclose(executed.mean(0), mean, atol=0.005)
    np.testing.assert_allclose(executed.std(0), epsilon, atol=0.005)
    assert abs(np.corrcoef(executed.T)[0, 1]) < 0.02


def test_box_actions_are_clipped():
    subject = explorer(EpsilonGreedy(), spaces.Box(-1, 1, (3,)), 1000)
    executed = subject.add_noise(np.full((1000, 3), 0.9, np.float32), np.zeros(1000, np.int64), 10, 0)
    assert executed.max() == 1.0
    assert executed.min() == -1.0
    assert abs((executed == 1.0).mean() - 0.46) < 0.03  # P(normal > 0.1)


@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.Box(-1, 1, (2,))])
def test_no_exploration_changes_nothing_but_the_type(space):
    subject = explorer(NoExploration(), space, 2)
    discrete = isinstance(space, spaces.Discrete)
    action = np.array([2, 1], np.int32) if discrete else np.array([[0.5, -1.0], [0.1, 0.2]])
    executed = subject.add_noise(action, np.zeros(2, np.int64), 10, 0)
    assert executed.dtype == (np.int64 if discrete else np.float32)
    np.testing.assert_allclose(executed, action, rtol=1e-6)


@pytest.mark.parametrize("space", [spaces.Discrete(7), spaces.Box(-1, 1, (2,))])
def test_same_seed_same_noise(space):
    action = np.zeros(50, np.int64) if isinstance(space, spaces.Discrete) else np.zeros((50, 2), np.float32)

    def noise(seed: int) -> np.ndarray:
        subject = explorer(BilevelEpsilonGreedy(), space, 50, seed)
        return np.stack([subject.add_noise(action, np.full(50, t), 10, t) for t in range(5)])

    np.testing.assert_array_equal(noise(3), noise(3))
    assert (noise(3) != noise(4)).any()
