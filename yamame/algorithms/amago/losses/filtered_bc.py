"""Filtered behavior cloning: imitate actions that are better than the policy's."""

from dataclasses import dataclass
from typing import ClassVar

from yamame.data.batch import Batch, LossOutput, Predictions
from yamame.errors import check_range
from yamame.nets.ops import masked_mean

ALL_ACTIONS = -1e9
"""Threshold at which every action of the data is imitated."""


@dataclass(frozen=True, kw_only=True)
class FilteredBCLoss:
    """-1[A(s, a) > threshold] log pi(a | s), averaged over gammas. Paper: section 3, eq. 4 (CRR, AWAC).

    A(s, a) = mean_k Q_k(s, a) - mean_k Q_k(s, a_pi), of raw critic outputs, without gradient.
    """

    name: ClassVar[str] = "filtered_bc"

    weight: float = 0.1
    """Weight in the sum of losses; 0: the paper's ablation "w/o filtered BC"."""
    advantage_threshold: float = 1e-3
    """Advantage above which an action is imitated (the authors' first code; their later code uses 0). -1e9: all are."""
    log_prob_clip: float = 1000.0
    """Log-probabilities are clamped to +- this."""

    def __post_init__(self) -> None:
        check_range(self, "weight", ge=0)
        check_range(self, "advantage_threshold")
        check_range(self, "log_prob_clip", gt=0)

    def __call__(self, batch: Batch, predictions: Predictions) -> LossOutput:
        """Return the loss of every token."""
        advantage_NG = (predictions.q_data_NKG - predictions.q_policy_NKG).detach().mean(dim=1)
        imitate_NG = (advantage_NG > self.advantage_threshold).to(advantage_NG.dtype)
        log_prob_NG = predictions.log_prob_NG.clamp(-self.log_prob_clip, self.log_prob_clip)
        metrics = {"actor/filtered_bc_fraction": masked_mean(imitate_NG[:, -1], batch.loss_mask)}
        return LossOutput(per_token=-(imitate_NG * log_prob_NG).mean(dim=1), metrics=metrics)
