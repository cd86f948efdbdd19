"""Temporal-difference loss of the critics."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from yamame.data.batch import Batch, LossOutput, Predictions
from yamame.errors import check_range
from yamame.nets.ops import masked_mean, n_step_target, random_subset


@dataclass(frozen=True, kw_only=True)
class TDLoss:
    """(w Q(s, a) + b - y)^2, averaged over critics and gammas. Paper: section 3, equation 2."""

    name: ClassVar[str] = "td"

    weight: float = 10.0
    """Weight in the sum of losses."""
    reward_scale: float = 10.0
    """Factor of the rewards in targets; the inputs of the network are not scaled."""
    num_critics_in_target: int = 2
    """Size of the random subset of critics whose minimum is the target, sampled for every token and gamma (REDQ)."""
    n_step: int = 1
    """Number of rewards before the bootstrapped value."""
    truncation_is_terminal: bool = True
    """Do not bootstrap at the time limit of a trial: the objective is the return within it, and time is an input of the
    network (paper). False: bootstrap there, for tasks that continue."""

    def __post_init__(self) -> None:
        check_range(self, "weight", ge=0)
        check_range(self, "reward_scale", gt=0)
        check_range(self, "num_critics_in_target", "n_step", ge=1)

    def td_target(
        self,
        batch: Batch,
        next_q_NKG: Float[Tensor, "N K G"],
        gammas_G: Float[Tensor, "G"],
        generator: torch.Generator,
        *,
        pessimistic: bool = True,
    ) -> Float[Tensor, "N G"]:
        """Return TD targets in units of scaled reward from the target critics' values of the policy at each token.

        `pessimistic`: the minimum of the sampled critics; otherwise their mean, for an actor that only imitates and so
        exploits no overestimate (as in the authors' code).
        """
        sampled_NKG = random_subset(next_q_NKG, self.num_critics_in_target, generator)
        terminal = batch.terminated | batch.truncated if self.truncation_is_terminal else batch.terminated
        return n_step_target(
            reward_N=batch.reward.to(next_q_NKG.dtype) * self.reward_scale,
            terminal_N=terminal,
            valid_N=batch.loss_mask,
            value_NG=sampled_NKG.amin(dim=1) if pessimistic else sampled_NKG.mean(dim=1),
            gammas_G=gammas_G,
            n=self.n_step,
        )

    def __call__(self, batch: Batch, predictions: Predictions) -> LossOutput:
        """Return the loss of every token, as the value code of the critics defines it."""
        acting_q_NK = predictions.q_data_NKG[..., -1].detach()
        acting_q_NK = predictions.q_scale_G[-1] * acting_q_NK + predictions.q_shift_G[-1]
        error_NK = acting_q_NK - predictions.td_target_NG[:, -1:]
        metrics = {
            "critic/td_error_abs": masked_mean(error_NK.abs().mean(1), batch.loss_mask),
            "critic/q_normalized": masked_mean(acting_q_NK.mean(1), batch.loss_mask),
            "critic/q_ensemble_std": masked_mean(acting_q_NK.std(1, correction=0), batch.loss_mask),
        }
        return LossOutput(per_token=predictions.td_loss_NKG.mean(dim=(1, 2)), metrics=metrics)
