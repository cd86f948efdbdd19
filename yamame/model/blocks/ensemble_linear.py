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

    def forward(self, x: Float[Tensor, "K N in"], *, detach_weights: bool = False) -> Float[Tensor, "K N out"]:
        """Member k applied to `x[k]`. `frozen`: gradients reach `x` but not the parameters."""
        weight, bias = (self.weight.detach(), self.bias.detach()) if detach_weights else (self.weight, self.bias)
        return torch.baddbmm(bias, x, weight)


def shared_input_linear(
    x_ND: Float[Tensor, "N D"], weight_KDH: Float[Tensor, "K D H"], bias_K1H: Float[Tensor, "K 1 H"]
) -> Float[Tensor, "K N H"]:
    """`x @ weight[k] + bias[k]` for every k as one product, so that no copy of `x`, nor of its gradient, is made."""
    members, inputs, outputs = weight_KDH.shape
    side_by_side = torch.addmm(bias_K1H.flatten(), x_ND, weight_KDH.movedim(0, 1).reshape(inputs, members * outputs))
    return side_by_side.unflatten(1, (members, outputs)).movedim(1, 0)
