"""PopArt: scalar values, normalized by running statistics of the TD targets."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from yamame.distributed_context import SINGLE_PROCESS, DistributedContext
from yamame.errors import check_range
from yamame.nets.heads.value_code import ValueCode, ValueCodeConfig
from yamame.nets.ops import masked_moments


@dataclass(frozen=True, kw_only=True)
class PopArtConfig(ValueCodeConfig):
    """One output per value, with the squared error as loss."""

    beta: float = 5e-4
    """Update rate of the running statistics."""
    initial_square: float = 0.0
    """Mean square of the targets before the first update (the authors' code: 100). 0: that of the first batch in which
    a target is not 0, and the smallest sigma is a fraction of the size of targets instead of 1e-4, so that learning
    does not depend on the unit of rewards."""
    rescale_critics: bool = False
    """Move w and b into the last layers of the critics after every update (van Hasselt et al. 2016), so that learning
    is as fast after sigma has grown or shrunk a hundredfold. False: w and b stay separate (paper)."""

    def __post_init__(self) -> None:
        check_range(self, "beta", gt=0, le=1)
        check_range(self, "initial_square", ge=0)

    def build(self, num_gammas: int, *, normalize: bool) -> "PopArt":
        """Return PopArt, or unnormalized scalar values."""
        return PopArt(
            num_gammas,
            enabled=normalize,
            beta=self.beta,
            initial_square=self.initial_square,
            rescale_critics=self.rescale_critics,
        )


_MIN_RELATIVE_VARIANCE = 1e-6
"""Smallest variance of the targets of a gamma, as a fraction of their mean square, in float32."""


class PopArt(ValueCode):
    """Running statistics of the TD targets of each gamma, with an affine map that preserves values when they move.

    A critic's output x has the normalized value w x + b and the value sigma (w x + b) + mu. w and b (`scale_G`,
    `shift_G`) are not learned: they only compensate changes of mu and sigma. At the start mu = 0 and nu is
    `initial_square`; averages are debiased. If they start from data, all values are 0 until then. With `enabled=False`
    everything is the identity: the ablation "w/o PopArt". Paper: section 3 (van Hasselt et al. 2016).
    """

    def __init__(
        self,
        num_gammas: int,
        *,
        enabled: bool = True,
        beta: float = PopArtConfig.beta,
        initial_square: float = PopArtConfig.initial_square,
        rescale_critics: bool = PopArtConfig.rescale_critics,
    ) -> None:
        super().__init__(num_gammas)
        self.enabled, self.beta, self.rescale_critics = enabled, beta, rescale_critics
        self.mean_G: Tensor
        self.square_G: Tensor
        self.count: Tensor
        self.register_buffer("mean_G", torch.zeros(num_gammas))
        self.starts_from_data = starts_from_data = enabled and initial_square == 0
        square = initial_square if enabled and not starts_from_data else 1.0
        self.register_buffer("square_G", torch.full((num_gammas,), square))
        self.register_buffer("count", torch.zeros(()) if starts_from_data else torch.ones(()))

    @property
    def std_G(self) -> Float[Tensor, "G"]:
        """sigma."""
        variance_G = self.square_G - self.mean_G.square()
        if self.starts_from_data:
            return torch.maximum(variance_G, _MIN_RELATIVE_VARIANCE * self.square_G).clamp(min=1e-30).sqrt()
        return variance_G.clamp(min=1e-8, max=1e12).sqrt()

    def decode(self, output: Float[Tensor, "*shape 1"]) -> Float[Tensor, "*shape"]:
        """Return the outputs themselves."""
        return output.squeeze(-1)

    def loss(self, output_NKGZ: Float[Tensor, "N K G 1"], target_NG: Float[Tensor, "N G"]) -> Float[Tensor, "N K G"]:
        """Return (w x + b - y)^2. Paper: section 3, equation 2."""
        value_NKG = self.scale_G.clone() * output_NKGZ.squeeze(-1) + self.shift_G.clone()
        return (value_NKG - target_NG[:, None]).square()

    def normalize(self, value_NG: Float[Tensor, "N G"]) -> Float[Tensor, "N G"]:
        """Return (value - mu) / sigma."""
        return (value_NG - self.mean_G) / self.std_G

    def denormalize(self, critic_value_NKG: Float[Tensor, "N K G"]) -> Float[Tensor, "N K G"]:
        """Return sigma (w x + b) + mu."""
        std_G = self.std_G * (self.count > 0)
        return std_G * (self.scale_G * critic_value_NKG + self.shift_G) + self.mean_G

    @torch.no_grad()
    def update(
        self,
        target_NG: Float[Tensor, "N G"],
        loss_mask_N: Bool[Tensor, "N"],
        distributed: DistributedContext = SINGLE_PROCESS,
    ) -> None:
        """Update mu and sigma from the valid TD targets of all ranks, and w and b so that values are unchanged."""
        if not self.enabled:
            return
        old_mean, old_std = self.mean_G.clone(), self.std_G
        mean, square, count = masked_moments(target_NG, loss_mask_N, distributed)
        started = self.count > 0
        starts_now = ~started & (square > 0).all()
        self.count += (started | starts_now).to(self.count.dtype)
        beta = self.beta / (1.0 - (1.0 - self.beta) ** self.count.clamp(min=1.0))
        # exactly 1 at the start: a trace of the initial numbers would be a scale of its own
        rate = torch.where(started, beta, starts_now.to(beta.dtype)) * (count > 0)
        self.mean_G.lerp_(mean, rate)
        self.square_G.lerp_(square, rate)
        std = self.std_G
        ratio = torch.where(started, old_std / std, 1.0)
        self.scale_G.mul_(ratio)
        self.shift_G.copy_(torch.where(started, self.shift_G * ratio + (old_mean - self.mean_G) / std, self.shift_G))

    def metrics(self) -> Mapping[str, Float[Tensor, ""]]:
        """Return sigma of the acting gamma."""
        return {"critic/popart_std": self.std_G[-1]}

    def metrics_by_gamma(self) -> Mapping[str, Float[Tensor, "G"]]:
        """Return mu, the mean TD target, and sigma; empty if disabled."""
        return {"critic/td_target_mean": self.mean_G, "critic/popart_std": self.std_G} if self.enabled else {}
