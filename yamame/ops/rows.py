"""Flat tokens <-> one row per segment, for the few layers that look along time."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.autograd.function import once_differentiable


@dataclass(frozen=True, kw_only=True)
class RowLayout:
    """Where each of N tokens stands in `num_rows` right-padded rows of `length` slots.

    Right padding needs no mask under causal attention: a real slot never looks at the padding behind it.
    """

    num_rows: int
    length: int
    slot_of_token: Int64[Tensor, "N"]
    """Flat slot index of each token; `num_rows * length` for the filling."""
    token_of_slot: Int64[Tensor, "slots"]
    """Token of each slot; N where the slot is padding."""
    is_identity: bool
    """Whether token n stands in slot n for every n: all rows are full and nothing fills."""

    @staticmethod
    def of(segment_N: Int64[Tensor, "N"], position_N: Int64[Tensor, "N"], num_rows: int, length: int) -> "RowLayout":
        """The layout of tokens that stand at `position` of row `segment`; tokens with `segment == num_rows` fill."""
        num_tokens, num_slots = segment_N.shape[0], num_rows * length
        token_N = torch.arange(num_tokens, device=segment_N.device)
        slot_N = torch.where(segment_N < num_rows, segment_N * length + position_N, num_slots)
        token_of_slot = segment_N.new_full((num_slots + 1,), num_tokens).scatter(0, slot_N, token_N)
        return RowLayout(
            num_rows=num_rows,
            length=length,
            slot_of_token=slot_N,
            token_of_slot=token_of_slot[:-1],
            # equal numbers are not enough: the filling may happen to make up for rows that are not full
            is_identity=num_slots == num_tokens and torch.equal(slot_N, token_N),
        )

    def to_rows(self, x_ND: Float[Tensor, "N D"]) -> Float[Tensor, "B L D"]:
        """Tokens in rows; padding slots hold copies of some token. Gradients of the filling are exactly zero."""
        rows = x_ND if self.is_identity else _gather(x_ND, self.token_of_slot, self.slot_of_token)
        return rows.view(self.num_rows, self.length, -1)

    def from_rows(self, rows_BLD: Float[Tensor, "B L D"]) -> Float[Tensor, "N D"]:
        """The tokens back from their rows; the filling gets copies of some slot. Padding gets no gradient."""
        flat = rows_BLD.reshape(self.num_rows * self.length, -1)
        return flat if self.is_identity else _gather(flat, self.slot_of_token, self.token_of_slot)


def _gather(x: Tensor, index: Tensor, inverse: Tensor) -> Tensor:
    """`x[index]`, where `inverse` says which row of the result each row of `x` became; one past the end: none."""
    unused = inverse == index.shape[0]
    return _Gather.apply(x, index.clamp(max=x.shape[0] - 1), inverse.clamp(max=index.shape[0] - 1), unused)


class _Gather(torch.autograd.Function):
    """A gather whose backward is a gather too (the plain one scatters, several times slower on a CPU)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, inverse: Tensor, unused: Tensor) -> Tensor:
        ctx.save_for_backward(inverse, unused)
        return x.index_select(0, index)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        inverse, unused = ctx.saved_tensors
        return gradient.index_select(0, inverse).masked_fill_(unused[:, None], 0.0), None, None, None
