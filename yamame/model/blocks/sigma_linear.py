"""Linear layer with sigma-reparametrised weight."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional


class SigmaLinear(nn.Module):
    """y = x W_hat^T + bias with W_hat = (gamma / sigma(W)) W: the spectral norm is learned apart from the direction.

    sigma = u^T W v with u, v from power iteration; the gradient flows through W only. The iteration is a step of its
    own (`power_iteration`, once per update), never a side effect of a forward pass. Source: paper section 3 and
    appendix A (sigmaReparam on the four linear layers of a block). Differs from the authors' first code: u and v
    start at the true leading singular vectors, so that W_hat has spectral norm 1 from the first forward.
    """

    def __init__(self, inputs: int, outputs: int, *, bias: bool = True) -> None:
        super().__init__()
        weight = torch.empty(outputs, inputs)
        nn.init.trunc_normal_(weight, std=0.02)
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None
        self.gamma = nn.Parameter(torch.ones(()))
        left, _, right = torch.linalg.svd(weight, full_matrices=False)
        self.left: Tensor
        self.right: Tensor
        self.register_buffer("left", left[:, 0].clone())
        self.register_buffer("right", right[0].clone())

    def forward(self, x: Float[Tensor, "... inputs"]) -> Float[Tensor, "... outputs"]:
        """The layer's output; no state changes."""
        return functional.linear(x, self.effective_weight(), self.bias)

    def effective_weight(self) -> Float[Tensor, "outputs inputs"]:
        """W_hat."""
        sigma = torch.dot(self.left, torch.mv(self.weight, self.right))
        return self.weight * (self.gamma / sigma)

    @torch.no_grad()
    def power_iteration(self) -> None:
        """One step towards the leading singular vectors of the present weight."""
        self.left.copy_(functional.normalize(torch.mv(self.weight, self.right), dim=0))
        self.right.copy_(functional.normalize(torch.mv(self.weight.t(), self.left), dim=0))


def power_iteration(module: nn.Module) -> None:
    """One power iteration in every `SigmaLinear` below a module."""
    for part in module.modules():
        if isinstance(part, SigmaLinear):
            part.power_iteration()
