"""Rows of packed windows, for layers that process sequences: padded to one length, or group by group."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from yamame.data.batch import Batch


@dataclass(frozen=True, kw_only=True)
class PaddedLayout:
    """Positions of N packed tokens in `num_rows` right-padded rows of `length` slots.

    Right padding needs no mask under causal attention: no token attends to the padding after it.
    """

    num_tokens: int
    num_rows: int
    length: int
    index: tuple[Int64[Tensor, "N"], Int64[Tensor, "slots"]] | None
    """Flat slot index of each token (the number of slots for padding) and token of each slot (N for padding).

    None if every row is full: then the first tokens are the slots in order, and the rest is padding.
    """

    @staticmethod
    def from_segments(
        segment_N: Int64[Tensor, "N"], position_N: Int64[Tensor, "N"], num_rows: int, length: int, *, all_full: bool
    ) -> "PaddedLayout":
        """Return the layout of tokens with a row (`segment_N`) and a slot (`position_N`).

        Args:
            segment_N: Row of each token; `num_rows` for padding.
            position_N: Slot of each token in its row.
            num_rows: Number of rows.
            length: Slots of a row.
            all_full: Whether every row has `length` tokens, which are sorted by row and slot.
        """
        num_tokens, num_slots = segment_N.shape[0], num_rows * length
        index = None
        if not all_full:
            token_N = torch.arange(num_tokens, device=segment_N.device)
            slot_N = torch.where(segment_N < num_rows, segment_N * length + position_N, num_slots)
            token_of_slot = segment_N.new_full((num_slots + 1,), num_tokens).scatter(0, slot_N, token_N)[:-1]
            index = (slot_N, token_of_slot)
        return PaddedLayout(num_tokens=num_tokens, num_rows=num_rows, length=length, index=index)

    @staticmethod
    def from_batch(batch: Batch) -> "PaddedLayout":
        """Return the layout with one row for each window of a batch."""
        return PaddedLayout.from_segments(
            batch.segment_ids, batch.position_ids, batch.num_segments, batch.max_seqlen, all_full=batch.equal_lengths
        )

    def pad(self, x_ND: Float[Tensor, "N D"]) -> Float[Tensor, "B L D"]:
        """Return tokens in rows; padding slots hold copies of a token. Padding tokens get a gradient of exactly 0."""
        if self.index is None:
            flat = x_ND[: self.num_rows * self.length]
        else:
            slot_of_token, token_of_slot = self.index
            flat = _gather(x_ND, token_of_slot, slot_of_token)
        return flat.view(self.num_rows, self.length, -1)

    def unpad(self, rows_BLD: Float[Tensor, "B L D"]) -> Float[Tensor, "N D"]:
        """Return tokens from rows; padding tokens get arbitrary finite values. Padding slots get no gradient."""
        flat = rows_BLD.reshape(self.num_rows * self.length, -1)
        if self.index is None:
            padding = self.num_tokens - flat.shape[0]
            return functional.pad(flat, (0, 0, 0, padding)) if padding else flat
        slot_of_token, token_of_slot = self.index
        return _gather(flat, slot_of_token, token_of_slot)


MAX_GROUP_PADDING = 64
"""Most slots of padding in a group of rows. One more call of a layer costs about as much as processing them."""


@dataclass(frozen=True, kw_only=True)
class GroupedLayout:
    """Positions of N packed tokens in groups of right-padded rows, for layers that are called once for each group.

    Windows of similar lengths are in one group, which depends on the lengths alone. Padding slots hold copies of the
    last token of their row. The padding of the batch has no slots.
    """

    num_tokens: int
    groups: tuple[tuple[int, int], ...]
    """Number of rows and length of each group, whose slots follow one another."""
    index: "GroupIndex | None"
    """None if the slots are the first tokens in order."""

    @staticmethod
    def from_lengths(lengths: Sequence[int], num_tokens: int) -> "GroupedLayout":
        """Return the layout of windows of these lengths, end to end, of which some may be empty."""
        lengths_B = np.array(lengths)
        start_B, used = np.cumsum(lengths_B) - lengths_B, int(lengths_B.sum())
        order_B = np.argsort(lengths_B, kind="stable")
        order_B = order_B[np.searchsorted(lengths_B[order_B], 1) :]
        tokens, padding, groups = [], [], []
        for group_B in np.split(order_B, _group_starts(lengths_B[order_B].tolist())):
            length = int(lengths_B[group_B[-1]])
            slot_L, last_B1 = np.arange(length), lengths_B[group_B, None] - 1
            tokens.append((start_B[group_B, None] + np.minimum(slot_L, last_B1)).ravel())
            padding.append((slot_L > last_B1).ravel())
            groups.append((len(group_B), length))
        token_of_slot, is_padding = np.concatenate(tokens), np.concatenate(padding)
        index = None
        if len(token_of_slot) > used or (token_of_slot[1:] < token_of_slot[:-1]).any():
            slot_of_token = np.zeros(num_tokens, np.int64)
            slot_of_token[token_of_slot[~is_padding]] = np.flatnonzero(~is_padding)
            index = GroupIndex(
                token_of_slot=torch.from_numpy(token_of_slot),
                slot_of_token=torch.from_numpy(slot_of_token),
                padding_slots=torch.from_numpy(is_padding) if len(token_of_slot) > used else None,
                padding_tokens=torch.arange(num_tokens) >= used if num_tokens > used else None,
            )
        return GroupedLayout(num_tokens=num_tokens, groups=tuple(groups), index=index)

    def pad(self, x_ND: Float[Tensor, "N D"]) -> Float[Tensor, "slots D"]:
        """Return the tokens of all slots. Padding tokens get a gradient of exactly 0."""
        if self.index is None:
            return x_ND[: sum(rows * length for rows, length in self.groups)]
        index = self.index
        return _Gather.apply(x_ND, index.token_of_slot, index.slot_of_token, index.padding_tokens)

    def unpad(self, slots_SD: Float[Tensor, "slots D"]) -> Float[Tensor, "N D"]:
        """Return the tokens; padding tokens get arbitrary finite values. Padding slots get a gradient of exactly 0."""
        if self.index is None:
            padding = self.num_tokens - len(slots_SD)
            return functional.pad(slots_SD, (0, 0, 0, padding)) if padding else slots_SD
        index = self.index
        return _Gather.apply(slots_SD, index.slot_of_token, index.token_of_slot, index.padding_slots)


@dataclass(frozen=True, kw_only=True)
class GroupIndex:
    """Indices of tokens and slots into each other, and which of both are padding (None: no padding)."""

    token_of_slot: Int64[Tensor, "slots"]
    slot_of_token: Int64[Tensor, "N"]
    padding_slots: Bool[Tensor, "slots"] | None
    padding_tokens: Bool[Tensor, "N"] | None


def _group_starts(sorted_lengths: Sequence[int]) -> list[int]:
    """Return where ascending lengths are split into groups, the first start left out."""
    starts, first, total = [], 0, 0
    for row, length in enumerate(sorted_lengths):
        if (row - first) * length - total > MAX_GROUP_PADDING:
            starts.append(row)
            first, total = row, 0
        total += length
    return starts


def _gather(x: Tensor, index: Tensor, inverse: Tensor) -> Tensor:
    """Return `x[index]`. `inverse` holds the row of the result of each row of `x`; one past the end: none."""
    unused = inverse == index.shape[0]
    return _Gather.apply(x, index.clamp(max=x.shape[0] - 1), inverse.clamp(max=index.shape[0] - 1), unused)


class _Gather(torch.autograd.Function):
    """Gather whose backward pass is a gather: a scatter is several times slower on a CPU."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, inverse: Tensor, unused: Tensor | None) -> Tensor:
        ctx.save_for_backward(inverse, unused)
        return x.index_select(0, index)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        inverse, unused = ctx.saved_tensors
        gathered = gradient.index_select(0, inverse)
        return gathered if unused is None else gathered.masked_fill_(unused[:, None], 0.0), None, None, None
