"""Off-policy policy gradient: choose what the critics like."""

from dataclasses import dataclass

from yamame.ops.masked import masked_mean
from yamame.records.batch import Batch, LossOutput, Predictions
from yamame.records.limits import check_limits


@dataclass(frozen=True, kw_only=True)
class PolicyGradientLoss:
    """-(w min_k Q_k(s, a_pi) + b), averaged over discounts. Source: paper section 3, equation 3.

    The minimum is over all critics; they get no gradient from here (`Predictions.q_policy_NKG`).
    """

    weight: float = 1.0
    """Weight of this loss in the sum; 0 leaves imitation alone."""

    def __post_init__(self) -> None:
        check_limits(self, "weight", at_least=0)

    def __call__(self, batch: Batch, predictions: Predictions) -> LossOutput:
        """The loss of every token."""
        q_NG = predictions.q_scale_G * predictions.q_policy_NKG.amin(dim=1) + predictions.q_shift_G
        entropy = masked_mean(predictions.entropy_NG[:, -1].detach(), batch.valid)
        return LossOutput(per_token=-q_NG.mean(dim=1), metrics={"entropy": entropy})
