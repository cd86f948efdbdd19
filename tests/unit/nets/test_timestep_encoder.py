"""From each leaf's space to its encoder, and all of them to one vector."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from yamame.data.observations import flatten_observation
from yamame.data.spaces import flatten_space
from yamame.errors import ConfigFieldError
from yamame.nets.blocks import freeze_for_inference
from yamame.nets.timestep.encoder import TimestepEncoder, TimestepEncoderConfig
from yamame.nets.timestep.image import ImageEncoder, ImageEncoderConfig
from yamame.nets.timestep.text import TextEncoder, TextEncoderConfig
from yamame.nets.timestep.tokens import TokenEncoder, TokenEncoderConfig

SPACE = spaces.Dict(
    {
        "keys": spaces.Box(0, 255, (9, 8, 3), np.uint8),  # a name that containers of modules have a method of
        "vector.0": spaces.Box(-1.0, 1.0, (2,)),
        "level": spaces.Discrete(100, start=-7),
        "suit": spaces.Discrete(4),
        "say": spaces.Text(6, min_length=0, charset="abc"),
        "view": spaces.Box(0, 255, (3, 3, 2), np.uint8),
        "nothing": spaces.Box(0.0, 1.0, (0, 3)),
        "action_mask": spaces.MultiBinary(3),
    }
)
ACTIONS = spaces.Discrete(3)
NUM_FLAT = 2 + 4 + 18 + 3 + 3
"""vector, suit, view; reset flag, reward, time; the previous action."""
CONFIG = TimestepEncoderConfig(
    hidden_sizes=(7,),
    output_size=5,
    image=ImageEncoderConfig(channels=(2, 3), output_size=4),
    tokens=TokenEncoderConfig(embedding_dim=2, output_size=3),
    text=TextEncoderConfig(embedding_dim=2, hidden_size=4, output_size=4),
)


def encoder_of(config: TimestepEncoderConfig = CONFIG, space: spaces.Space[Any] = SPACE) -> TimestepEncoder:
    torch.manual_seed(0)
    return config.build(flatten_space(space), ACTIONS).double()


def inputs(encoder: TimestepEncoder, count: int = 6) -> tuple[Tensor, dict[str, Tensor]]:
    SPACE.seed(0)
    rows = [flatten_observation(SPACE, SPACE.sample()) for _ in range(count)]
    observation = {name: torch.from_numpy(np.stack([row[name] for row in rows])) for name in rows[0]}
    features = encoder.features(
        observation=observation,
        previous_action=torch.arange(count) % 3,
        previous_reward=torch.linspace(-1, 1, count),
        episode_start=torch.zeros(count, dtype=torch.bool),
        time=torch.arange(count),
        horizon=torch.tensor([9.0]),
    )
    return features, observation


def test_the_space_decides_unless_the_user_does() -> None:
    leaves = {name: leaf for name, leaf in flatten_space(SPACE).items() if name not in ("nothing", "action_mask")}
    kinds = CONFIG.resolve_encoders(leaves)
    expected = {"keys": "image", "vector.0": "vector", "level": "tokens", "suit": "vector", "say": "text"}
    assert kinds == expected | {"view": "vector"}
    overridden = replace(
        CONFIG, encoder_overrides=("view=tokens", "keys=vector", "level=vector", "say=tokens")
    ).resolve_encoders(leaves)
    assert overridden == expected | {"view": "tokens", "keys": "vector", "level": "vector", "say": "tokens"}


@pytest.mark.parametrize(
    ("categories", "kind"), [([11, 6, 3], "vector"), ([65, 6, 3], "tokens"), ([64, 64, 64], "tokens")]
)
def test_a_grid_of_short_one_hot_vectors_is_no_leaf_of_tokens(categories: list[int], kind: str) -> None:
    leaves = {"view": spaces.MultiDiscrete(np.broadcast_to(categories, (7, 7, 3)))}
    assert CONFIG.resolve_encoders(leaves) == {"view": "tokens"}
    config = replace(CONFIG, tokens=replace(CONFIG.tokens, max_one_hot_inputs=4096))
    assert config.resolve_encoders(leaves) == {"view": kind}


def test_each_kind_gets_its_encoder_and_the_rest_is_flat() -> None:
    encoder = encoder_of()
    kind_of = dict(zip(encoder.encoded, encoder.leaf_encoders, strict=True))
    assert {name: type(part) for name, part in kind_of.items()} == {
        "keys": ImageEncoder,
        "level": TokenEncoder,
        "say": TextEncoder,
    }
    assert set(encoder.one_hot_sizes) == {"vector.0", "suit", "view"}, "no mask, and nothing that is empty"
    assert encoder.normalizer.mean.shape == (NUM_FLAT,)
    assert encoder.mlp.hidden[0].in_features == NUM_FLAT + 4 + 3 + 4


def test_what_a_leaf_cannot_be_is_said_with_what_there_is() -> None:
    with pytest.raises(ConfigFieldError, match=r"encoder_overrides names 'viw', but the observation has .*view"):
        encoder_of(replace(CONFIG, encoder_overrides=("viw=tokens",)))
    for wrong, reason in (("vector.0=tokens", "integers"), ("suit=image", "Box"), ("say=vector", "is a text")):
        with pytest.raises(ConfigFieldError, match=f"encoder_overrides says '{wrong}'.*{reason}"):
            encoder_of(replace(CONFIG, encoder_overrides=(wrong,)))
    with pytest.raises(ConfigFieldError, match="infinite bounds"):
        unbounded = spaces.Box(-np.inf, np.inf, (9, 9, 3))
        encoder_of(replace(CONFIG, encoder_overrides=("observation=image",)), unbounded)
    for malformed in ("view", "view=", "=tokens", "view=pixels"):
        with pytest.raises(ConfigFieldError, match="LEAF=KIND with vector, image, tokens, text"):
            replace(CONFIG, encoder_overrides=(malformed,))


@pytest.mark.parametrize("kinds", [(), ("view=tokens", "say=tokens"), ("keys=tokens",), ("view=image",)])
def test_every_leaf_matters_and_every_parameter_learns(kinds: tuple[str, ...]) -> None:
    encoder = encoder_of(replace(CONFIG, encoder_overrides=kinds))
    _, observation = inputs(encoder)

    def out(seen: dict[str, Tensor]) -> Tensor:
        count = len(seen["suit"])
        features = encoder.features(
            observation=seen,
            previous_action=torch.ones(count, dtype=torch.int64),
            previous_reward=torch.ones(count),
            episode_start=torch.ones(count, dtype=torch.bool),
            time=torch.ones(count, dtype=torch.int64),
            horizon=torch.tensor([9.0]),
        )
        return encoder(features, seen)

    before = out(observation)
    for name in set(observation) - {"nothing", "action_mask"}:
        changed = out(observation | {name: observation[name].roll(1, 0)})
        assert not torch.allclose(changed, before), name
    assert torch.equal(out(observation | {"action_mask": 1 - observation["action_mask"]}), before)
    (before * torch.linspace(-1.0, 1.0, 5)).square().sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None and parameter.grad.any(), name


@pytest.mark.parametrize("normalize_time", [True, False])
def test_time_is_a_fraction_of_the_horizon_unless_it_is_normalized(normalize_time: bool) -> None:
    encoder = encoder_of(replace(CONFIG, normalize_time=normalize_time))
    features, observation = inputs(encoder)
    before, index = encoder(features, observation), encoder.observation_size + 2
    encoder.normalizer.mean[index] = 0.4
    assert torch.equal(encoder(features, observation), before) == (not normalize_time)
    later = features.clone()
    later[:, index] += 0.4
    same = torch.allclose(encoder(later, observation), before, rtol=0, atol=1e-12)
    assert same == normalize_time, "centered"
    encoder.normalizer.mean[index + 1] = 0.4
    assert not torch.allclose(encoder(features, observation), before), "the previous action is always normalized"


@pytest.mark.parametrize("chunk_elements", [1, 432, 500, 1000])
def test_chunks_change_neither_outputs_nor_gradients(chunk_elements: int) -> None:
    """An image has 216 elements: one, two and four at once."""
    whole, chunked = encoder_of(), encoder_of(replace(CONFIG, chunk_elements=chunk_elements))
    chunked.load_state_dict(whole.state_dict())
    results = []
    for encoder in (whole, chunked):
        out = encoder(*inputs(encoder))
        (out * torch.linspace(-1.0, 1.0, 5)).square().sum().backward()
        results.append([out, *(parameter.grad for parameter in encoder.parameters())])
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_it_acts_as_it_trains() -> None:
    encoder = encoder_of()
    acting = freeze_for_inference(encoder)
    features, observation = inputs(encoder)
    expected = encoder(features, observation).detach()
    torch.testing.assert_close(acting(features, observation), expected, rtol=0, atol=1e-12)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.1)
    assert not torch.allclose(encoder(features, observation), expected)
    torch.testing.assert_close(acting(features, observation), expected, rtol=0, atol=1e-12)


def test_vectors_alone_have_the_parameters_that_they_always_had() -> None:
    space = spaces.Dict({"box": spaces.Box(-1.0, 1.0, (2, 2)), "cell": spaces.Discrete(64)})
    assert {name: tuple(value.shape) for name, value in encoder_of(space=space).state_dict().items()} == {
        "normalizer.mean": (74,),
        "normalizer.variance": (74,),
        "normalizer.count": (),
        "mlp.hidden.0.weight": (7, 74),
        "mlp.hidden.0.bias": (7,),
        "mlp.output.weight": (5, 7),
        "mlp.output.bias": (5,),
        "norm.weight": (5,),
        "norm.bias": (5,),
    }


def test_an_observation_of_nothing_leaves_what_led_to_it() -> None:
    assert encoder_of(space=spaces.Dict({})).num_features == 6
    assert encoder_of(space=spaces.Box(0.0, 1.0, (0,))).num_features == 6
