"""Causal attention within rows of equal length, in pieces that bound its memory.

B rows, L slots, H heads, F width of a head; C queries and the K keys that they may look at, of which the last C are
their own slots.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

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
