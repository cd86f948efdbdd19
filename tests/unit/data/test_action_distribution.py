"""Distributions of actions in the units of the environment."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from yamame.data.action_distribution import ActionDistribution, PolicyParameters, to_env_distribution
from yamame.data.actions import to_env_action

RNG = np.random.default_rng(0)


def gaussian(*size: int, std: float = 1.0) -> PolicyParameters:
    mean, deviation = RNG.normal(size=size), std * RNG.uniform(0.1, 1.0, size)
    return PolicyParameters(mean_EA=mean.astype(np.float32), std_EA=deviation.astype(np.float32))


@pytest.mark.parametrize("std", [0.01, 1.0, 7.389])
def test_moments_are_those_of_actions(std: float) -> None:
    """Bounds differ a lot, and one dimension turns around nothing but its offset."""
    space = spaces.Box(np.array([[-2.0, 0.0, 1e6]]), np.array([[3.0, 1e-6, 1e6 + 8.0]]), dtype=np.float64)
    parameters = gaussian(2, 3, std=std)
    assert parameters.mean_EA is not None and parameters.std_EA is not None
    noise = np.random.default_rng(1).standard_normal((200_000, 2, 3))
    tanh = np.tanh(parameters.mean_EA + parameters.std_EA * noise)
    actions = space.low + (tanh.reshape(-1, 2, 1, 3) + 1.0) / 2.0 * (space.high - space.low)
    found = to_env_distribution(space, parameters, single=False)
    width = space.high - space.low
    assert np.abs((found.mean - actions.mean(axis=0)) / width).max() < 0.01
    assert np.abs((found.std - actions.std(axis=0)) / width).max() < 0.01
    expected = to_env_action(space, np.tanh(parameters.mean_EA))
    np.testing.assert_array_equal(found.mode, expected)
    assert found.mean.shape == found.std.shape == (2, 1, 3) and found.probability is None


def test_integers_and_single_environments() -> None:
    space = spaces.Box(-3, 5, (2,), np.int32)
    found = to_env_distribution(space, gaussian(1, 2), single=True)
    assert found.mean.shape == (2,) and found.mode.dtype == np.int32
    assert (np.abs(found.mode - found.mean) < 4).all()


def test_probabilities_of_every_kind_of_choice() -> None:
    choices = np.array([[0.2, 0.8, 0.5, 0.25, 0.25]], np.float32)
    found = to_env_distribution(spaces.Discrete(5, start=2), PolicyParameters(probability_EA=choices), single=True)
    assert found.probability.tolist() == choices[0].tolist() and found.mean is None
    several = to_env_distribution(
        spaces.MultiDiscrete([2, 3]), PolicyParameters(probability_EA=np.repeat(choices, 4, axis=0)), single=False
    )
    assert [part.shape for part in several.probability] == [(4, 2), (4, 3)]
    bits = PolicyParameters(probability_EA=np.array([[0.1, 0.9, 0.4, 0.6]], np.float32))
    found = to_env_distribution(spaces.MultiBinary(2), bits, single=True)
    np.testing.assert_allclose(found.probability, [[0.1, 0.9], [0.4, 0.6]], rtol=1e-6)


def test_nested_actions() -> None:
    discrete: Any = spaces.Dict([("arms", spaces.Tuple([spaces.MultiDiscrete([3, 2])])), ("go", spaces.Discrete(2))])
    probability = np.arange(7, dtype=np.float32)[None]
    found = to_env_distribution(discrete, PolicyParameters(probability_EA=probability), single=True)
    assert [part.tolist() for part in found["arms"][0].probability] == [[0, 1, 2], [3, 4]]
    assert found["go"].probability.tolist() == [5, 6]
    boxes: Any = spaces.Tuple([spaces.Box(0.0, 2.0, (1,)), spaces.Box(-9.0, -8.0, (2, 1))])
    first, second = to_env_distribution(boxes, gaussian(3, 3), single=False)
    assert isinstance(first, ActionDistribution)
    assert first.mean.shape == (3, 1) and second.mean.shape == (3, 2, 1)
    assert (first.mean > 0).all() and (second.mean < -8).all()
