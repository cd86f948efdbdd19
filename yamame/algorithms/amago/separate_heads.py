"""Actor and critics of one more gamma, which share no layer with those of the others.

Differs from the paper, whose gammas share all layers. A gamma close to 1 counts late rewards in full, but its targets
carry the noise of whole trials, which made the policies of the other gammas worse in shared layers (docs/log.md).
Targets are means over critics: the pessimism of a minimum in each of many steps made late rewards look smaller. Values
that differ by late rewards are told apart late, when a policy by the gradient of the softmax would hardly change any
more: that of a Discrete action has the gradient of replicator dynamics. It has neither the loss of the world model nor
`extra_losses`.
"""

import copy
from dataclasses import replace

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from yamame.algorithms.amago.heads import Heads
from yamame.algorithms.amago.heads_learner import HeadsLearner
from yamame.algorithms.amago.losses.filtered_bc import FilteredBCLoss
from yamame.algorithms.amago.losses.policy_gradient import PolicyGradientLoss
from yamame.algorithms.amago.losses.td import TDLoss
from yamame.algorithms.amago.moving_copies import MovingCopies
from yamame.algorithms.base import Metrics
from yamame.algorithms.optimizer import ClippedAdamW
from yamame.data.actions import PolicyActionSpace
from yamame.data.batch import Batch
from yamame.distributed_context import SINGLE_PROCESS, DistributedContext
from yamame.nets.compute import Compute
from yamame.nets.heads.actor import Actor, ActorConfig
from yamame.nets.heads.critic import CriticConfig

UPDATE_INTERVAL = 8
"""Updates of the agent for each update of the separate heads, which takes a third of the time."""
_NUM_CRITICS = 2
"""Both are in every target, so that none is drawn and the random numbers of other updates stay the same."""


class SeparateHeads(Heads):
    """Actor and critics of one gamma.

    Args:
        actor: Sizes of the actor.
        critic: Sizes of the critics, of which there are two.
        gamma: The discount factor.
        input_size: Width of the states.
        action_space: Action space of the policy.
        embeds: As in `Heads.build_heads`.
        num_policy_samples: As in `Heads.build_heads`.
        popart: As in `Heads.build_heads`.
        averaged: Add a moving average of the actor, which then acts.
    """

    def __init__(
        self,
        actor: ActorConfig,
        critic: CriticConfig,
        *,
        gamma: float,
        input_size: int,
        action_space: PolicyActionSpace,
        embeds: bool,
        num_policy_samples: int,
        popart: bool,
        averaged: bool,
    ) -> None:
        super().__init__()
        self.gamma = gamma
        self.build_heads(
            replace(actor, gradient="replicator"),
            replace(critic, num_critics=_NUM_CRITICS),
            gammas=(gamma,),
            input_size=input_size,
            action_space=action_space,
            embeds=embeds,
            num_policy_samples=num_policy_samples,
            popart=popart,
        )
        self.averaged_actor = copy.deepcopy(self.actor).requires_grad_(False) if averaged else None

    @property
    def acting_actor(self) -> Actor:
        """The actor whose weights act: its moving average if there is one."""
        return self.actor if self.averaged_actor is None else self.averaged_actor


class SeparateLearner:
    """Trains `SeparateHeads` on the states of every `UPDATE_INTERVAL`-th update of the agent, by its own optimizer.

    Its actions are made from the noise of the acting gamma, so that it draws no random numbers. There is no weight
    decay, with which values that differ by a tenth over a whole trial are not told apart (docs/log.md).

    Args:
        heads: On the device of the agent.
        td: Loss of the critics, and the definition of their targets.
        policy_gradient: Loss of the actor.
        filtered_bc: Loss of the actor.
        compute: As in `HeadsLearner`.
        max_grad_norm: As in `LearnerConfig`.
        distributed: This process among the learners.
    """

    def __init__(
        self,
        heads: SeparateHeads,
        *,
        td: TDLoss,
        policy_gradient: PolicyGradientLoss,
        filtered_bc: FilteredBCLoss,
        compute: Compute,
        max_grad_norm: float,
        distributed: DistributedContext = SINGLE_PROCESS,
    ) -> None:
        self._heads, self._distributed = heads, distributed
        self._learner = HeadsLearner(
            heads,
            td=replace(td, num_critics_in_target=_NUM_CRITICS),
            losses=(td, policy_gradient, filtered_bc),
            is_pessimistic=False,
            policy_gradient=policy_gradient.weight > 0,
            compute=compute,
        )
        self.optimizer = ClippedAdamW(
            [parameter for parameter in heads.parameters() if parameter.requires_grad],
            weight_decay=0.0,
            max_grad_norm=max_grad_norm,
        )
        self._targets, self._averages = heads.targets(), None
        if heads.averaged_actor is not None:
            self._averages = MovingCopies([heads.averaged_actor], [heads.actor], with_buffers=True)

    def update(
        self,
        batch: Batch,
        state_ND: Float[Tensor, "N D"],
        *,
        target_noise_NGA: Shaped[Tensor, "N G _"] | None,
        noise_NGA: Shaped[Tensor, "N G _"] | None,
        generator: torch.Generator,
        num_transitions: Float[Tensor, ""],
        tau: float,
        averaging_rate: float,
    ) -> Metrics:
        """Make one gradient step; return metrics. A step whose loss or gradient is not finite changes nothing.

        Args:
            batch: On the device of the heads.
            state_ND: States without gradient.
            target_noise_NGA: Noise of the target networks' actions of all gammas of the agent.
            noise_NGA: That of `Heads.policy_noise`.
            generator: That of the learner, of which no number is drawn.
            num_transitions: Those of all ranks' batches.
            tau: Target network update rate.
            averaging_rate: Update rate of the averages.
        """
        heads = self._heads
        td_target_N1 = self._learner.td_target(batch, state_ND, _of_last_gamma(target_noise_NGA), generator)
        stats_before = [value.clone() for value in heads.value_code.buffers()]
        heads.value_code.update(td_target_N1, batch.loss_mask, self._distributed)
        self.optimizer.zero_grad()
        total, _, _ = self._learner.backward(
            batch,
            state_ND,
            heads.value_code.normalize(td_target_N1),
            None,
            noise=_of_last_gamma(noise_NGA),
            num_transitions=num_transitions,
        )
        self._distributed.all_reduce_sum_(*self.optimizer.grads_to_sum(self._distributed), total)
        _, finite = self.optimizer.step(total)
        self._targets.update(tau * finite.to(total.dtype))
        if self._averages is not None:
            self._averages.update(averaging_rate * finite.to(total.dtype))
        for value, before in zip(heads.value_code.buffers(), stats_before, strict=True):
            value.copy_(torch.where(finite, value, before))
        heads.absorb_value_scale()
        return {"loss/separate_gamma": total}


def _of_last_gamma(noise_NGA: Shaped[Tensor, "N G _"] | None) -> Shaped[Tensor, "N 1 _"] | None:
    return None if noise_NGA is None else noise_NGA[:, -1:]
