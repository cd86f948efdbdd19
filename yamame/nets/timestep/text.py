"""Text encoder: a GRU over characters."""

from dataclasses import dataclass

import torch
from gymnasium import spaces
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from typing_extensions import override

from yamame.data.spaces import Leaf, stored_shape
from yamame.errors import check_range
from yamame.nets.blocks import Activation
from yamame.nets.sequence.gru import gru_forward
from yamame.nets.timestep.base import LeafEncoderConfig
from yamame.nets.timestep.tokens import infer_vocabulary


@dataclass(frozen=True, kw_only=True)
class TextEncoderConfig(LeafEncoderConfig):
    """Sizes of the encoder of Text leaves and, with an override, of rows of integers padded with zeros."""

    embedding_dim: int = 16
    """Width of the embedding of a character."""
    hidden_size: int = 64
    """Width of the GRU."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "embedding_dim", "hidden_size", ge=1)

    @override
    def matches(self, name: str, leaf: Leaf) -> bool:
        return isinstance(leaf, spaces.Text) and not self.unsupported_reason(leaf)

    @override
    def unsupported_reason(self, leaf: Leaf) -> str:
        vocabulary = infer_vocabulary(leaf)
        if vocabulary is None or vocabulary.low or len(stored_shape(leaf)) != 1:
            return "is not a row of integers >= 0"
        return ""

    @override
    def build(self, leaf: Leaf, activation: Activation) -> "TextEncoder":
        return TextEncoder(self, leaf)


class TextEncoder(nn.Module):
    """Embedding -> GRU -> state after the last character -> linear -> LayerNorm; zeros for an empty text.

    A mean over characters would not distinguish "north" from "thorn". Source: the authors encode instructions with a
    recurrent network.
    """

    def __init__(self, config: TextEncoderConfig, leaf: Leaf) -> None:
        super().__init__()
        vocabulary = infer_vocabulary(leaf)
        assert vocabulary is not None
        self.vocabulary = vocabulary
        self.embedding = nn.Embedding(vocabulary.size, config.embedding_dim)
        self.recurrence = nn.GRU(config.embedding_dim, config.hidden_size, batch_first=True)
        self.output = nn.Linear(config.hidden_size, config.output_size)
        self.norm = nn.LayerNorm(config.output_size)

    def forward(self, stored: Shaped[Tensor, "N L"]) -> Float[Tensor, "N D"]:
        """Return one vector per text."""
        token_NL = self.vocabulary.to_indices(stored)
        position_L = torch.arange(1, token_NL.shape[1] + 1, device=token_NL.device)
        length_N = (position_L * (token_NL > 0)).amax(1)
        state_NLH = gru_forward(self.recurrence, self.embedding(token_NL))
        last_N11 = (length_N - 1).clamp(min=0)[:, None, None]
        last_NH = state_NLH.gather(1, last_N11.expand(-1, 1, state_NLH.shape[2])).squeeze(1)
        return self.norm(self.output(torch.where(length_N[:, None] > 0, last_NH, 0.0)))
