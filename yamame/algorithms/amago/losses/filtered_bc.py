"""Filtered behavior cloning: imitate actions that are better than the policy's."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Float
from torch import Tensor

from yamame.data.batch import Batch, LossOutput, Predictions
from yamame.errors import check_range
from yamame.nets.ops import masked_mean

ALL_ACTIONS = -1e9
"""Threshold at which every action of the data is imitated."""


@dataclass(frozen=True, kw_only=True)
class FilteredBCLoss:
    """-f(A(s, a)) log pi(a | s), averaged over gammas. Paper: section 3, eq. 4 (CRR, AWAC).

    A(s, a) = mean_k Q_k(s, a) - mean_k Q_k(s, a_pi), of raw critic outputs, without gradient. The filter f is
    1[A > threshold] (`binary`, paper), or min(exp(beta A), maximum) (`exponential`; Wang et al. 2020, AMAGO-2), with
    which worse actions are imitated, too, but less. Raw outputs are normalized by PopArt; those of `Classification` are
    in units of scaled reward, on which the effect of beta and of the threshold then depends.
    """

    name: ClassVar[str] = "filtered_bc"

    weight: float = 0.1
    """Weight in the sum of losses; 0: the paper's ablation "w/o filtered BC"."""
    filter: Literal["binary", "exponential"] = "binary"
    """Weight of an action by its advantage: 1 above the threshold and 0 below, or its exponential."""
    advantage_threshold: float = 1e-3
    """Advantage above which an action is imitated (the authors' first code; their later code uses 0). -1e9: all are.
    No effect with the exponential filter, except on metrics."""
    beta: float = 1.0
    """Factor of the advantage in the exponential filter."""
    max_filter_weight: float = 20.0
    """Largest weight of an action by the exponential filter (AMAGO-2: none; CRR: 20)."""
    log_prob_clip: float = 1000.0
    """Log-probabilities are clamped to +- this."""

    def __post_init__(self) -> None:
        check_range(self, "weight", ge=0)
        check_range(self, "advantage_threshold")
        check_range(self, "log_prob_clip", "beta", "max_filter_weight", gt=0)

    @property
    def imitates_all(self) -> bool:
        """Whether every action of the data is imitated, whatever its advantage."""
        return self.filter == "binary" and self.advantage_threshold <= ALL_ACTIONS

    def __call__(self, batch: Batch, predictions: Predictions) -> LossOutput:
        """Return the loss of every token."""
        advantage_NG = (predictions.q_data_NKG - predictions.q_policy_NKG).detach().mean(dim=1)
        imitate_NG = (advantage_NG > self.advantage_threshold).to(advantage_NG.dtype)
        weight_NG = imitate_NG if self.filter == "binary" else self._exponential(advantage_NG)
        log_prob_NG = predictions.log_prob_NG.clamp(-self.log_prob_clip, self.log_prob_clip)
        metrics = {"actor/filtered_bc_fraction": masked_mean(imitate_NG[:, -1], batch.loss_mask)}
        return LossOutput(per_token=-(weight_NG * log_prob_NG).mean(dim=1), metrics=metrics)

    def _exponential(self, advantage_NG: Float[Tensor, "N G"]) -> Float[Tensor, "N G"]:
        return (self.beta * advantage_NG).clamp(max=math.log(self.max_filter_weight)).exp()
