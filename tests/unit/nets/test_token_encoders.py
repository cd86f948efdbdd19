"""Grids of tokens, large categories and texts."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from yamame.data.observations import encode_text, flatten_observation
from yamame.data.spaces import Leaf
from yamame.errors import UserError
from yamame.nets.timestep.encoder import TimestepEncoderConfig
from yamame.nets.timestep.text import TextEncoder, TextEncoderConfig
from yamame.nets.timestep.tokens import TokenEncoder, TokenEncoderConfig, infer_vocabulary

WORDS = spaces.Text(8, min_length=0, charset="abcdehnort ")


def token_encoder(leaf: Leaf) -> TokenEncoder:
    torch.manual_seed(0)
    return TokenEncoderConfig(output_size=5, embedding_dim=3).build(leaf, "leaky_relu").double()


def text_encoder(leaf: Leaf = WORDS) -> TextEncoder:
    torch.manual_seed(0)
    return TextEncoderConfig(output_size=5, embedding_dim=3, hidden_size=4).build(leaf, "leaky_relu").double()


def stored(leaf: Leaf, values: Any) -> Tensor:
    return torch.from_numpy(flatten_observation(leaf, values)["observation"])


@pytest.mark.parametrize(
    ("leaf", "claimed"),
    [
        (spaces.Discrete(64), False),
        (spaces.Discrete(65), True),
        (spaces.Discrete(65_537), False),
        (spaces.MultiDiscrete([3, 64]), False),
        (spaces.MultiDiscrete([3, 65]), True),
        (spaces.MultiDiscrete([[3, 3], [3, 3]]), True),
        (spaces.Box(0, 255, (7, 7, 3), np.uint8), False),
        (spaces.MultiBinary([3, 3]), False),
    ],
    ids=str,
)
def test_large_categories_and_grids_are_embedded(leaf: Leaf, claimed: bool) -> None:
    assert TokenEncoderConfig().matches("seen", leaf) is claimed


@pytest.mark.parametrize(
    ("leaf", "low", "size"),
    [
        (spaces.Discrete(7, start=3), 0, 7),
        (spaces.MultiDiscrete([[2, 9], [3, 4]]), 0, 9),
        (spaces.MultiBinary(3), 0, 2),
        (WORDS, 0, 12),
        (spaces.Box(0, 255, (7, 7, 3), np.uint8), 0, 256),
        (spaces.Box(-3, 4, (2,), np.int32), -3, 8),
        (spaces.Box(0, 1, (2,), np.bool_), 0, 2),
    ],
    ids=str,
)
def test_the_vocabulary_of_a_leaf_holds_every_value_of_its_space(leaf: Leaf, low: int, size: int) -> None:
    known = infer_vocabulary(leaf)
    assert known is not None and (known.low, known.size) == (low, size)
    leaf.seed(0)
    for _ in range(30):
        raw = stored(leaf, leaf.sample())[None]
        assert torch.equal(known.to_indices(raw), raw.long() - low), "nothing has to be cut off"
    assert known.to_indices(torch.tensor([-100, 100_000])).tolist() == [0, size - 1]


def test_numbers_of_no_small_range_are_no_tokens() -> None:
    for leaf in (spaces.Box(0.0, 1.0, (2,)), spaces.Box(0, 70_000, (2,), np.int64), spaces.Discrete(65_537)):
        assert infer_vocabulary(leaf) is None
        assert TokenEncoderConfig().unsupported_reason(leaf) and TextEncoderConfig().unsupported_reason(leaf)


@pytest.mark.parametrize(
    "leaf",
    [
        spaces.Discrete(70, start=-3),
        spaces.MultiDiscrete([[4, 5], [6, 7]]),
        spaces.Box(0, 255, (7, 7, 3), np.uint8),
        spaces.Box(-3, 4, (2,), np.int32),
        WORDS,
    ],
    ids=str,
)
def test_every_token_at_every_place_matters(leaf: Leaf) -> None:
    encoder = token_encoder(leaf)
    leaf.seed(0)
    value = stored(leaf, leaf.sample())
    out = encoder(value[None])
    assert out.shape == (1, 5)
    for place in np.ndindex(tuple(value.shape)):
        other = value.clone()
        other[place] = value[place] - 1 if value[place] > 0 else value[place] + 1
        assert not torch.allclose(encoder(other[None]), out), place


def test_every_parameter_of_both_learns() -> None:
    for encoder, leaf in ((token_encoder(spaces.Discrete(70)), spaces.Discrete(70)), (text_encoder(), WORDS)):
        leaf.seed(0)
        values = torch.stack([stored(leaf, leaf.sample()) for _ in range(40)])
        (encoder(values) * torch.linspace(-1.0, 1.0, 5)).square().sum().backward()
        assert all(parameter.grad is not None and parameter.grad.any() for parameter in encoder.parameters())


def test_the_order_of_characters_distinguishes_texts() -> None:
    north, thorn, once_more = text_encoder()(stored(WORDS, ["north", "thorn", "north"]))
    assert torch.equal(north, once_more)
    assert not torch.allclose(north, thorn)


def test_texts_are_read_to_their_last_character_and_no_further() -> None:
    """The state of a plain GRU over the characters alone, however long the space allows them to be."""
    encoder = text_encoder()
    short = torch.from_numpy(encode_text(spaces.Text(3, charset=WORDS.characters), ["hot"]))
    torch.testing.assert_close(encoder(stored(WORDS, ["hot"])), encoder(short), rtol=0, atol=1e-12)
    hidden = encoder.recurrence(encoder.embedding(short.long()))[1][0]
    expected = encoder.norm(encoder.output(hidden))
    torch.testing.assert_close(encoder(short), expected, rtol=0, atol=1e-12)


def test_an_empty_text_is_an_empty_state() -> None:
    encoder = text_encoder()
    expected = encoder.norm(encoder.output(torch.zeros(1, 4, dtype=torch.float64)))
    torch.testing.assert_close(encoder(stored(WORDS, [""])), expected)


def test_rows_of_integers_can_be_read_as_texts() -> None:
    leaf = spaces.MultiDiscrete([30, 30, 30])
    assert not TextEncoderConfig().matches("seen", leaf) and not TextEncoderConfig().unsupported_reason(leaf)
    assert isinstance(text_encoder(leaf).embedding, nn.Embedding)
    assert TextEncoderConfig().unsupported_reason(spaces.MultiDiscrete([[3, 3]]))
    assert TextEncoderConfig().unsupported_reason(spaces.Discrete(3))


@pytest.mark.parametrize(
    ("leaf", "count"),
    [
        (spaces.Discrete(2**40), "1,099,511,627,776"),
        (spaces.Discrete(70_000, start=-3), "70,000"),
        (spaces.MultiDiscrete([3, 10**6]), "1,000,000"),
    ],
    ids=str,
)
def test_more_categories_than_can_be_embedded_are_refused(leaf: Leaf, count: str) -> None:
    config = TimestepEncoderConfig()
    with pytest.raises(UserError, match=f"^observation 'x' has {count} categories, of which at most 65,536"):
        config.resolve_encoders({"x": leaf})
    assert config.resolve_encoders({"x": spaces.Discrete(65_536)}) == {"x": "tokens"}
