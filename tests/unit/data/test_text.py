import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from yamame.data.observations import encode_text, flatten_observation
from yamame.data.spaces import (
    flatten_space,
    stored_dtype,
    stored_shape,
    vocabulary_size,
)
from yamame.errors import UserError

SPACE = spaces.Text(12, min_length=0, charset="zyx ñ日")


def read(space: spaces.Text, tokens: np.ndarray) -> str:
    return "".join(sorted(space.character_set)[token - 1] for token in tokens if token)


@given(st.text("zyx ñ日", max_size=12))
def test_nothing_of_a_text_is_lost(text: str) -> None:
    tokens = encode_text(SPACE, text)
    assert tokens.shape == stored_shape(SPACE) == (12,)
    assert tokens.dtype == stored_dtype(SPACE) == np.uint8
    assert tokens.max(initial=0) < vocabulary_size(SPACE)
    assert read(SPACE, tokens) == text
    assert not tokens[len(text) :].any()


def test_a_nul_at_the_end_is_a_character() -> None:
    space = spaces.Text(3, min_length=0, charset="a\0b")
    assert [read(space, tokens) for tokens in encode_text(space, ["a\0", "\0\0"])] == ["a\0", "\0\0"]
    assert read(space, encode_text(space, "b\0")) == "b\0"


def test_batches_in_every_form() -> None:
    texts = ["x", "zy ", ""]
    expected = np.stack([encode_text(SPACE, text) for text in texts])
    for batch in (tuple(texts), texts, np.array(texts), np.array(texts, object)):
        np.testing.assert_array_equal(flatten_observation(SPACE, batch)["observation"], expected)


def test_tokens_do_not_depend_on_how_the_charset_was_given() -> None:
    """The order of a set of characters differs from process to process."""
    for charset in ("zyx ñ日", "日ñ xyz", frozenset("zyx ñ日"), set("日zyx ñ")):
        space = spaces.Text(12, charset=charset)
        np.testing.assert_array_equal(encode_text(space, "xyñ"), encode_text(SPACE, "xyñ"))


def test_many_characters_need_more_than_a_byte() -> None:
    charset = "".join(chr(number) for number in range(256, 256 + 300))
    space = spaces.Text(3, charset=charset)
    tokens = encode_text(space, charset[-1])
    assert tokens.dtype == np.int32
    assert tokens.tolist() == [300, 0, 0]


def test_texts_that_the_space_does_not_hold_are_the_users_mistake() -> None:
    with pytest.raises(UserError, match=r"13 characters.*max_length"):
        encode_text(SPACE, "x" * 13)
    with pytest.raises(UserError, match=r"'q'.*charset"):
        encode_text(SPACE, "xq")


def test_a_text_is_a_leaf() -> None:
    assert flatten_space(spaces.Dict({"mission": SPACE})) == {"mission": SPACE}
