"""Where in the trial a timestep stands: learned, sinusoidal or rotary."""

import math
from typing import Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

Positions = Literal["sinusoidal", "learned", "rotary"]


class PositionEmbedding(nn.Module):
    """Vector to add to a timestep's embedding, by its true time in the trial (0 everywhere for rotary positions).

    Sinusoidal: sine on even, cosine on odd dimensions, base 10,000. Learned: a table of `max_time + 1` rows.
    """

    def __init__(self, kind: Positions, width: int, max_time: int) -> None:
        super().__init__()
        self.kind = kind
        self.table = nn.Embedding(max_time + 1, width) if kind == "learned" else None
        if self.table is not None:
            nn.init.normal_(self.table.weight, std=0.02)
        self.frequency: Tensor
        self.register_buffer("frequency", _frequencies(width), persistent=False)

    def forward(self, time_N: Int64[Tensor, "N"]) -> Float[Tensor, "N D"] | float:
        """The embedding of each time."""
        if self.table is not None:
            return self.table(time_N)
        if self.kind == "rotary":
            return 0.0
        angle = time_N.to(self.frequency.dtype)[:, None] * self.frequency
        return torch.stack([angle.sin(), angle.cos()], dim=2).flatten(1)


def rotate(x: Float[Tensor, "N H F"], time_N: Int64[Tensor, "N"]) -> Float[Tensor, "N H F"]:
    """Rotary positions (Su et al. 2021): pairs of features turned by an angle that grows with time.

    The product of two rotated vectors depends on their times only through the difference.
    """
    angle = time_N.to(x.dtype)[:, None, None] * _frequencies(x.shape[2]).to(x)
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = torch.stack([even * angle.cos() - odd * angle.sin(), even * angle.sin() + odd * angle.cos()], dim=3)
    return turned.flatten(2)


def _frequencies(width: int) -> Float[Tensor, "half"]:
    return torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
