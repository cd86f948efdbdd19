"""A text as integers of a fixed number: the characters of its space, counted from 1 in sorted order, then zeros."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Int, UInt8
from numpy.typing import DTypeLike

from yamame.records.errors import UserError

Tokens = UInt8[np.ndarray, "... L"] | Int[np.ndarray, "... L"]


def encode_text(space: spaces.Text, texts: Any) -> Tokens:
    """The tokens of a text, or of any nesting of sequences and arrays of texts, L = `max_length`; nothing is lost.

    Raises `UserError` for a text that is too long or has a character that the space lacks.
    """
    array = np.asarray(texts)
    rows = [_tokens(space, str(text)) for text in array.flatten()]
    return np.array(rows, text_dtype(space)).reshape(*array.shape, space.max_length)


def vocabulary_size(space: spaces.Text) -> int:
    """Number of different tokens, the zero behind the end included."""
    return len(space.character_set) + 1


def text_dtype(space: spaces.Text) -> DTypeLike:
    """What tokens are stored as: bytes where they fit."""
    return np.uint8 if vocabulary_size(space) <= 256 else np.int32


def _tokens(space: spaces.Text, text: str) -> list[int]:
    if len(text) > space.max_length:
        raise UserError(
            f"a text of the observation has {len(text)} characters, its space allows {space.max_length}: "
            "give the Text space a larger max_length"
        )
    numbers = _numbers(space.characters)
    unknown = [character for character in text if character not in numbers]
    if unknown:
        raise UserError(
            f"a text of the observation has the character {unknown[0]!r}, which its space lacks: "
            "add it to the charset of the Text space"
        )
    return [numbers[character] for character in text] + [0] * (space.max_length - len(text))


@cache
def _numbers(characters: str) -> Mapping[str, int]:
    return {character: number for number, character in enumerate(sorted(characters), start=1)}
