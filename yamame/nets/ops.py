"""Averages over the real entries of padded tensors, by multiplication: no indexing, so shapes stay static."""

import zlib
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64, Shaped
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from yamame.data.batch import Batch
from yamame.distributed_context import SINGLE_PROCESS, DistributedContext


def masked_mean(value: Float[Tensor, "N ..."], mask_N: Bool[Tensor, "N"]) -> Float[Tensor, "..."]:
    """Mean over the first dimension where the mask is true; 0 where it is nowhere true. What is masked may be NaN."""
    return _masked_sum(value, mask_N) / mask_N.sum().clamp(min=1)


def masked_moments(
    value: Float[Tensor, "N ..."], mask_N: Bool[Tensor, "N"], ranks: DistributedContext = SINGLE_PROCESS
) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."], Float[Tensor, ""]]:
    """`masked_mean` of the values and of their squares, and the number of entries, over the tensors of all ranks."""
    mean, square = _masked_sum(value, mask_N), _masked_sum(value.square(), mask_N)
    count = mask_N.sum().to(value.dtype)
    ranks.all_reduce_sum_(mean, square, count)
    return mean / count.clamp(min=1), square / count.clamp(min=1), count


def _masked_sum(value: Float[Tensor, "N ..."], mask_N: Bool[Tensor, "N"]) -> Float[Tensor, "..."]:
    return torch.where(mask_N.reshape(-1, *[1] * (value.dim() - 1)), value, 0.0).sum(0)


def random_subset_min(q_NKG: Float[Tensor, "N K G"], subset: int, generator: torch.Generator) -> Float[Tensor, "N G"]:
    """Minimum over `subset` of the K critics, drawn without replacement for every token and discount anew.

    Source: paper appendix A (REDQ). The authors' code draws with replacement, and so uses one critic twice in a
    quarter of its targets; the paper's text does not.
    """
    members = q_NKG.shape[1]
    if subset >= members:
        return q_NKG.amin(dim=1)
    key = torch.rand(q_NKG.shape, generator=generator, device=q_NKG.device)
    chosen = key.argsort(dim=1)[:, :subset]
    return q_NKG.gather(1, chosen).amin(dim=1)


def load_generator_state(generator: torch.Generator, state: Shaped[Tensor, "bytes"]) -> None:
    """Go on in a random stream. Where it was saved on another kind of device, begin one that follows from its state."""
    if state.shape == generator.get_state().shape:
        generator.set_state(state)
    else:
        generator.manual_seed(zlib.crc32(state.numpy().tobytes()))


def n_step_target(
    *,
    reward_N: Float[Tensor, "N"],
    terminal_N: Bool[Tensor, "N"],
    valid_N: Bool[Tensor, "N"],
    value_NG: Float[Tensor, "N G"],
    gammas_G: Float[Tensor, "G"],
    n: int,
) -> Float[Tensor, "N G"]:
    """y_t = r_t + gamma r_(t+1) + ... + gamma^n V_(t+n), stopping at a terminal step, for every token and discount.

    `value_NG[t]` is the value of the state at token t. A window that ends before t + n is bootstrapped from its last
    slot, with as many rewards as there are. Tokens that are not valid come back as their own value.

    A backup over any number of steps is a map y_t = a_t + b_t V[end_t]. Such maps compose, so n steps take about
    log2 n compositions of doubled ones.
    """
    token_N = torch.arange(len(reward_N), device=reward_N.device)
    doubled = (
        torch.where(valid_N, reward_N, 0.0)[:, None].expand_as(value_NG),
        torch.where(valid_N[:, None], torch.where(terminal_N, 0.0, 1.0)[:, None] * gammas_G, 1.0),
        torch.where(valid_N, (token_N + 1).clamp(max=len(token_N) - 1), token_N),
    )
    backup = (torch.zeros_like(value_NG), torch.ones_like(value_NG), token_N)
    while n:
        if n & 1:
            backup = _compose(backup, doubled)
        doubled = _compose(doubled, doubled)
        n >>= 1
    offset_NG, factor_NG, end_N = backup
    return offset_NG + factor_NG * value_NG[end_N]


_Backup = tuple[Float[Tensor, "N G"], Float[Tensor, "N G"], Int64[Tensor, "N"]]


def _compose(first: _Backup, then: _Backup) -> _Backup:
    """The backup that takes the steps of `first`, then those of `then` from where it ended."""
    (offset, factor, end), (next_offset, next_factor, next_end) = first, then
    return offset + factor * next_offset[end], factor * next_factor[end], next_end[end]


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

    @staticmethod
    def from_batch(batch: Batch) -> "PaddedLayout":
        """Return the layout with one row for each window of a batch."""
        return PaddedLayout.from_segments(
            batch.segment_ids, batch.position_ids, batch.num_segments, batch.max_seqlen, all_full=batch.equal_lengths
        )

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
    def from_segments(
        segment_N: Int64[Tensor, "N"], position_N: Int64[Tensor, "N"], num_rows: int, length: int
    ) -> "SlotIndex":
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
