"""One update: statistics, targets, losses, one backward pass, one optimizer step."""

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from yamame.learning.losses.filtered_imitation import FilteredImitationLoss
from yamame.learning.losses.policy_gradient import PolicyGradientLoss
from yamame.learning.losses.td import TDLoss
from yamame.model.agent import Agent
from yamame.model.blocks.sigma_linear import power_iteration
from yamame.ops.masked import masked_mean
from yamame.records.batch import Batch
from yamame.records.errors import UserError
from yamame.records.interfaces import Loss
from yamame.records.limits import check_limits


@dataclass(frozen=True, kw_only=True)
class LearnerConfig:
    """Losses and optimizer. Defaults are the paper's (appendix, table 4)."""

    td: TDLoss = field(default_factory=TDLoss)
    policy_gradient: PolicyGradientLoss = field(default_factory=PolicyGradientLoss)
    imitation: FilteredImitationLoss = field(default_factory=FilteredImitationLoss)
    learning_rate: float = 1e-4
    """Step size of AdamW after the warm-up."""
    warmup_updates: int = 500
    """Updates over which the learning rate grows linearly from zero."""
    decay_updates: int = 0
    """Updates by which the learning rate has fallen linearly to a tenth; 0: it stays constant, as in the paper."""
    weight_decay: float = 1e-3
    """Decoupled weight decay of all parameters."""
    gradient_clip: float = 1.0
    """Largest global norm of the gradient."""
    target_rate: float = 0.003
    """Share of the online heads mixed into their slow copies at each update (tau)."""
    max_skipped_updates: int = 100
    """So many updates in a row with a loss or gradient that is not finite end the run."""

    def __post_init__(self) -> None:
        check_limits(self, "learning_rate", "gradient_clip", above=0)
        check_limits(self, "warmup_updates", "decay_updates", "weight_decay", at_least=0)
        check_limits(self, "target_rate", above=0, at_most=1)
        check_limits(self, "max_skipped_updates", at_least=1)

    def learning_rate_at(self, update: int) -> float:
        """Step size of an update, counted from 1."""
        warmup = min(1.0, update / max(1, self.warmup_updates))
        decay = 1.0 - 0.9 * min(1.0, update / self.decay_updates) if self.decay_updates else 1.0
        return self.learning_rate * warmup * decay


class Learner:
    """Holds the optimizer; `update` is the method's one training step."""

    def __init__(self, agent: Agent, config: LearnerConfig, *, generator: torch.Generator) -> None:
        self.agent = agent
        self.config = config
        self.generator = generator
        self.losses: tuple[Loss, ...] = (config.td, config.policy_gradient, config.imitation)
        self.parameters = [p for p in agent.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
        )
        self.updates = 0
        self.skipped_in_a_row = 0
        self.skipped = 0

    def update(self, batch: Batch) -> dict[str, Float[Tensor, ""]]:
        """One gradient step on a batch; numbers worth logging (tensors: reading them is the caller's choice).

        An update whose loss or gradient is not finite changes no parameter and no statistic, and is counted. Raises
        `UserError` after `max_skipped_updates` of them in a row.
        """
        agent, config = self.agent, self.config
        statistics = [*agent.popart.buffers(), *agent.timestep_encoder.normalizer.buffers()]
        statistics_before = [value.clone() for value in statistics]
        agent.train()
        power_iteration(agent.trajectory_encoder)
        features_NF = agent.features(batch)
        agent.timestep_encoder.normalizer.observe(features_NF, batch.real)
        state_ND = agent.encode(features_NF, batch)

        next_q_NKG = agent.target_values(state_ND.detach(), self.generator)
        td_target_NG = config.td.target(batch, next_q_NKG, agent.discounts_G, self.generator)
        agent.popart.update(td_target_NG, batch.valid)
        predictions = agent.predict(state_ND, batch, agent.popart.normalize(td_target_NG), self.generator)

        total = state_ND.new_zeros(())
        metrics: dict[str, Tensor] = {}
        for name, loss in zip(("td", "policy_gradient", "imitation"), self.losses, strict=True):
            output = loss(batch, predictions)
            mean = masked_mean(output.per_token, batch.valid)
            total = total + loss.weight * mean
            metrics |= {
                f"loss/{name}": mean.detach(),
                **{f"loss/{key}": value for key, value in output.metrics.items()},
            }

        self.optimizer.zero_grad()
        total.backward()
        gradient_norm = nn.utils.clip_grad_norm_(self.parameters, config.gradient_clip, foreach=True)
        if not self._step(total.detach(), gradient_norm):
            torch._foreach_copy_(statistics, statistics_before)
        metrics["loss/gradient_norm"] = gradient_norm.detach()
        metrics["value/target_mean"] = masked_mean(td_target_NG[:, -1], batch.valid) / config.td.reward_scale
        metrics["value/popart_deviation"] = agent.popart.deviation_G[-1] / config.td.reward_scale
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next update depends on."""
        return {
            "agent": self.agent.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "updates": self.updates,
            "skipped": self.skipped,
            "skipped_in_a_row": self.skipped_in_a_row,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict`."""
        self.agent.load_state_dict(state["agent"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"])
        self.updates = state["updates"]
        self.skipped = state["skipped"]
        self.skipped_in_a_row = state["skipped_in_a_row"]

    def _step(self, loss: Tensor, gradient_norm: Tensor) -> bool:
        """Move the parameters, if loss and gradient are finite; whether they were."""
        self.updates += 1
        if not torch.isfinite(loss + gradient_norm):
            self.skipped += 1
            self.skipped_in_a_row += 1
            if self.skipped_in_a_row >= self.config.max_skipped_updates:
                raise UserError(
                    f"{self.skipped_in_a_row} updates in a row had a loss or gradient that is not finite: "
                    "look for huge rewards or observations, or lower --learner.learning-rate"
                )
            return False
        self.skipped_in_a_row = 0
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.learning_rate_at(self.updates)
        self.optimizer.step()
        self.agent.update_targets(self.config.target_rate)
        return True
