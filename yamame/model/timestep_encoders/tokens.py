"""Categories and grids of them -> vectors, through an embedding."""

import math
from dataclasses import dataclass

from gymnasium import spaces
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from yamame.model.blocks.mlp import MLP, Activation
from yamame.model.timestep_encoders.leaf import LeafEncoderConfig
from yamame.model.timestep_encoders.vocabulary import LARGEST_VOCABULARY, infer_vocabulary
from yamame.records.action_spaces import num_choices
from yamame.records.limits import check_range
from yamame.records.spaces import Leaf, stored_shape

MOST_ONE_HOT = 64
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
        return len(stored_shape(leaf)) > 1 or max(num_choices(leaf)) > MOST_ONE_HOT

    def unsupported_reason(self, leaf: Leaf) -> str:
        """Anything but integers of a bounded range."""
        return "" if infer_vocabulary(leaf) else f"does not hold integers of a range of at most {LARGEST_VOCABULARY}"

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
