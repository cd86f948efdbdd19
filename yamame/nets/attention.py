"""Causal attention over packed windows, with one back end for each kind of machine."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from yamame.data.batch import Batch
from yamame.nets.layouts import GroupedLayout, PaddedLayout
from yamame.nets.ops import uncompiled, without_autocast

AttentionKernel = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Queries `[B, C, H, F]`, keys and values `[B, K, H, F]`, mask `[C, K]` (True: attend) -> outputs `[B, C, H, F]`."""


def sdpa_attention(
    query_BLHF: Float[Tensor, "B L H F"],
    key_BLHF: Float[Tensor, "B L H F"],
    value_BLHF: Float[Tensor, "B L H F"],
    attention_window: int,
) -> Float[Tensor, "B L H F"]:
    """Causal attention within rows, over at most `attention_window` slots, by PyTorch's kernel; linear memory.

    On a CPU the kernel splits the keys into blocks of 512 and skips the blocks that lie entirely in the future. Rows
    of about that length would cost twice the work unless the queries are split into chunks.
    """
    length = query_BLHF.shape[1]
    chunk = 192
    single_cpu_block = query_BLHF.device.type == "cpu" and 2 * chunk <= length < 4 * chunk
    if length > attention_window or single_cpu_block:
        return _in_chunks(_sdpa_kernel, query_BLHF, key_BLHF, value_BLHF, attention_window, chunk)
    query, key, value = (x.transpose(1, 2) for x in (query_BLHF, key_BLHF, value_BLHF))
    return functional.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2)


def matmul_attention(
    query_BLHF: Float[Tensor, "B L H F"],
    key_BLHF: Float[Tensor, "B L H F"],
    value_BLHF: Float[Tensor, "B L H F"],
    attention_window: int,
) -> Float[Tensor, "B L H F"]:
    """`sdpa_attention` by matrix products with the softmax in float32; memory is quadratic in the length.

    For half precision on a CPU, where the backward pass of PyTorch's kernel is several times slower.
    """
    length = query_BLHF.shape[1]
    chunk = math.ceil(length / max(1, round(length / 128)))
    return _in_chunks(_matmul_kernel, query_BLHF, key_BLHF, value_BLHF, attention_window, chunk)


def sliding_window_mask(queries: int, keys: int, attention_window: int, device: torch.device) -> Bool[Tensor, "C K"]:
    """Return True where one of the last `queries` slots attends to one of `keys`: 0 <= distance < attention_window."""
    slot = torch.arange(keys, device=device)
    distance = slot[keys - queries :, None] - slot
    return (distance >= 0) & (distance < attention_window)


def masked_attention(
    query_BCHF: Float[Tensor, "B C H F"],
    key_BKHF: Float[Tensor, "B K H F"],
    value_BKHF: Float[Tensor, "B K H F"],
    visible_CK: Bool[Tensor, "C K"],
) -> Float[Tensor, "B C H F"]:
    """Attention within rows, to the slots where a mask, the same in all rows, is True."""
    is_half_on_cpu = query_BCHF.device.type == "cpu" and query_BCHF.dtype.itemsize <= 2
    kernel = _matmul_kernel if is_half_on_cpu else _sdpa_kernel
    return kernel(query_BCHF, key_BKHF, value_BKHF, visible_CK)


def _in_chunks(
    kernel: AttentionKernel,
    query_BLHF: Tensor,
    key_BLHF: Tensor,
    value_BLHF: Tensor,
    attention_window: int,
    chunk: int,
) -> Tensor:
    """Run a kernel on `chunk` queries at a time, with the keys that at least one of them attends to."""
    length, device = query_BLHF.shape[1], query_BLHF.device
    outputs = []
    for start in range(0, length, chunk):
        end, first = min(start + chunk, length), max(0, start - attention_window + 1)
        visible = sliding_window_mask(end - start, end - first, attention_window, device)
        outputs.append(kernel(query_BLHF[:, start:end], key_BLHF[:, first:end], value_BLHF[:, first:end], visible))
    return torch.cat(outputs, dim=1)


def _sdpa_kernel(query_BCHF: Tensor, key_BKHF: Tensor, value_BKHF: Tensor, visible_CK: Tensor) -> Tensor:
    query, key, value = (x.transpose(1, 2) for x in (query_BCHF, key_BKHF, value_BKHF))
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=visible_CK).transpose(1, 2)


def _matmul_kernel(query_BCHF: Tensor, key_BKHF: Tensor, value_BKHF: Tensor, visible_CK: Tensor) -> Tensor:
    query, key, value = (x.transpose(1, 2) for x in (query_BCHF, key_BKHF, value_BKHF))
    bias = query.new_zeros(visible_CK.shape).masked_fill_(~visible_CK, -math.inf)
    score_BHCK = (query * query.shape[3] ** -0.5) @ key.transpose(2, 3) + bias
    # A half-precision softmax computes in float32 internally.
    return (score_BHCK.softmax(dim=3) @ value).transpose(1, 2)


