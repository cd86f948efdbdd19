"""Which numbers a leaf of tokens can hold."""

from dataclasses import dataclass

import numpy as np
from gymnasium import spaces
from jaxtyping import Int64, Shaped
from torch import Tensor

from yamame.records.spaces import Leaf
from yamame.records.text import vocabulary_size

LARGEST_VOCABULARY = 65_536


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """`size` integers from `low` on; what is stored of a token is one of them."""

    low: int
    size: int

    def to_indices(self, stored: Shaped[Tensor, "N ..."]) -> Int64[Tensor, "N ..."]:
        """The same counted from 0; what lies outside (zeros of filling tokens) becomes the nearest."""
        return (stored.long() - self.low).clamp(0, self.size - 1)


def infer_vocabulary(leaf: Leaf) -> Vocabulary | None:
    """That of all components of a leaf together; None where they are no integers, or of too wide a range."""
    match leaf:
        case spaces.Discrete():
            return _small(0, int(leaf.n))
        case spaces.MultiDiscrete():
            return _small(0, int(leaf.nvec.max()))
        case spaces.MultiBinary():
            return Vocabulary(low=0, size=2)
        case spaces.Text():
            return _small(0, vocabulary_size(leaf))
    if np.issubdtype(leaf.dtype, np.floating):
        return None
    low, high = int(leaf.low.min()), int(leaf.high.max())
    return _small(low, high - low + 1)


def _small(low: int, size: int) -> Vocabulary | None:
    return Vocabulary(low=low, size=size) if size <= LARGEST_VOCABULARY else None
