"""Running normalisation of the network's input."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from yamame.ops.ranks import SINGLE_PROCESS, DistributedContext


class InputNormalizer(nn.Module):
    """(x - mean) / std per feature, with debiased running moments of the raw inputs of training batches.

    beta_t = beta / (1 - (1 - beta)^t), beta = 1e-4. A feature whose deviation is at most 0.01 is only centred.
    Differs from the code behind the paper's results, which updated the moments with inputs that were already
    normalised: here they are those of the raw inputs. Differs also in that they never change during a forward pass:
    the learner calls `observe` before it.
    """

    def __init__(self, features: int, *, beta: float = 1e-4) -> None:
        super().__init__()
        self.beta = beta
        self.mean: Tensor
        self.square: Tensor
        self.count: Tensor
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("square", torch.ones(features))
        self.register_buffer("count", torch.zeros(()))

    @torch.no_grad()
    def update(self, x_NF: Float[Tensor, "N F"], token_mask_N: Bool[Tensor, "N"], ranks: DistributedContext = SINGLE_PROCESS) -> None:
        """Move the moments towards those of the real rows of `x` on all ranks; no change when none is real."""
        weight = token_mask_N.to(x_NF.dtype)
        total, mean, square = weight.sum(), weight @ x_NF, weight @ x_NF.square()
        ranks.all_reduce_sum_(total, mean, square)
        mean, square = mean / total.clamp(min=1.0), square / total.clamp(min=1.0)
        self.count += (total > 0).to(self.count.dtype)
        beta = self.beta / (1.0 - (1.0 - self.beta) ** self.count.clamp(min=1.0))
        beta = torch.where(total > 0, beta, 0.0)
        self.mean.lerp_(mean, beta)
        self.square.lerp_(square, beta)

    def forward(self, x_NF: Float[Tensor, "N F"]) -> Float[Tensor, "N F"]:
        """The normalised input, clamped to +-1e4."""
        deviation = (self.square - self.mean.square() + 1e-5).clamp(min=1e-6).sqrt().clamp(max=1e6)
        scale = torch.where(deviation > 0.01, deviation, 1.0)
        return ((x_NF - self.mean) / scale).clamp(-1e4, 1e4)
