"""Averages over the real entries of padded tensors, by multiplication: no indexing, so shapes stay static."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from yamame.ops.ranks import SINGLE_PROCESS, DistributedContext


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
