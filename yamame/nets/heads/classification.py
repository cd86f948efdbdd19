"""Values as probabilities of bins, trained by cross-entropy."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor
from typing_extensions import override

from yamame.distributed_context import SINGLE_PROCESS, DistributedContext
from yamame.errors import check_range
from yamame.nets.heads.value_code import ValueCode, ValueCodeConfig
from yamame.nets.ops import masked_moments


@dataclass(frozen=True, kw_only=True)
class ClassificationConfig(ValueCodeConfig):
    """Values as probabilities of bins: `Classification`. It does not adapt to the unit of rewards, as PopArt does."""

    num_bins: int = 128
    """Number of bins (Z)."""
    max_abs_value: float = 1e5
    """Largest absolute value, in units of scaled reward. Targets beyond it are clamped."""
    label: Literal["two_hot", "hl_gauss"] = "two_hot"
    """What the cross-entropy compares with: the two nearest bins, or a bell around them."""
    label_std: float = 0.75
    """Standard deviation of `hl_gauss` labels, in distances of bins."""

    def __post_init__(self) -> None:
        check_range(self, "num_bins", ge=2)
        check_range(self, "max_abs_value", "label_std", gt=0)

    @override
    def build(self, num_gammas: int, *, normalize: bool) -> "Classification":
        """Return the value code. It is the same with and without `normalize`: there are no running statistics."""
        return Classification(self, num_gammas)


_PRIOR_DECAY = 2.0
"""How fast the probability of a bin falls with the symlog of its value, before training."""


class Classification(ValueCode):
    """A softmax over Z bins, whose mean is the value. The loss is the cross-entropy with a label of the TD target.

    The centers of the bins are evenly spaced in symlog(x) = sign(x) log(1 + |x|), from -`max_abs_value` to
    `max_abs_value`. A label is a distribution over bins whose mean is the target:

    * `two_hot` (Bellemare et al. 2017): the target is between two centers, which share the probability.
    * `hl_gauss` (Imani and White 2018, Farebrother et al. 2024): each of the two has a normal distribution, cut into
      bins, in its place.

    Critic values, normalized values and values in units of scaled reward are one and the same. **Rewards must therefore
    be of a suitable size**: targets beyond the range are clamped (`critic/td_target_clamped_fraction` is their
    fraction), and differences far below the distance of the bins at 0 (0.2 by default) are learned slowly.

    Differs from AMAGO-2 (Grigsby et al. 2024) in the mean: there symexp of the mean symlog, which of the returns 0 and
    100 is 9 instead of 50. Labels are therefore linear in values, not in symlogs, and those of `hl_gauss` are shifted
    by about 1 % of the target, to have its mean: repeated by bootstrapping, an error of that size diverges. Outputs are
    added to fixed logits, with which values start near 0 however far the bins reach; there all bins start equal.

    Args:
        config: Bins and labels.
        num_gammas: Number of gammas.
    """

    def __init__(self, config: ClassificationConfig, num_gammas: int) -> None:
        super().__init__(num_gammas)
        self.num_outputs = config.num_bins
        limit = math.log1p(config.max_abs_value)
        symlog_Z = torch.linspace(-limit, limit, config.num_bins, dtype=torch.float64)
        center_Z = symlog_Z.sign() * symlog_Z.abs().expm1()
        dtype = torch.get_default_dtype()
        self.center_Z: Tensor
        self.prior_Z: Tensor
        self.clamped_G: Tensor
        self.label_ZZ: Tensor | None
        self.register_buffer("center_Z", center_Z.to(dtype), persistent=False)
        self.register_buffer("prior_Z", (-_PRIOR_DECAY * symlog_Z.abs()).to(dtype), persistent=False)
        self.register_buffer("clamped_G", torch.zeros(num_gammas), persistent=False)
        bells = _bell_labels(symlog_Z, center_Z, config.label_std).to(dtype) if config.label == "hl_gauss" else None
        self.register_buffer("label_ZZ", bells, persistent=False)

    def log_probability(self, output: Float[Tensor, "*shape Z"]) -> Float[Tensor, "*shape Z"]:
        """Return the log-probability of every bin."""
        return (output + self.prior_Z).log_softmax(-1)

    @override
    def decode(self, output: Float[Tensor, "*shape Z"]) -> Float[Tensor, "*shape"]:
        """Return the mean of the bins, in units of scaled reward."""
        return self.mean(self.log_probability(output).exp())

    def mean(self, probability: Float[Tensor, "*shape Z"]) -> Float[Tensor, "*shape"]:
        """Return the mean of distributions over bins, such as labels."""
        return (probability * self.center_Z).sum(-1)

    def label(self, target: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape Z"]:
        """Return the labels of targets in units of scaled reward; the mean of a label is its target, clamped."""
        center_Z = self.center_Z
        target = target.clamp(center_Z[0], center_Z[-1])
        above = torch.searchsorted(center_Z, target.contiguous(), right=True).clamp(1, len(center_Z) - 1)
        low, high = center_Z[above - 1], center_Z[above]
        fraction = ((target - low) / (high - low)).clamp(0.0, 1.0)[..., None]
        if self.label_ZZ is not None:
            return torch.lerp(self.label_ZZ[above - 1], self.label_ZZ[above], fraction)
        label = torch.zeros(*target.shape, len(center_Z), dtype=target.dtype, device=target.device)
        index = above[..., None]
        return label.scatter(-1, torch.cat([index - 1, index], dim=-1), torch.cat([1.0 - fraction, fraction], dim=-1))

    @override
    def loss(self, output_NKGZ: Float[Tensor, "N K G Z"], target_NG: Float[Tensor, "N G"]) -> Float[Tensor, "N K G"]:
        """Return the cross-entropy in nats. Its minimum is the entropy of the label, not 0."""
        return -(self.label(target_NG)[:, None] * self.log_probability(output_NKGZ)).sum(-1)

    @override
    @torch.no_grad()
    def update(
        self,
        target_NG: Float[Tensor, "N G"],
        loss_mask_N: Bool[Tensor, "N"],
        distributed: DistributedContext = SINGLE_PROCESS,
    ) -> None:
        """Measure the fraction of the valid TD targets of all ranks that are clamped. No value changes."""
        clamped_NG = (target_NG.abs() > self.center_Z[-1]).to(target_NG.dtype)
        self.clamped_G.copy_(masked_moments(clamped_NG, loss_mask_N, distributed)[0])

    @override
    def unitless_metrics(self) -> Mapping[str, Float[Tensor, ""]]:
        """Return the fraction of the targets of the acting gamma that were clamped in the last update."""
        return {"critic/td_target_clamped_fraction": self.clamped_G[-1].clone()}


def _bell_labels(symlog_Z: Float64[Tensor, "Z"], center_Z: Float64[Tensor, "Z"], std: float) -> Float64[Tensor, "Z Z"]:
    """Return the label of every center: a normal distribution in symlog, cut into bins, whose mean is the center.

    Where it has to be for that is found by bisection. The outermost labels have one bin: no other has their mean.
    """
    width = symlog_Z[1] - symlog_Z[0]
    edge = torch.cat([symlog_Z[:1] - 0.5 * width, symlog_Z + 0.5 * width])
    high_Z = torch.full_like(symlog_Z, float(edge[-1] + 5.0 * std * width))
    low_Z, label_ZZ = -high_Z, torch.empty(0)
    for _ in range(100):
        middle_Z = 0.5 * (low_Z + high_Z)
        label_ZZ = _cut(edge, middle_Z, std * width)
        too_high_Z = label_ZZ @ center_Z > center_Z
        low_Z, high_Z = torch.where(too_high_Z, low_Z, middle_Z), torch.where(too_high_Z, middle_Z, high_Z)
    label_ZZ[[0, -1]] = torch.eye(len(center_Z), dtype=torch.float64)[[0, -1]]
    return label_ZZ


def _cut(edge: Float64[Tensor, "edges"], mean_Z: Float64[Tensor, "Z"], std: Tensor) -> Float64[Tensor, "Z Z"]:
    """Return, for every mean, the probabilities of the bins between the edges."""
    below = torch.special.ndtr((edge - mean_Z[:, None]) / std)
    probability = below.diff(dim=1)
    return probability / probability.sum(1, keepdim=True)
