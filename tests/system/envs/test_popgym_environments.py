import sys

import numpy as np
import pytest
from gymnasium import spaces

from yamame.envs.popgym import POPGYM_NAMES, PopgymConfig, make_popgym
from yamame.errors import UserError

pytest.importorskip("popgym")


def random_actions(trials, rng):
    if isinstance(trials.action_space, spaces.Discrete):
        return rng.integers(trials.action_space.n, size=trials.num_envs)
    return rng.uniform(-1, 1, (trials.num_envs, *trials.action_space.shape)).astype(np.float32)


def random_episodes(name, num_envs, episodes, seed):
    """Returns, lengths and a fingerprint of what was seen, of the first episodes of each row."""
    trials, rng = PopgymConfig(name=name).build(num_envs, seed), np.random.default_rng(seed)
    observation = trials.reset()
    returns, lengths, seen = [], [], [observation]
    total, time, finished = np.zeros(num_envs), np.zeros(num_envs, np.int64), np.zeros(num_envs, np.int64)
    while (finished < episodes).any():
        step = trials.step(random_actions(trials, rng))
        seen.append(step.final_observation)
        total += step.reward
        time += 1
        ends = step.terminated | step.truncated
        for row in np.flatnonzero(ends & (finished < episodes)):
            returns.append(total[row])
            lengths.append(int(time[row]))
        finished += ends
        total[ends] = 0
        time[ends] = 0
    trials.close()
    return np.array(returns), lengths, seen


def test_there_are_39():
    assert len(POPGYM_NAMES) == len(set(POPGYM_NAMES)) == 39


@pytest.mark.parametrize("name", POPGYM_NAMES)
def test_every_environment_plays_to_its_end(name):
    config = PopgymConfig(name=name)
    _, lengths, seen = random_episodes(name, num_envs=1, episodes=1, seed=0)
    assert max(lengths) <= 831 < config.max_trial_steps == 1024
    _, _, again = random_episodes(name, num_envs=1, episodes=1, seed=0)
    assert len(seen) == len(again)
    for one, other in zip(seen, again, strict=True):
        assert one.keys() == other.keys()
        assert all(np.array_equal(one[leaf], other[leaf]) for leaf in one)


# Mean return and its standard error of a uniformly random policy, measured with popgym 1.0.7 alone.
KNOWN = {
    "RepeatPreviousEasy": (-0.5003, 0.0076),
    "BattleshipEasy": (-0.4285, 0.0098),
    "ConcentrationEasy": (-0.1825, 0.0059),
    "CountRecallEasy": (-0.9251, 0.0033),
    "HigherLowerEasy": (-0.0093, 0.0077),
    "MineSweeperEasy": (-0.2190, 0.0074),
    "PositionOnlyCartPoleEasy": (0.1159, 0.0038),
    "PositionOnlyPendulumHard": (0.2446, 0.0110),
}


@pytest.mark.parametrize("name", KNOWN)
def test_random_policy_earns_its_known_return(name):
    returns, _, _ = random_episodes(name, num_envs=20, episodes=5, seed=1)
    mean, error = KNOWN[name]
    assert abs(returns.mean() - mean) < 4 * np.hypot(error, returns.std() / np.sqrt(len(returns))) + 1e-3


def test_a_board_takes_one_integer():
    environment = make_popgym("BattleshipEasy")
    assert environment.action_space == spaces.Discrete(64)
    environment.reset(seed=0)
    environment.step(13)
    assert np.argwhere(environment.unwrapped.guesses).tolist() == [[1, 5]]


def test_pendulum_actions_are_rescaled():
    trials = PopgymConfig(name="PositionOnlyPendulumEasy", num_workers=0).build(2, seed=0)
    assert trials.action_space == spaces.Box(-1.0, 1.0, (1,), np.float32)
    assert trials.env_action_space == spaces.Box(-2.0, 2.0, (1,), np.float32)
    trials.reset()
    trials.step(np.array([[1.0], [-0.5]], np.float32))
    assert [each.unwrapped.last_u for each in trials.env._envs] == [2.0, -1.0]


def test_tuple_observations_become_leaves():
    observation = PopgymConfig(name="AutoencodeEasy").build(3, seed=0).reset()
    assert {name: leaf.shape for name, leaf in observation.items()} == {"0": (3,), "1": (3,)}


def test_rows_are_seeded_differently():
    _, _, seen = random_episodes("RepeatPreviousEasy", num_envs=4, episodes=1, seed=0)
    cards = np.stack([each["observation"] for each in seen], axis=1)
    assert len({tuple(row) for row in cards}) == 4


def test_misspelt_name_is_answered_with_the_nearest():
    with pytest.raises(UserError, match="RepeatPreviousEasy"):
        PopgymConfig(name="RepeatPreviousEazy").build(1, 0)
    with pytest.raises(UserError, match="did you mean"):
        PopgymConfig(name="?").build(1, 0)


def test_missing_package_is_answered_with_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "popgym", None)
    with pytest.raises(UserError, match=r"pip install 'yamame\[popgym\]'"):
        PopgymConfig().build(1, 0)
