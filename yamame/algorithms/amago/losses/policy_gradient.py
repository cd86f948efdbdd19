"""Off-policy policy gradient: choose what the critics like."""

from dataclasses import dataclass
from typing import Literal

from yamame.data.batch import Batch, LossOutput, Predictions
from yamame.errors import check_range
from yamame.nets.ops import masked_mean


@dataclass(frozen=True, kw_only=True)
class PolicyGradientLoss:
    """-(w min_k Q_k(s, a_pi) + b) - entropy_coef H(pi), averaged over discounts. Source: paper section 3, equation 3.

    The minimum is over all critics; they get no gradient from here (`Predictions.q_policy_NKG`). Differs from the
    paper, where told: their mean instead (as REDQ has it), and an entropy bonus, for policies that would settle on
    what the critics prefer by chance. Critics do not see the bonus: rewards stay those of the task.
    """

    weight: float = 1.0
    """Weight of this loss in the sum; 0 leaves imitation alone."""
    critic_reduction: Literal["min", "mean"] = "min"
    """What of the critics it follows: the least, which holds back from what they do not agree on, or their mean."""
    entropy_coef: float = 0.0
    """What a nat of entropy is worth, in normalised value; actions that differ by less are taken about equally."""

    def __post_init__(self) -> None:
        check_range(self, "weight", "entropy_coef", ge=0)

    def __call__(self, batch: Batch, predictions: Predictions) -> LossOutput:
        """The loss of every token."""
        of_all_NKG = predictions.q_policy_NKG
        raw_NG = of_all_NKG.amin(dim=1) if self.critic_reduction == "min" else of_all_NKG.mean(dim=1)
        q_NG = predictions.q_scale_G * raw_NG + predictions.q_shift_G
        entropy = masked_mean(predictions.entropy_NG[:, -1].detach(), batch.loss_mask)
        objective_NG = q_NG + self.entropy_coef * predictions.entropy_NG if self.entropy_coef else q_NG
        return LossOutput(per_token=-objective_NG.mean(dim=1), metrics={"actor/entropy": entropy})
