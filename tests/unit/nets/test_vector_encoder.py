import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from yamame.data.observations import flatten_observation
from yamame.data.spaces import flatten_space
from yamame.nets.timestep.encoder import TimestepEncoder, TimestepEncoderConfig

SPACE = spaces.Dict(
    {
        "box": spaces.Box(-1.0, 1.0, (2, 2), np.float32),
        "cell": spaces.Discrete(3, start=5),
        "bits": spaces.MultiBinary(2),
        "parts": spaces.MultiDiscrete([2, 3]),
        "scalar": spaces.Box(0.0, 9.0, (), np.float32),
    }
)


def encoder_of(action_space: spaces.Discrete | spaces.Box) -> TimestepEncoder:
    return TimestepEncoderConfig(hidden_sizes=(8,), output_size=5).build(flatten_space(SPACE), action_space)


def features(encoder: TimestepEncoder, action: Tensor, time: list[int]) -> Tensor:
    observation = {
        "box": np.array([[[0.1, 0.2], [0.3, 0.4]], [[0.5, 0.6], [0.7, 0.8]]], np.float32),
        "cell": np.array([5, 7]),
        "bits": np.array([[0, 1], [1, 1]], np.int8),
        "parts": np.array([[1, 2], [0, 0]]),
        "scalar": np.array([4.0, 8.0], np.float32),
    }
    return encoder.features(
        observation={name: torch.from_numpy(leaf) for name, leaf in flatten_observation(SPACE, observation).items()},
        previous_action=action,
        previous_reward=torch.tensor([3.0, -2.0]),
        episode_start=torch.tensor([True, False]),
        time=torch.tensor(time),
        horizon=torch.tensor([20.0, 40.0]),
    )


def columns(row: Tensor, encoder: TimestepEncoder) -> dict[str, list[float]]:
    """The parts of a feature vector by name."""
    leaves = flatten_space(SPACE)
    sizes = {name: spaces.flatdim(leaves[name]) for name in encoder.one_hot_sizes}
    sizes |= {"start": 1, "reward": 1, "time": 1, "action": len(row) - sum(sizes.values()) - 3}
    return {name: part.tolist() for name, part in zip(sizes, row.split(list(sizes.values())), strict=True)}


def test_everything_enters_where_it_should() -> None:
    encoder = encoder_of(spaces.Discrete(4))
    row = columns(features(encoder, torch.tensor([1, 3]), time=[5, 10])[1], encoder)
    assert row == {
        "box": pytest.approx([0.5, 0.6, 0.7, 0.8]),
        "cell": [0, 0, 1],
        "bits": [1, 1],
        "parts": [1, 0, 1, 0, 0],
        "scalar": [8],
        "start": [0],
        "reward": [-2],
        "time": [0.25],
        "action": [0, 0, 0, 1],
    }


@pytest.mark.parametrize("space", [spaces.Discrete(4), spaces.Box(-1.0, 1.0, (2,), np.float32)])
def test_nothing_led_to_the_first_timestep_of_a_trial(space: spaces.Discrete | spaces.Box) -> None:
    discrete = isinstance(space, spaces.Discrete)
    action = torch.tensor([1, 3]) if discrete else torch.tensor([[torch.nan, 0.5], [0.25, -0.5]])
    encoder = encoder_of(space)
    first, second = (columns(row, encoder) for row in features(encoder, action, time=[0, 1]))
    assert first["reward"] == [0] and not any(first["action"]) and first["start"] == [1]
    assert second["reward"] == [-2] and second["action"] == ([0, 0, 0, 1] if discrete else [0.25, -0.5])


def test_states_are_normalized_vectors_of_the_width() -> None:
    encoder = encoder_of(spaces.Discrete(4))
    out = encoder(features(encoder, torch.tensor([1, 3]), time=[0, 1]), {})
    assert out.shape == (2, 5)
    torch.testing.assert_close(out.mean(1), torch.zeros(2), rtol=0, atol=1e-5)
