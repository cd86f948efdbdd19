"""Filtered behaviour cloning: imitate what turned out better than the policy."""

from dataclasses import dataclass

from yamame.ops.masked import masked_mean
from yamame.records.batch import Batch, LossOutput, Predictions
from yamame.records.limits import check_limits


@dataclass(frozen=True, kw_only=True)
class FilteredImitationLoss:
    """-1[A(s, a) > threshold] log pi(a | s), averaged over discounts. Source: paper section 3, equation 4 (CRR, AWAC).

    A(s, a) = mean_k Q_k(s, a) - mean_k Q_k(s, a_pi), of raw critic outputs, without gradient.
    """

    weight: float = 0.1
    """Weight of this loss in the sum; 0 is the paper's ablation "w/o filtered BC"."""
    threshold: float = 1e-3
    """Smallest advantage that is imitated (the authors' first code; their later one uses 0)."""
    largest_log_prob: float = 1000.0
    """Log-probabilities are clamped to +- this."""

    def __post_init__(self) -> None:
        check_limits(self, "weight", at_least=0)
        check_limits(self, "threshold")
        check_limits(self, "largest_log_prob", above=0)

    def __call__(self, batch: Batch, predictions: Predictions) -> LossOutput:
        """The loss of every token."""
        advantage_NG = (predictions.q_data_NKG - predictions.q_policy_NKG).detach().mean(dim=1)
        chosen_NG = (advantage_NG > self.threshold).to(advantage_NG.dtype)
        log_prob_NG = predictions.log_prob_NG.clamp(-self.largest_log_prob, self.largest_log_prob)
        metrics = {"imitated_fraction": masked_mean(chosen_NG[:, -1], batch.valid)}
        return LossOutput(per_token=-(chosen_NG * log_prob_NG).mean(dim=1), metrics=metrics)