AttentionBackend = Callable[[Tensor, Batch, int, GroupedLayout | None], Tensor]

MAX_MATMUL_SEQLEN = 1024
"""Longest window for which `matmul_attention` is used; beyond it the matrices take too much memory."""


def attend(
    qkv_N3HF: Float[Tensor, "N 3 H F"],
    batch: Batch,
    attention_window: int,
    layout: GroupedLayout | None = None,
) -> Float[Tensor, "N H F"]:
    """Causal attention within each window of a batch, over at most `attention_window` tokens.

    Queries, keys and values are side by side. Padding tokens get arbitrary finite outputs and give no gradient to other
    tokens. Computes in the dtype of the argument (autocast off) without host synchronization. `layout` is that of
    `group_windows`, which layers share.
    """
    deterministic = torch.are_deterministic_algorithms_enabled()
    backend = select_backend(qkv_N3HF.device, qkv_N3HF.dtype, qkv_N3HF.shape[3], deterministic=deterministic)
    with without_autocast(qkv_N3HF.device):
        return backend(qkv_N3HF, batch, attention_window, layout)


def select_backend(
    device: torch.device, dtype: torch.dtype, head_width: int, *, deterministic: bool = False
) -> AttentionBackend:
    """Return the fastest back end for a device, dtype and head width, or the fastest that is deterministic."""
    if device.type == "cpu":
        return attend_in_groups
    half = device.type == "cuda" and dtype in (torch.bfloat16, torch.float16)
    if half and head_width % 8 == 0 and not deterministic:
        return attend_flash
    return attend_padded


@uncompiled  # lengths differ from batch to batch
def group_windows(batch: Batch) -> GroupedLayout | None:
    """Return the groups of windows on a CPU, whose lengths are read; None on other devices."""
    if batch.cu_seqlens.device.type != "cpu":
        return None
    return GroupedLayout.from_lengths(batch.cu_seqlens.diff().tolist(), len(batch.reward))


@uncompiled
def attend_in_groups(
    qkv_N3HF: Float[Tensor, "N 3 H F"],
    batch: Batch,
    attention_window: int,
    layout: GroupedLayout | None = None,
) -> Float[Tensor, "N H F"]:
    """Attend in rows, windows of similar lengths together. Reads the lengths: for the CPU."""
    num_tokens, _, heads, width = qkv_N3HF.shape
    layout = layout or group_windows(batch)
    assert layout is not None
    slots_S3HF = layout.pad(qkv_N3HF.flatten(1)).view(-1, 3, heads, width)
    outputs = []
    groups = slots_S3HF.split([rows * length for rows, length in layout.groups])
    for (rows, length), group in zip(layout.groups, groups, strict=True):
        query, key, value = group.view(rows, length, 3, heads, width).unbind(2)
        if query.dtype.itemsize > 2:
            out_BLHF = sdpa_attention(query, key, value, attention_window)
        elif length <= MAX_MATMUL_SEQLEN:
            out_BLHF = matmul_attention(query, key, value, attention_window)
        else:
            out_BLHF = sdpa_attention(query.float(), key.float(), value.float(), attention_window).to(query.dtype)
        outputs.append(out_BLHF.reshape(rows * length, heads * width))
    return layout.unpad(torch.cat(outputs) if len(outputs) > 1 else outputs[0]).view(num_tokens, heads, width)


def attend_padded(
    qkv_N3HF: Float[Tensor, "N 3 H F"],
    batch: Batch,
    attention_window: int,
    layout: GroupedLayout | None = None,
) -> Float[Tensor, "N H F"]:
    """Attend in rows padded to the length of the longest window: for any device."""
    padded = PaddedLayout.from_batch(batch)
    query, key, value = padded.pad(qkv_N3HF.flatten(1)).unflatten(2, qkv_N3HF.shape[1:]).unbind(2)
    out_BLHF = sdpa_attention(query, key, value, attention_window)
    return padded.unpad(out_BLHF.flatten(2)).view(-1, *qkv_N3HF.shape[2:])


def attend_flash(
    qkv_N3HF: Float[Tensor, "N 3 H F"],
    batch: Batch,
    attention_window: int,
    layout: GroupedLayout | None = None,
) -> Float[Tensor, "N H F"]:
    """Attend by PyTorch's flash kernel for variable lengths; the padding is passed as one more window.

    For half precision on a GPU (Ampere or newer) and head widths that are multiples of 8.
    """
    from torch.nn.attention.varlen import varlen_attn  # imports the compiler, see `uncompiled`

    query_NHF, key_NHF, value_NHF = qkv_N3HF.unbind(1)
    bounds = functional.pad(batch.cu_seqlens, (0, 1), value=len(query_NHF)).to(torch.int32)
    max_seqlen = max(batch.max_seqlen, batch.max_padding)
    left = attention_window - 1 if batch.max_seqlen > attention_window else -1
    out = varlen_attn(query_NHF, key_NHF, value_NHF, bounds, bounds, max_seqlen, max_seqlen, window_size=(left, 0))
    return out if isinstance(out, Tensor) else out[0]
