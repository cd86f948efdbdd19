"""The one seam through which tokens look at each other, and its back ends: one for each kind of machine."""

import inspect
import math
from collections.abc import Callable
from itertools import groupby

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.varlen import varlen_attn

from yamame.data.batch import Batch
from yamame.nets.ops import PaddedLayout

AttentionKernel = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Queries `[B, C, H, F]`, keys and values `[B, K, H, F]`, what may be seen `[C, K]` -> averages `[B, C, H, F]`."""


def sdpa_attention(
    query_BLHF: Float[Tensor, "B L H F"],
    key_BLHF: Float[Tensor, "B L H F"],
    value_BLHF: Float[Tensor, "B L H F"],
    memory_length: int,
) -> Float[Tensor, "B L H F"]:
    """Each slot's average of the values of its row, up to itself and `memory_length` slots back; linear memory.

    PyTorch's own kernel. On a CPU it cuts the keys into blocks of 512 and skips those that lie wholly in the future:
    for rows of about that length it does twice the work unless they come in pieces.
    """
    length = query_BLHF.shape[1]
    piece = 192
    one_block_on_a_cpu = query_BLHF.device.type == "cpu" and 2 * piece <= length < 4 * piece
    if length > memory_length or one_block_on_a_cpu:
        return _in_pieces(_sdpa_kernel, query_BLHF, key_BLHF, value_BLHF, memory_length, piece)
    query, key, value = (x.transpose(1, 2) for x in (query_BLHF, key_BLHF, value_BLHF))
    return functional.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2)


def matmul_attention(
    query_BLHF: Float[Tensor, "B L H F"],
    key_BLHF: Float[Tensor, "B L H F"],
    value_BLHF: Float[Tensor, "B L H F"],
    memory_length: int,
) -> Float[Tensor, "B L H F"]:
    """The same by plain matrix products, the softmax in float32; memory grows with the square of the length.

    For half precision on a CPU, where the backward pass of PyTorch's kernel is several times slower than this.
    """
    length = query_BLHF.shape[1]
    piece = math.ceil(length / max(1, round(length / 128)))
    return _in_pieces(_matmul_kernel, query_BLHF, key_BLHF, value_BLHF, memory_length, piece)


def sliding_window_mask(queries: int, keys: int, memory_length: int, device: torch.device) -> Bool[Tensor, "C K"]:
    """True where one of the last `queries` slots may look at one of `keys`: 0 <= distance < memory_length."""
    slot = torch.arange(keys, device=device)
    distance = slot[keys - queries :, None] - slot
    return (distance >= 0) & (distance < memory_length)


def _in_pieces(
    look: AttentionKernel, query_BLHF: Tensor, key_BLHF: Tensor, value_BLHF: Tensor, memory_length: int, piece: int
) -> Tensor:
    """`piece` queries at a time, with the keys that at least one of them may see."""
    length, device = query_BLHF.shape[1], query_BLHF.device
    parts = []
    for begin in range(0, length, piece):
        end, first = min(begin + piece, length), max(0, begin - memory_length + 1)
        visible = sliding_window_mask(end - begin, end - first, memory_length, device)
        parts.append(look(query_BLHF[:, begin:end], key_BLHF[:, first:end], value_BLHF[:, first:end], visible))
    return torch.cat(parts, dim=1)


def _sdpa_kernel(query_BCHF: Tensor, key_BKHF: Tensor, value_BKHF: Tensor, visible_CK: Tensor) -> Tensor:
    query, key, value = (x.transpose(1, 2) for x in (query_BCHF, key_BKHF, value_BKHF))
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=visible_CK).transpose(1, 2)


def _matmul_kernel(query_BCHF: Tensor, key_BKHF: Tensor, value_BKHF: Tensor, visible_CK: Tensor) -> Tensor:
    query, key, value = (x.transpose(1, 2) for x in (query_BCHF, key_BKHF, value_BKHF))
    blocked = query.new_zeros(visible_CK.shape).masked_fill_(~visible_CK, -math.inf)
    score_BHCK = (query * query.shape[3] ** -0.5) @ key.transpose(2, 3) + blocked
    return (score_BHCK.softmax(dim=3) @ value).transpose(1, 2)  # a half-precision softmax computes in float32 inside


AttentionBackend = Callable[[Tensor, Tensor, Tensor, Batch, int], Tensor]

MAX_MATMUL_SEQLEN = 1024
"""Tokens of a window beyond which products in half precision would take more memory than a CPU should give."""


def attend(
    query_NHF: Float[Tensor, "N H F"],
    key_NHF: Float[Tensor, "N H F"],
    value_NHF: Float[Tensor, "N H F"],
    batch: Batch,
    memory_length: int,
) -> Float[Tensor, "N H F"]:
    """Each token's average of the values of its own window, up to itself and `memory_length` tokens back.

    The filling gets finite numbers that mean nothing; whatever they are used for, it gives no gradient to others.
    Computes in the type of its arguments (autocast off); waits for no device.
    """
    chosen = select_backend(query_NHF.device, query_NHF.dtype, query_NHF.shape[2])
    with torch.autocast(query_NHF.device.type, enabled=False):
        return chosen(query_NHF, key_NHF, value_NHF, batch, memory_length)


def select_backend(device: torch.device, dtype: torch.dtype, head_width: int) -> AttentionBackend:
    """The fastest one for heads of a width and type on a device."""
    if device.type == "cpu":
        return attend_per_segment
    if device.type == "cuda" and dtype in (torch.bfloat16, torch.float16) and head_width % 8 == 0 and _HAS_FLASH:
        return attend_flash
    return attend_padded


@torch.compiler.disable  # type: ignore[untyped-decorator]  # lengths differ from batch to batch
def attend_per_segment(
    query_NHF: Float[Tensor, "N H F"],
    key_NHF: Float[Tensor, "N H F"],
    value_NHF: Float[Tensor, "N H F"],
    batch: Batch,
    memory_length: int,
) -> Float[Tensor, "N H F"]:
    """Window by window (neighbours of equal length together), each at its own length. Reads lengths: for the CPU."""
    groups = [(len(list(same)), length) for length, same in groupby(batch.cu_seqlens.diff().tolist())]
    sizes = [rows * length for rows, length in groups]
    filling = query_NHF.shape[0] - sum(sizes)
    parts = []
    for (rows, length), *inputs in zip(
        groups, *(x.split([*sizes, filling]) for x in (query_NHF, key_NHF, value_NHF)), strict=False
    ):
        query, key, value = (x.unflatten(0, (rows, length)) for x in inputs)
        if query.dtype.itemsize > 2:
            out_BLHF = sdpa_attention(query, key, value, memory_length)
        elif length <= MAX_MATMUL_SEQLEN:
            out_BLHF = matmul_attention(query, key, value, memory_length)
        else:
            out_BLHF = sdpa_attention(query.float(), key.float(), value.float(), memory_length).to(query.dtype)
        parts.append(out_BLHF.flatten(0, 1))
    return torch.cat([*parts, torch.zeros_like(query_NHF[:filling])])


def attend_padded(
    query_NHF: Float[Tensor, "N H F"],
    key_NHF: Float[Tensor, "N H F"],
    value_NHF: Float[Tensor, "N H F"],
    batch: Batch,
    memory_length: int,
) -> Float[Tensor, "N H F"]:
    """In rows padded to the length of the longest window: on any device."""
    layout = PaddedLayout.from_segments(
        batch.segment_ids, batch.position_ids, batch.num_segments, batch.max_seqlen, all_full=batch.equal_lengths
    )
    packed_ND = torch.cat([query_NHF, key_NHF, value_NHF], dim=1).flatten(1)
    query, key, value = layout.pad(packed_ND).unflatten(2, (3, *query_NHF.shape[1:])).unbind(2)
    out_BLHF = sdpa_attention(query, key, value, memory_length)
    return layout.unpad(out_BLHF.flatten(2)).view(query_NHF.shape)


def attend_flash(
    query_NHF: Float[Tensor, "N H F"],
    key_NHF: Float[Tensor, "N H F"],
    value_NHF: Float[Tensor, "N H F"],
    batch: Batch,
    memory_length: int,
) -> Float[Tensor, "N H F"]:
    """PyTorch's flash kernel for windows of any lengths; the filling is one more window, so that nothing is left out.

    For half precision on a GPU (Ampere or newer), heads as wide as a multiple of 8.
    """
    bounds = functional.pad(batch.cu_seqlens, (0, 1), value=query_NHF.shape[0]).to(torch.int32)
    longest = max(batch.max_seqlen, batch.max_padding)
    back = memory_length - 1 if batch.max_seqlen > memory_length else -1
    found = varlen_attn(query_NHF, key_NHF, value_NHF, bounds, bounds, longest, longest, window_size=(back, 0))
    return found if isinstance(found, Tensor) else found[0]


_HAS_FLASH = "window_size" in inspect.signature(varlen_attn).parameters
