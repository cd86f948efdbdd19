"""Where numbers must not be coarse."""

import torch
from jaxtyping import Float
from torch import Tensor


def at_least_float32(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """`x` in float32 if it came out of a bfloat16 product, else as it is (float64 included)."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
