"""The one seam through which tokens look at each other."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from yamame.ops.rows import RowLayout


def attend(
    query_NHF: Float[Tensor, "N H F"],
    key_NHF: Float[Tensor, "N H F"],
    value_NHF: Float[Tensor, "N H F"],
    layout: RowLayout,
    memory_length: int,
) -> Float[Tensor, "N H F"]:
    """Each token's average of the values of its own segment, up to itself and `memory_length` tokens back."""
    num_tokens, heads, width = query_NHF.shape
    packed = torch.cat([query_NHF, key_NHF, value_NHF], dim=1).flatten(1)
    rows = layout.to_rows(packed).view(layout.num_rows, layout.length, 3, heads, width)
    query, key, value = rows.permute(2, 0, 3, 1, 4)
    if layout.length <= memory_length:
        out = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    else:
        band = causal_band(layout.length, memory_length, query.device)
        out = functional.scaled_dot_product_attention(query, key, value, attn_mask=band)
    return layout.from_rows(out.transpose(1, 2).flatten(2)).view(num_tokens, heads, width)


def causal_band(length: int, memory_length: int, device: torch.device) -> Bool[Tensor, "L L"]:
    """True where slot i may look at slot j: j <= i and i - j < memory_length."""
    slot = torch.arange(length, device=device)
    distance = slot[:, None] - slot[None, :]
    return (distance >= 0) & (distance < memory_length)
