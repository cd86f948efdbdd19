"""Positions of timesteps in a trial, for attention: added to embeddings, or as rotations of queries and keys."""

import math
from typing import Literal

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn

from yamame.nets.blocks import at_least_float32

PositionKind = Literal["sinusoidal", "learned", "rotary", "sinusoidal_and_rotary"]
Rotation = Float[Tensor, "N parts 1 P 2"]
"""Cosine and sine of the angle of each of P pairs of features, for queries, keys and values."""


class PositionEmbedding(nn.Module):
    """Addition to a timestep's embedding by its index in the trial; 0 for rotary positions, which are a `rotation`.

    Sinusoidal: sine on even, cosine on odd dimensions, base 10,000. Learned: a table of `max_timestep + 1` rows, the
    last of which is that of all later times.
    Sinusoidal and rotary: attention finds timesteps by their index, as for reciting backwards, and by their distance.
    """

    def __init__(self, kind: PositionKind, width: int, head_width: int, max_timestep: int) -> None:
        super().__init__()
        self.table = nn.Embedding(max_timestep + 1, width) if kind == "learned" else None
        if self.table is not None:
            nn.init.normal_(self.table.weight, std=0.02)
        self.turns_per_step: Tensor | None
        self.rotary_turns_per_step: Tensor | None
        turns = _turns_per_step(width) if kind in ("sinusoidal", "sinusoidal_and_rotary") else None
        rotary_turns = _turns_per_step(head_width) if kind in ("rotary", "sinusoidal_and_rotary") else None
        self.register_buffer("turns_per_step", turns, persistent=False)
        self.register_buffer("rotary_turns_per_step", rotary_turns, persistent=False)

    def forward(self, time_N: Int64[Tensor, "N"]) -> Float[Tensor, "N D"] | float:
        """Return the embedding of each time."""
        if self.table is not None:
            return self.table(time_N.clamp(max=self.table.num_embeddings - 1))
        if self.turns_per_step is None:
            return 0.0
        angle = _angles(time_N, self.turns_per_step, torch.float32)
        return torch.stack([angle.sin(), angle.cos()], dim=2).flatten(1)

    def rotation(self, time_N: Int64[Tensor, "N"], dtype: torch.dtype) -> Rotation | None:
        """Return the rotation of each time, which leaves values as they are, in float32 at least.

        None for other kinds of positions. Pairs of features of queries and keys are rotated by an angle proportional to
        time (Su et al. 2021). The product of two rotated vectors depends on their times only through the difference.
        """
        if self.rotary_turns_per_step is None:
            return None
        angle = _angles(time_N, self.rotary_turns_per_step, torch.promote_types(dtype, torch.float32))
        turned = torch.stack([angle.cos(), angle.sin()], dim=2)
        still = torch.stack([torch.ones_like(angle), torch.zeros_like(angle)], dim=2)
        return torch.stack([turned, turned, still], dim=1)[:, :, None]


def rotate(qkv_N3HF: Float[Tensor, "N parts H F"], rotation_N31P2: Rotation) -> Float[Tensor, "N parts H F"]:
    """Return rotated queries and keys, and values; of a part of the rotation, that part of them."""
    pairs_N3HP2 = at_least_float32(qkv_N3HF).unflatten(3, (-1, 2))
    if torch.compiler.is_compiling():  # compilers and exporters have no complex numbers
        even, odd = pairs_N3HP2.unbind(4)
        cos, sin = rotation_N31P2.unbind(4)
        turned = torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=4)
    else:
        turned = torch.view_as_real(torch.view_as_complex(pairs_N3HP2) * torch.view_as_complex(rotation_N31P2))
    return turned.flatten(3).to(qkv_N3HF.dtype)


def _angles(
    time_N: Int64[Tensor, "N"], turns_per_step: Float[Tensor, "half"], dtype: torch.dtype
) -> Float[Tensor, "N half"]:
    """Angle of each pair of features modulo 2 pi, in float64: float32 has an error of 0.004 at time 100,000."""
    return (time_N[:, None] * turns_per_step).frac_().to(dtype) * math.tau


def _turns_per_step(width: int) -> Float64[Tensor, "half"]:
    """1 / (2 pi 10,000^(2 i / width)) of pair i."""
    pair = torch.arange(0, width, 2, dtype=torch.float64)
    return torch.exp(pair * (-math.log(10_000.0) / width)) / math.tau
