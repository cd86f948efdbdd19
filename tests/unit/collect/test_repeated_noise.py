"""Random actions that are repeated: how long, how often, and what ends them."""

from dataclasses import replace

import numpy as np
import pytest
from gymnasium import spaces

from yamame.collect.exploration import EpsilonGreedy, Explorer
from yamame.errors import UserError

HORIZON = 20
LEVEL = 0.3
CONFIG = EpsilonGreedy(initial_eps=LEVEL, final_eps=LEVEL, repeat_exponent=2.0)
MANY = 10**6
"""Choices: an action that is sampled twice in a row was repeated."""


def explorer(space: spaces.Space, num_envs: int, config: EpsilonGreedy = CONFIG) -> Explorer:
    made = Explorer(config, space, num_envs, np.random.default_rng(0))
    made.noise_scale_E[:] = 1.0
    return made


def play(subject: Explorer, steps: int, start: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return actions and `repeated_E` of steps in which the policy always chooses 0."""
    policy_action = np.zeros_like(subject._repeated)
    rows = [
        (subject.add_noise(policy_action, np.full(len(policy_action), start + time), HORIZON, 0), subject.repeated_E)
        for time in range(steps)
    ]
    actions, repeated = zip(*rows, strict=True)
    return np.stack(actions), np.stack(repeated)


def test_the_level_remains_the_fraction_of_random_steps() -> None:
    subject = explorer(spaces.Discrete(MANY), 20_000)
    actions_TE, repeated_TE = play(subject, 60)
    late = slice(HORIZON, None)  # the first steps have no repeats of earlier ones
    assert (actions_TE[late] != 0).mean() == pytest.approx(LEVEL, abs=0.01)
    assert repeated_TE[late].mean() == pytest.approx(LEVEL * (1 - 1 / mean_length()), abs=0.01)
    assert subject.epsilon_E[0] == pytest.approx(LEVEL / (LEVEL + mean_length() * (1 - LEVEL)))


@pytest.mark.parametrize(
    "space",
    [spaces.MultiDiscrete([MANY] * 2), spaces.MultiDiscrete([MANY] * 20), spaces.MultiDiscrete([2] * 8)],
    ids=str,
)
def test_the_level_is_that_of_whole_actions_of_several_components(space: spaces.Space) -> None:
    """A repeat holds all components, and starts where one is random."""
    subject = explorer(space, 5_000)
    actions_TE, repeated_TE = play(subject, 60)
    late = slice(HORIZON, None)
    assert repeated_TE[late].mean() == pytest.approx(LEVEL * (1 - 1 / mean_length()), abs=0.01)
    bits = space == spaces.MultiDiscrete([2] * 8)
    if not bits:  # a random bit may be that of the policy
        assert (actions_TE[late] != 0).any(-1).mean() == pytest.approx(LEVEL, abs=0.01)
    everything_is_random = replace(CONFIG, initial_eps=1.0, final_eps=1.0)
    actions_TE, _ = play(explorer(space, 500, everything_is_random), 5)
    assert (actions_TE != 0).mean() > (0.45 if bits else 0.99)


@pytest.mark.parametrize("repeat_exponent", [0.0, 2.0])
def test_a_level_above_1_is_1_for_discrete_actions(repeat_exponent: float) -> None:
    """For the noise of a Box it is not."""
    config = EpsilonGreedy(initial_eps=1.5, final_eps=1.5, repeat_exponent=repeat_exponent)
    subject = explorer(spaces.Discrete(MANY), 1_000, config)
    actions_TE, _ = play(subject, 5)
    assert (actions_TE != 0).mean() > 0.99 and (subject.epsilon_E == 1.0).all()
    of_box = explorer(spaces.Box(-1, 1, (2,)), 10, config)
    play(of_box, 5)
    assert (of_box.epsilon_E == 1.5).all()


def test_lengths_follow_the_power_law_up_to_the_horizon() -> None:
    everything_is_random = replace(CONFIG, initial_eps=1.0, final_eps=1.0)
    actions_TE, repeated_TE = play(explorer(spaces.Discrete(MANY), 20_000, everything_is_random), HORIZON + 1)
    np.testing.assert_array_equal(actions_TE[1:] == actions_TE[:-1], repeated_TE[1:])
    first_length_E = np.argmin(repeated_TE[1:], axis=0) + 1
    assert not repeated_TE[0].any() and first_length_E.max() == HORIZON
    frequency = np.bincount(first_length_E, minlength=HORIZON + 1)[1:] / first_length_E.size
    np.testing.assert_allclose(frequency, probabilities(), atol=0.01)


@pytest.mark.parametrize("space", [spaces.Discrete(MANY), spaces.MultiDiscrete([MANY, MANY]), spaces.Box(-1, 1, (2,))])
def test_a_trial_ends_repeats(space: spaces.Space) -> None:
    subject = explorer(space, 2_000)
    play(subject, HORIZON)
    before = subject._repeated.copy()
    policy_action = np.zeros_like(before)
    starts = np.arange(len(before)) % 2 == 0
    actions = subject.add_noise(policy_action, np.where(starts, 0, 5), HORIZON, 0)
    assert not subject.repeated_E[starts].any() and subject.repeated_E[~starts].any()
    repeated = subject.repeated_E
    if isinstance(space, spaces.Box):
        np.testing.assert_array_equal(actions[repeated], np.clip(np.float32(LEVEL) * before[repeated], -1, 1))
    else:
        np.testing.assert_array_equal(actions[repeated], before[repeated])


def test_noise_of_a_box_is_held() -> None:
    actions_TE, repeated_TE = play(explorer(spaces.Box(-1, 1, (2,)), 5_000), 60)
    held_TE = (actions_TE[1:] == actions_TE[:-1]).all(-1)
    assert (held_TE | ~repeated_TE[1:]).all() and held_TE[~repeated_TE[1:]].mean() < 0.01
    assert actions_TE.std() == pytest.approx(LEVEL, abs=0.01)
    assert repeated_TE[HORIZON:].mean() == pytest.approx(1 - 1 / mean_length(), abs=0.01)


def test_a_mask_ends_repeats() -> None:
    subject = explorer(spaces.Discrete(3), 3_000)
    play(subject, HORIZON)
    held = subject._repeats_left_E > 0
    mask = np.ones((3_000, 3), np.bool_)
    mask[:, 1] = False
    forbidden = held & (subject._repeated == 1)
    assert forbidden.any()
    actions = subject.add_noise(np.full(3_000, 2), np.full(3_000, 5), HORIZON, 0, mask)
    assert not (actions == 1).any() and not subject.repeated_E[forbidden].any()
    np.testing.assert_array_equal(subject.repeated_E, held & ~forbidden)


@pytest.mark.parametrize("space", [spaces.Discrete(5), spaces.Box(-1, 1, (2,))])
def test_the_state_continues_repeats(space: spaces.Space) -> None:
    subject, other = explorer(space, 100), explorer(space, 100)
    play(subject, 7)
    other.load_state_dict(subject.state_dict())
    other._rng = np.random.default_rng()
    other._rng.bit_generator.state = subject._rng.bit_generator.state
    for expected, found in zip(play(subject, 9), play(other, 9), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_no_repeats_by_default() -> None:
    subject = explorer(spaces.Discrete(MANY), 1_000, replace(CONFIG, repeat_exponent=0.0))
    actions_TE, repeated_TE = play(subject, 30)
    assert not repeated_TE.any() and (actions_TE != 0).mean() == pytest.approx(LEVEL, abs=0.02)
    with pytest.raises(UserError, match="repeat_exponent must be at least 0"):
        replace(CONFIG, repeat_exponent=-1.0)


def probabilities() -> np.ndarray:
    weights = 1.0 / np.arange(1, HORIZON + 1) ** 2
    return weights / weights.sum()


def mean_length() -> float:
    return float(probabilities() @ np.arange(1, HORIZON + 1))


def test_a_horizon_that_stands_for_no_limit_takes_no_memory() -> None:
    config = EpsilonGreedy(repeat_exponent=2.0)
    explorer = Explorer(config, spaces.Discrete(3), 2, np.random.default_rng(0))
    for time in range(8):
        action = explorer.add_noise(np.zeros(2, np.int64), np.full(2, time), 10**9, 0, None)
        assert action.shape == (2,)
