"""Which numbers a leaf of tokens can hold."""

import math
from dataclasses import dataclass

import numpy as np
from gymnasium import spaces
from jaxtyping import Float, Int64, Shaped
from torch import Tensor, nn

from yamame.data.actions import num_choices
from yamame.data.spaces import Leaf, stored_shape, vocabulary_size
from yamame.errors import check_range
from yamame.nets.blocks import MLP, Activation
from yamame.nets.timestep.base import LeafEncoderConfig

MAX_VOCABULARY = 65_536


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
    return Vocabulary(low=low, size=size) if size <= MAX_VOCABULARY else None


MAX_ONE_HOT = 64
"""Categories of more values than that are embedded; of fewer, they enter as one-hot vectors."""


@dataclass(frozen=True, kw_only=True)
class TokenEncoderConfig(LeafEncoderConfig):
    """Sizes of the network for tokens whose place has a meaning: cells of a grid, cards on a table.

    Tokens are Discrete and MultiDiscrete leaves of more than 64 values and MultiDiscrete ones of two dimensions or
    more; if told so, any integers of a bounded range (a MiniGrid view is a uint8 Box of 7 x 7 x 3).
    """

    embedding_dim: int = 8
    """Numbers that stand for a token."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "embedding_dim", ge=1)

    def matches(self, name: str, leaf: Leaf) -> bool:
        """See the class."""
        if not isinstance(leaf, spaces.Discrete | spaces.MultiDiscrete) or self.unsupported_reason(leaf):
            return False
        return len(stored_shape(leaf)) > 1 or max(num_choices(leaf)) > MAX_ONE_HOT

    def unsupported_reason(self, leaf: Leaf) -> str:
        """Anything but integers of a bounded range."""
        return "" if infer_vocabulary(leaf) else f"does not hold integers of a range of at most {MAX_VOCABULARY}"

    def build(self, leaf: Leaf, activation: Activation) -> "TokenEncoder":
        """The network for such tokens."""
        return TokenEncoder(self, leaf, activation)


class TokenEncoder(nn.Module):
    """Embedding -> all places side by side -> MLP -> LayerNorm; one table for all places.

    Source: the authors' encoder of Crafter's map (SPEC section 2).
    """

    def __init__(self, config: TokenEncoderConfig, leaf: Leaf, activation: Activation) -> None:
        super().__init__()
        known = infer_vocabulary(leaf)
        assert known is not None
        self.vocabulary = known
        places = math.prod(stored_shape(leaf))
        self.embedding = nn.Embedding(known.size, config.embedding_dim)
        self.mlp = MLP(places * config.embedding_dim, (config.output_size,), config.output_size, activation)
        self.norm = nn.LayerNorm(config.output_size)

    def forward(self, stored: Shaped[Tensor, "N ..."]) -> Float[Tensor, "N D"]:
        """One vector a grid."""
        embedded = self.embedding(self.vocabulary.to_indices(stored))
        return self.norm(self.mlp(embedded.reshape(len(stored), -1)))
