import numpy as np
import pytest

import yamame
from yamame.envs.bandit import BanditConfig, BanditEnv, BanditVectorEnv
from yamame.errors import UserError


def test_dependent_arms_pay_with_p_and_one_minus_p():
    bandits = BanditVectorEnv(2000)
    bandits.reset(seed=0)
    probabilities = bandits.pay_probabilities
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert abs(probabilities[:, 0].mean() - 0.5) < 4 * np.sqrt(1 / 12 / 2000)
    assert probabilities.min() < 0.01 and probabilities.max() > 0.99


def test_independent_arms_pay_with_probabilities_of_their_own():
    bandits = BanditVectorEnv(4000, arms=3, dependent=False)
    bandits.reset(seed=0)
    correlations = np.corrcoef(bandits.pay_probabilities.T)
    assert np.abs(correlations - np.eye(3)).max() < 4 / np.sqrt(4000)


def test_an_arm_pays_as_often_as_its_probability_says():
    bandits = BanditVectorEnv(4000)
    bandits.reset(seed=1)
    bandits.pay_probabilities[:] = (0.2, 0.8)
    for arm, probability in ((0, 0.2), (1, 0.8)):
        observation, reward, *_ = bandits.step(np.full(4000, arm))
        assert not observation.any() and set(np.unique(reward)) == {0.0, 1.0}
        assert abs(reward.mean() - probability) < 4 * np.sqrt(0.16 / 4000)


def test_the_episode_ends_with_the_last_pull():
    bandits = BanditVectorEnv(1, pulls=3)
    bandits.reset(seed=0)
    ends = [bandits.step(np.array([0]))[2:4] for _ in range(3)]
    assert [(bool(terminated[0]), bool(truncated[0])) for terminated, truncated in ends] == [
        (False, False),
        (False, False),
        (True, True),
    ]


def total_reward(choose, rows: int = 6000) -> tuple[float, float]:
    """Mean return of whole trials, with its standard error; `choose(number that each arm paid, number it did not)`."""
    trials = BanditConfig().build(rows, seed=0)
    trials.reset()
    paid, unpaid, every = np.zeros((rows, 2)), np.zeros((rows, 2)), np.arange(rows)
    returns = np.zeros(rows)
    for _ in range(trials.horizon):
        actions = choose(paid, unpaid)
        step = trials.step(actions)
        returns += step.reward
        paid[every, actions] += step.reward
        unpaid[every, actions] += 1 - step.reward
    return float(returns.mean()), float(returns.std() / np.sqrt(rows))


def test_the_arm_that_is_likelier_to_pay_earns_what_the_recipe_says():
    def optimal(paid, unpaid):
        return (paid[:, 1] + unpaid[:, 0] > paid[:, 0] + unpaid[:, 1]).astype(np.int64)

    # of n pulls, the number that speaks for arm 0 is uniform in 0 to n, and its posterior mean (k + 1) / (n + 2)
    expected = sum(
        np.mean([max(count + 1, pulls - count + 1) / (pulls + 2) for count in range(pulls + 1)]) for pulls in range(100)
    )
    assert round(expected, 1) == 73.8
    mean, error = total_reward(optimal)
    assert abs(mean - expected) < 4 * error
    mean, error = total_reward(lambda paid, unpaid: np.zeros(len(paid), np.int64))
    assert abs(mean - 50) < 4 * error


def test_masked_reset_leaves_other_rows_and_keeps_the_probabilities_unless_the_task_is_new():
    bandits = BanditVectorEnv(20, pulls=2)
    bandits.reset(seed=0)
    bandits.step(np.zeros(20, np.int64))
    before = bandits.pay_probabilities.copy()
    mask, new_task = np.arange(20) < 15, np.arange(20) < 10
    bandits.reset(options={"reset_mask": mask, "new_task": new_task})
    changed = (bandits.pay_probabilities != before).any(axis=1)
    np.testing.assert_array_equal(changed, new_task)
    ended = bandits.step(np.zeros(20, np.int64))[2]
    np.testing.assert_array_equal(ended, ~mask)


def test_batched_is_n_singles():
    batch = BanditVectorEnv(3, arms=3, pulls=4, dependent=False)
    batch.reset(seed=0)
    batch.pay_probabilities = np.eye(3)  # sure arms, so that random numbers do not matter
    singles = [BanditEnv(arms=3, pulls=4, dependent=False) for _ in range(3)]
    for single, probabilities in zip(singles, batch.pay_probabilities, strict=True):
        single.reset(seed=9)
        single.vector_env.pay_probabilities[:] = probabilities
    for actions in np.random.default_rng(0).integers(3, size=(4, 3)):
        observation, reward, terminated, truncated, _ = batch.step(actions)
        np.testing.assert_array_equal(reward, actions == np.arange(3))
        for row, single in enumerate(singles):
            one = single.step(actions[row])
            np.testing.assert_array_equal(one[0], observation[row])
            assert one[1:4] == (reward[row], terminated[row], truncated[row])


def test_a_frame_shows_the_bars_and_the_last_arm():
    bandits = BanditVectorEnv(1, render_mode="rgb_array")
    bandits.reset(seed=0)
    before = bandits.render()[0]
    bandits.step(np.array([1]))
    after = bandits.render()[0]
    assert (before != after).any() and before.shape == after.shape


def test_impossible_bandits_are_refused_in_one_line():
    for options, message in (
        ({"arms": 1}, "arms is 1"),
        ({"arms": 3}, "dependent"),
        ({"pulls": 0}, "pulls"),
    ):
        with pytest.raises(UserError, match=message):
            BanditConfig(**options)
        with pytest.raises(UserError, match=message):
            BanditVectorEnv(1, **options)


def test_task_name():
    assert BanditConfig().task_name == "dependent-bandit-2x100"
    assert BanditConfig(arms=5, dependent=False).task_name == "bandit-5x100"


def test_check_env_finds_that_pulls_alone_are_to_be_observed():
    assert yamame.check_env(BanditEnv, horizon=100) == ["the observation never changes"]
