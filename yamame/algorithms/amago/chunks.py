"""Chunks of tokens, which heads and losses process one after another."""

from jaxtyping import Shaped
from torch import Tensor


def split_tokens(num_tokens: int, max_tokens: int) -> list[slice]:
    """Split the tokens into slices of nearly equal size, at most `max_tokens`."""
    count = -(-num_tokens // max_tokens)
    size = -(-num_tokens // count)
    return [slice(start, min(start + size, num_tokens)) for start in range(0, num_tokens, size)]


def part(whole: Shaped[Tensor, "N ..."] | None, chunk: slice) -> Shaped[Tensor, "n ..."] | None:
    """Return the tokens of a chunk; None for None."""
    return None if whole is None else whole[chunk]
