"""Flat tokens <-> one row per segment, for the few layers that look along time."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional


@dataclass(frozen=True, kw_only=True)
class PaddedLayout:
    """Where each of N tokens stands in `num_rows` right-padded rows of `length` slots.

    Right padding needs no mask under causal attention: a real slot never looks at the padding behind it.
    """

    num_tokens: int
    num_rows: int
    length: int
    index: "SlotIndex | None"
    """None: every row is full and so the first tokens, in order, are the slots; what follows fills."""

    @staticmethod
    def from_segments(
        segment_N: Int64[Tensor, "N"], position_N: Int64[Tensor, "N"], num_rows: int, length: int, *, all_full: bool
    ) -> "PaddedLayout":
        """The layout of tokens that stand at `position` of row `segment`; tokens with `segment == num_rows` fill.

        `all_full`: every row has `length` tokens, and they come in the order of rows and positions.
        """
        places = None if all_full else SlotIndex.from_segments(segment_N, position_N, num_rows, length)
        return PaddedLayout(num_tokens=segment_N.shape[0], num_rows=num_rows, length=length, index=places)

    def pad(self, x_ND: Float[Tensor, "N D"]) -> Float[Tensor, "B L D"]:
        """Tokens in rows; padding slots hold copies of some token. Gradients of the filling are exactly zero."""
        if self.index is None:
            flat = x_ND[: self.num_rows * self.length]
        else:
            flat = _gather(x_ND, self.index.token_of_slot, self.index.slot_of_token)
        return flat.view(self.num_rows, self.length, -1)

    def unpad(self, rows_BLD: Float[Tensor, "B L D"]) -> Float[Tensor, "N D"]:
        """The tokens back from their rows; the filling gets some finite numbers. Padding gets no gradient."""
        flat = rows_BLD.reshape(self.num_rows * self.length, -1)
        if self.index is None:
            filling = self.num_tokens - flat.shape[0]
            return functional.pad(flat, (0, 0, 0, filling)) if filling else flat
        return _gather(flat, self.index.slot_of_token, self.index.token_of_slot)


@dataclass(frozen=True, kw_only=True)
class SlotIndex:
    """Which token stands in which slot."""

    slot_of_token: Int64[Tensor, "N"]
    """Flat slot index of each token; the number of slots for the filling."""
    token_of_slot: Int64[Tensor, "slots"]
    """Token of each slot; N where the slot is padding."""

    @staticmethod
    def from_segments(segment_N: Int64[Tensor, "N"], position_N: Int64[Tensor, "N"], num_rows: int, length: int) -> "SlotIndex":
        """Those of a `PaddedLayout`."""
        num_tokens, num_slots = segment_N.shape[0], num_rows * length
        token_N = torch.arange(num_tokens, device=segment_N.device)
        slot_N = torch.where(segment_N < num_rows, segment_N * length + position_N, num_slots)
        token_of_slot = segment_N.new_full((num_slots + 1,), num_tokens).scatter(0, slot_N, token_N)
        return SlotIndex(slot_of_token=slot_N, token_of_slot=token_of_slot[:-1])


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
