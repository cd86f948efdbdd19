"""Averages over the real entries of padded tensors, by multiplication: no indexing, so shapes stay static."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def masked_mean(value: Float[Tensor, "N ..."], mask_N: Bool[Tensor, "N"]) -> Float[Tensor, "..."]:
    """Mean over the first dimension where the mask is true; 0 where it is nowhere true. What is masked may be NaN."""
    mask = mask_N.reshape(-1, *[1] * (value.dim() - 1))
    count = mask_N.sum().clamp(min=1)
    return torch.where(mask, value, 0.0).sum(0) / count
