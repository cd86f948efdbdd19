"""Texts -> vectors: read from left to right."""

from dataclasses import dataclass

import torch
from gymnasium import spaces
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from yamame.data.spaces import Leaf, stored_shape
from yamame.errors import check_range
from yamame.nets.blocks import Activation
from yamame.nets.sequence.gru import gru_forward
from yamame.nets.timestep.base import LeafEncoderConfig
from yamame.nets.timestep.tokens import infer_vocabulary


@dataclass(frozen=True, kw_only=True)
class TextEncoderConfig(LeafEncoderConfig):
    """Sizes of the network for texts: Text leaves, and if told so any row of integers that ends in zeros."""

    embedding_dim: int = 16
    """Numbers that stand for a character."""
    hidden_size: int = 64
    """Width of the GRU that reads them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "embedding_dim", "hidden_size", ge=1)

    def matches(self, name: str, leaf: Leaf) -> bool:
        """Every Text."""
        return isinstance(leaf, spaces.Text) and not self.unsupported_reason(leaf)

    def unsupported_reason(self, leaf: Leaf) -> str:
        """Anything but a row of integers, 0 for the end."""
        known = infer_vocabulary(leaf)
        if known is None or known.low or len(stored_shape(leaf)) != 1:
            return "is no row of integers from 0 on"
        return ""

    def build(self, leaf: Leaf, activation: Activation) -> "TextEncoder":
        """The network for such texts."""
        return TextEncoder(self, leaf)


class TextEncoder(nn.Module):
    """Embedding -> GRU -> its state after the last character -> linear -> LayerNorm; an empty text is all zeros.

    A GRU, because the order of characters is what makes a text: a mean over them would not tell "north" from "thorn".
    Source: the authors read instructions with a recurrent network too (SPEC section 2).
    """

    def __init__(self, config: TextEncoderConfig, leaf: Leaf) -> None:
        super().__init__()
        known = infer_vocabulary(leaf)
        assert known is not None
        self.vocabulary = known
        self.embedding = nn.Embedding(known.size, config.embedding_dim)
        self.recurrence = nn.GRU(config.embedding_dim, config.hidden_size, batch_first=True)
        self.output = nn.Linear(config.hidden_size, config.output_size)
        self.norm = nn.LayerNorm(config.output_size)

    def forward(self, stored: Shaped[Tensor, "N L"]) -> Float[Tensor, "N D"]:
        """One vector a text."""
        token_NL = self.vocabulary.to_indices(stored)
        places_L = torch.arange(1, token_NL.shape[1] + 1, device=token_NL.device)
        length_N = (places_L * (token_NL > 0)).amax(1)
        state_NLH = gru_forward(self.recurrence, self.embedding(token_NL))
        last_N11 = (length_N - 1).clamp(min=0)[:, None, None]
        last_NH = state_NLH.gather(1, last_N11.expand(-1, 1, state_NLH.shape[2])).squeeze(1)
        return self.norm(self.output(torch.where(length_N[:, None] > 0, last_NH, 0.0)))
