"""Temporal-difference loss of the critics."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from yamame.data.batch import ACTING_LOG_PROB, Batch, LossOutput, Predictions
from yamame.errors import check_range
from yamame.nets.ops import masked_mean, n_step_target, random_subset, trace_target


class TargetValues(NamedTuple):
    """Outputs of the target networks, in units of scaled reward."""

    q_policy_NKG: Float[Tensor, "N K G"]
    """Q(s, pi(s))."""
    q_data_NKG: Float[Tensor, "N K G"] | None
    """Q(s, a) of the data's action; None: not needed."""
    log_prob_NG: Float[Tensor, "N G"] | None
    """log pi(a | s) of the data's action; None: not needed."""

    @staticmethod
    def concatenate(chunks: Sequence["TargetValues"]) -> "TargetValues":
        """Return the values of all tokens."""
        q_policy, q_data, log_prob = zip(*chunks, strict=True)
        if q_data[0] is None:
            return TargetValues(torch.cat(q_policy), None, None)
        return TargetValues(torch.cat(q_policy), torch.cat(q_data), torch.cat(log_prob))


@dataclass(frozen=True, kw_only=True)
class TDLoss:
    """(w Q(s, a) + b - y)^2, averaged over critics and gammas. Paper: section 3, equation 2."""

    name: ClassVar[str] = "td"

    weight: float = 10.0
    """Weight in the sum of losses."""
    reward_scale: float = 1.0
    """Factor of the rewards in targets; the inputs of the network are not scaled. It changes nothing where PopArt
    starts from the data (paper: 10 to 100, where it starts from a constant)."""
    num_critics_in_target: int = 2
    """Size of the random subset of critics whose minimum is the target, sampled for every token and gamma (REDQ)."""
    critic_reduction: Literal["min", "mean"] = "min"
    """Reduction over that subset. Without a policy gradient it is the mean, as in the authors' code: an actor that only
    imitates exploits no overestimates."""
    n_step: int = 1
    """Number of rewards before the bootstrapped value, with `trace_decay` 0."""
    trace_decay: float = 0.0
    """lambda of Retrace (Munos et al. 2016): targets reach along the window while the policy agrees with the data, so
    that an update carries rewards many steps back; with 1, to the start of a trial, but with the noise of whole
    returns. 0: `n_step` targets (paper)."""
    truncation_is_terminal: bool = True
    """Do not bootstrap at the time limit of a trial: the objective is the return within it, and time is an input of the
    network (paper). False: bootstrap there, for tasks that continue."""

    def __post_init__(self) -> None:
        check_range(self, "weight", ge=0)
        check_range(self, "reward_scale", gt=0)
        check_range(self, "num_critics_in_target", "n_step", ge=1)
        check_range(self, "trace_decay", ge=0, le=1)

    def uses_traces(self, batch: Batch) -> bool:
        """Return whether targets use the actions of the data: not where none of their log-probabilities are known."""
        return self.trace_decay > 0 and ACTING_LOG_PROB in batch.extras

    def td_target(
        self,
        batch: Batch,
        values: TargetValues,
        gammas_G: Float[Tensor, "G"],
        generator: torch.Generator,
        *,
        pessimistic: bool = True,
    ) -> Float[Tensor, "N G"]:
        """Return TD targets in units of scaled reward.

        Traces subtract Q(s, a) of the data's action. The minimum over critics of Q(s, a) is lower than that of V(s), an
        average over actions, so that with minima inside the recursion targets would grow with every step of it. Each
        critic therefore has a recursion of its own, and the minimum is that of the finished targets.

        A trace is lambda min(1, pi(a | s) / mu(a | s)), with the probability mu that the collector recorded. Data
        without it, such as imported datasets, has one-step targets.

        `pessimistic`: the minimum of the sampled critics; otherwise their mean.
        """
        reward_N = batch.reward.to(values.q_policy_NKG.dtype) * self.reward_scale
        terminal_N = batch.terminated | batch.truncated if self.truncation_is_terminal else batch.terminated
        if values.q_data_NKG is None or values.log_prob_NG is None:
            return n_step_target(
                reward_N=reward_N,
                terminal_N=terminal_N,
                valid_N=batch.loss_mask,
                value_NG=self._reduce_critics(values.q_policy_NKG, generator, pessimistic=pessimistic),
                gammas_G=gammas_G,
                n=1 if self.trace_decay else self.n_step,
            )
        recorded_N1 = batch.extras[ACTING_LOG_PROB][:, None]
        ratio_NG = (values.log_prob_NG - recorded_N1).clamp(max=0.0).exp()
        trace_NG = self.trace_decay * torch.where(recorded_N1.isnan(), 0.0, ratio_NG)
        num_critics = values.q_policy_NKG.shape[1]
        # a column for each critic and gamma
        target_NC = trace_target(
            reward_N=reward_N,
            terminal_N=terminal_N,
            valid_N=batch.loss_mask,
            value_NG=values.q_policy_NKG.flatten(1),
            action_value_NG=values.q_data_NKG.flatten(1),
            trace_NG=trace_NG.repeat(1, num_critics),
            gammas_G=gammas_G.repeat(num_critics),
            max_seqlen=batch.max_seqlen,
        )
        return self._reduce_critics(target_NC.view_as(values.q_policy_NKG), generator, pessimistic=pessimistic)

    def _reduce_critics(
        self, q_NKG: Float[Tensor, "N K G"], generator: torch.Generator, *, pessimistic: bool
    ) -> Float[Tensor, "N G"]:
        """Return the minimum or the mean of a random subset of critics."""
        q_NKG = random_subset(q_NKG, self.num_critics_in_target, generator)
        return q_NKG.amin(dim=1) if pessimistic else q_NKG.mean(dim=1)

    def __call__(self, batch: Batch, predictions: Predictions) -> LossOutput:
        """Return the loss of every token, as the value code of the critics defines it."""
        acting_q_NK = predictions.q_data_NKG[..., -1].detach()
        acting_q_NK = predictions.q_scale_G[-1] * acting_q_NK + predictions.q_shift_G[-1]
        error_NK = acting_q_NK - predictions.td_target_NG[:, -1:]
        metrics = {
            "critic/td_error_abs": error_NK.abs().mean(1),
            "critic/q_normalized": acting_q_NK.mean(1),
            "critic/q_ensemble_std": acting_q_NK.std(1, correction=0),
        }
        means = masked_mean(torch.stack(list(metrics.values()), dim=1), batch.loss_mask).unbind()
        return LossOutput(
            per_token=predictions.td_loss_NKG.mean(dim=(1, 2)), metrics=dict(zip(metrics, means, strict=True))
        )
