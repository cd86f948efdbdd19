"""Where in the trial a timestep stands: learned, sinusoidal or rotary."""

import math
from typing import Literal

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn

from yamame.model.blocks.precision import at_least_float32

PositionKind = Literal["sinusoidal", "learned", "rotary"]


class PositionEmbedding(nn.Module):
    """Vector to add to a timestep's embedding, by its true time in the trial (0 everywhere for rotary positions).

    Sinusoidal: sine on even, cosine on odd dimensions, base 10,000. Learned: a table of `max_time + 1` rows.
    """

    def __init__(self, kind: PositionKind, width: int, max_timestep: int) -> None:
        super().__init__()
        self.kind = kind
        self.table = nn.Embedding(max_timestep + 1, width) if kind == "learned" else None
        if self.table is not None:
            nn.init.normal_(self.table.weight, std=0.02)
        self.turns_per_step: Tensor
        self.register_buffer("turns_per_step", _turns_per_step(width, torch.device("cpu")), persistent=False)

    def forward(self, time_N: Int64[Tensor, "N"]) -> Float[Tensor, "N D"] | float:
        """The embedding of each time."""
        if self.table is not None:
            return self.table(time_N)
        if self.kind == "rotary":
            return 0.0
        angle = _angles(time_N, self.turns_per_step, torch.float32)
        return torch.stack([angle.sin(), angle.cos()], dim=2).flatten(1)


def apply_rotary(x: Float[Tensor, "N H F"], time_N: Int64[Tensor, "N"]) -> Float[Tensor, "N H F"]:
    """Rotary positions (Su et al. 2021): pairs of features turned by an angle that grows with time.

    The product of two rotated vectors depends on their times only through the difference.
    """
    exact = at_least_float32(x)
    angle = _angles(time_N, _turns_per_step(x.shape[2], x.device), exact.dtype)[:, None]
    even, odd = exact[..., 0::2], exact[..., 1::2]
    turned = torch.stack([even * angle.cos() - odd * angle.sin(), even * angle.sin() + odd * angle.cos()], dim=3)
    return turned.flatten(2).to(x.dtype)


def _angles(
    time_N: Int64[Tensor, "N"], turns_per_step: Float[Tensor, "half"], dtype: torch.dtype
) -> Float[Tensor, "N half"]:
    """The angle of each pair of dimensions, less whole turns: in float64, as float32 errs by 0.004 at time 100,000."""
    return (time_N[:, None] * turns_per_step).frac_().to(dtype) * math.tau


def _turns_per_step(width: int, device: torch.device) -> Float64[Tensor, "half"]:
    """1 / (2 pi 10,000^(2 i / width)) of pair i."""
    pair = torch.arange(0, width, 2, dtype=torch.float64, device=device)
    return torch.exp(pair * (-math.log(10_000.0) / width)) / math.tau
