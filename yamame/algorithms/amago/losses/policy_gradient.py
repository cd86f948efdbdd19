"""Off-policy policy gradient: maximize the critics' value of the policy's actions."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from yamame.data.batch import Batch, LossOutput, Predictions
from yamame.errors import check_range
from yamame.nets.ops import masked_mean


@dataclass(frozen=True, kw_only=True)
class PolicyGradientLoss:
    """-(w min_k Q_k(s, a_pi) + b) - entropy_coef H(pi), averaged over gammas. Paper: section 3, equation 3.

    The minimum is over all critics; they get no gradient from here (`Predictions.q_policy_NKG`). Differs from the
    paper if configured: the mean instead of the minimum (REDQ), and an entropy bonus, which keeps policies from
    converging to actions that the critics prefer by chance. The critics' targets do not include the bonus.
    """

    name: ClassVar[str] = "policy_gradient"

    weight: float = 1.0
    """Weight in the sum of losses; 0: filtered behavior cloning alone."""
    critic_reduction: Literal["min", "mean"] = "min"
    """Reduction over critics: min is pessimistic where they disagree."""
    entropy_coef: float = 0.0
    """Normalized value of one nat of entropy; actions whose values differ by less get similar probabilities."""

    def __post_init__(self) -> None:
        check_range(self, "weight", "entropy_coef", ge=0)

    def __call__(self, batch: Batch, predictions: Predictions) -> LossOutput:
        """Return the loss of every token."""
        q_NKG = predictions.q_policy_NKG
        # the gradient of `amin` compares values computed again, which compiled code may round so that none is equal
        raw_NG = q_NKG.min(dim=1).values if self.critic_reduction == "min" else q_NKG.mean(dim=1)
        q_NG = predictions.q_scale_G * raw_NG + predictions.q_shift_G
        entropy = masked_mean(predictions.entropy_NG[:, -1].detach(), batch.loss_mask)
        objective_NG = q_NG + self.entropy_coef * predictions.entropy_NG if self.entropy_coef else q_NG
        return LossOutput(per_token=-objective_NG.mean(dim=1), metrics={"actor/entropy": entropy})
