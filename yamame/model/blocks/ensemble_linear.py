"""K independent linear layers as one batched product."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn


class EnsembleLinear(nn.Module):
    """K layers side by side. Weight `[K, in, out]`, uniform +-sqrt(3 / in); bias uniform +-sqrt(1 / in)."""

    def __init__(self, members: int, inputs: int, outputs: int) -> None:
        super().__init__()
        scale = math.sqrt(1.0 / inputs)
        self.weight = nn.Parameter(
            torch.empty(members, inputs, outputs).uniform_(-math.sqrt(3) * scale, math.sqrt(3) * scale)
        )
        self.bias = nn.Parameter(torch.empty(members, 1, outputs).uniform_(-scale, scale))

    def forward(self, x: Float[Tensor, "K N in"], *, frozen: bool = False) -> Float[Tensor, "K N out"]:
        """Member k applied to `x[k]`. `frozen`: gradients reach `x` but not the parameters."""
        weight, bias = (self.weight.detach(), self.bias.detach()) if frozen else (self.weight, self.bias)
        return torch.baddbmm(bias, x, weight)
