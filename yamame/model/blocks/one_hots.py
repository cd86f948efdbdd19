"""Categories as networks take them."""

import torch
from jaxtyping import Int64
from torch import Tensor
from torch.nn import functional


def concat_one_hot(category: Int64[Tensor, "N ..."], sizes: tuple[int, ...]) -> Int64[Tensor, "N f"]:
    """The one-hot vectors of `len(sizes)` categories, counted from 0, side by side: f is the sum of their sizes."""
    columns = category.reshape(category.shape[0], len(sizes)).unbind(1)
    return torch.cat([functional.one_hot(column, size) for column, size in zip(columns, sizes, strict=True)], dim=1)
