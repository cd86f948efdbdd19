"""Token encoder for grids and categories, and the vocabulary of integer leaves."""

import math
from dataclasses import dataclass

import numpy as np
from gymnasium import spaces
from jaxtyping import Float, Int64, Shaped
from torch import Tensor, nn
from typing_extensions import override

from yamame.data.actions import num_choices
from yamame.data.spaces import Leaf, stored_shape, vocabulary_size
from yamame.errors import check_range
from yamame.nets.blocks import MLP, Activation
from yamame.nets.timestep.base import LeafEncoderConfig

MAX_VOCABULARY = 65_536
"""Largest range of integers that are embedded."""


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Range of the stored integers: `low` to `low + size - 1`."""

    low: int
    size: int

    def to_indices(self, stored: Shaped[Tensor, "N ..."]) -> Int64[Tensor, "N ..."]:
        """Return indices from 0; values outside the range, such as zeros of padding, are clamped."""
        return (stored.long() - self.low).clamp(0, self.size - 1)


def infer_vocabulary(leaf: Leaf) -> Vocabulary | None:
    """Return the range of all components of a leaf; None if they are no integers or exceed `MAX_VOCABULARY`."""
    low = 0
    match leaf:
        case spaces.Discrete():
            size = int(leaf.n)
        case spaces.MultiDiscrete():
            size = int(leaf.nvec.max())
        case spaces.MultiBinary():
            size = 2
        case spaces.Text():
            size = vocabulary_size(leaf)
        case _ if np.issubdtype(leaf.dtype, np.floating):
            return None
        case _:
            low = int(leaf.low.min())
            size = int(leaf.high.max()) - low + 1
    return Vocabulary(low=low, size=size) if size <= MAX_VOCABULARY else None


MAX_ONE_HOT = 64
"""Largest number of values of a category that is encoded as a one-hot vector instead of an embedding."""


@dataclass(frozen=True, kw_only=True)
class TokenEncoderConfig(LeafEncoderConfig):
    """Sizes of the encoder of tokens with fixed positions, such as the cells of a grid.

    By default it encodes Discrete and MultiDiscrete leaves with more than 64 values, and MultiDiscrete leaves of two or
    more dimensions unless their one-hot vectors are short; with an override, any bounded integers (a MiniGrid view is a
    uint8 Box of 7 x 7 x 3).
    """

    embedding_dim: int = 8
    """Width of the embedding of a token."""
    max_one_hot_inputs: int = 0
    """A MultiDiscrete leaf of two or more dimensions is not encoded by default if its one-hot vectors are at most as
    long together as this: they become plain numbers, which are normalized, so that rare categories are large. Where
    one cell of a view matters, it is learned in fewer updates than from embeddings. 0: always encoded."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "embedding_dim", ge=1)
        check_range(self, "max_one_hot_inputs", ge=0)

    @override
    def matches(self, name: str, leaf: Leaf) -> bool:
        if not isinstance(leaf, spaces.Discrete | spaces.MultiDiscrete) or self.unsupported_reason(leaf):
            return False
        if max(num_choices(leaf)) > MAX_ONE_HOT:
            return True
        return len(stored_shape(leaf)) > 1 and spaces.flatdim(leaf) > self.max_one_hot_inputs

    @override
    def unsupported_reason(self, leaf: Leaf) -> str:
        return "" if infer_vocabulary(leaf) else f"does not hold integers of at most {MAX_VOCABULARY} values"

    @override
    def build(self, leaf: Leaf, activation: Activation) -> "TokenEncoder":
        return TokenEncoder(self, leaf, activation)


class TokenEncoder(nn.Module):
    """Embedding -> concatenation of all positions -> MLP -> LayerNorm, with one table for all positions.

    Source: the authors' encoder of Crafter's map.
    """

    def __init__(self, config: TokenEncoderConfig, leaf: Leaf, activation: Activation) -> None:
        super().__init__()
        vocabulary = infer_vocabulary(leaf)
        assert vocabulary is not None
        self.vocabulary = vocabulary
        num_positions = math.prod(stored_shape(leaf))
        self.embedding = nn.Embedding(vocabulary.size, config.embedding_dim)
        self.mlp = MLP(num_positions * config.embedding_dim, (config.output_size,), config.output_size, activation)
        self.norm = nn.LayerNorm(config.output_size)

    def forward(self, stored: Shaped[Tensor, "N ..."]) -> Float[Tensor, "N D"]:
        """Return one vector per timestep."""
        embedded = self.embedding(self.vocabulary.to_indices(stored))
        return self.norm(self.mlp(embedded.flatten(1)))
