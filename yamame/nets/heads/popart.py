"""PopArt: values of every discount on one scale, whatever the rewards."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from yamame.distributed_context import SINGLE_PROCESS, DistributedContext
from yamame.nets.ops import masked_moments


class PopArt(nn.Module):
    """Per-discount statistics of TD targets, and the affine map that keeps old predictions right when they move.

    A critic's raw output x means the normalised value w x + b and the value sigma (w x + b) + mu. w and b are not
    learned: they only compensate changes of mu and sigma. Online and target critics share them.
    Source: paper section 3 (van Hasselt et al. 2016); mu = 0, nu = 100 at the start, beta = 5e-4, debiased.
    With `enabled=False` everything is the identity (the ablation "w/o PopArt").
    """

    def __init__(self, gammas: int, *, enabled: bool = True, beta: float = 5e-4) -> None:
        super().__init__()
        self.enabled, self.beta = enabled, beta
        self.mean_G: Tensor
        self.square_G: Tensor
        self.scale_G: Tensor
        self.shift_G: Tensor
        self.count: Tensor
        self.register_buffer("mean_G", torch.zeros(gammas))
        self.register_buffer("square_G", torch.full((gammas,), 100.0 if enabled else 1.0))
        self.register_buffer("scale_G", torch.ones(gammas))
        self.register_buffer("shift_G", torch.zeros(gammas))
        self.register_buffer("count", torch.ones(()))

    @property
    def std_G(self) -> Float[Tensor, "G"]:
        """sigma."""
        return (self.square_G - self.mean_G.square()).clamp(min=1e-8, max=1e12).sqrt()

    def normalize(self, value_NG: Float[Tensor, "N G"]) -> Float[Tensor, "N G"]:
        """(value - mu) / sigma."""
        return (value_NG - self.mean_G) / self.std_G

    def denormalize(self, raw_NKG: Float[Tensor, "N K G"]) -> Float[Tensor, "N K G"]:
        """What raw critic outputs mean, in units of scaled reward."""
        return self.std_G * (self.scale_G * raw_NKG + self.shift_G) + self.mean_G

    @torch.no_grad()
    def update(
        self,
        target_NG: Float[Tensor, "N G"],
        loss_mask_N: Bool[Tensor, "N"],
        ranks: DistributedContext = SINGLE_PROCESS,
    ) -> None:
        """Move the statistics towards those of all ranks' valid TD targets, and w and b so that no value changes."""
        if not self.enabled:
            return
        old_mean, old_deviation = self.mean_G.clone(), self.std_G
        self.count += 1.0
        beta = self.beta / (1.0 - (1.0 - self.beta) ** self.count)
        mean, square, count = masked_moments(target_NG, loss_mask_N, ranks)
        any_valid = (count > 0).to(beta.dtype)
        self.mean_G.lerp_(mean, beta * any_valid)
        self.square_G.lerp_(square, beta * any_valid)
        ratio = old_deviation / self.std_G
        self.scale_G.mul_(ratio)
        self.shift_G.copy_(self.shift_G * ratio + (old_mean - self.mean_G) / self.std_G)
