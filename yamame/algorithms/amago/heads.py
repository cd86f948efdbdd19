"""`Heads`: actor and critics of some gammas on the same states, with their target networks."""

import copy
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from yamame.algorithms.amago.losses.td import TargetValues
from yamame.algorithms.amago.losses.world_model import WorldModel
from yamame.algorithms.amago.moving_copies import MovingCopies
from yamame.data.actions import PolicyActionSpace
from yamame.data.batch import Batch, Predictions
from yamame.nets.heads.actor import Actor, ActorConfig, detached
from yamame.nets.heads.critic import CriticConfig


class Heads(nn.Module):
    """Maps states to predictions. Paper: section 3. Call `build_heads` once."""

    def __init__(self) -> None:
        super().__init__()
        self.world_model: WorldModel | None = None

    def build_heads(
        self,
        actor: ActorConfig,
        critic: CriticConfig,
        *,
        gammas: Sequence[float],
        input_size: int,
        action_space: PolicyActionSpace,
        embeds: bool,
        num_policy_samples: int,
        popart: bool,
    ) -> None:
        """Add the networks.

        Args:
            actor: Sizes of the actor.
            critic: Sizes of the critics.
            gammas: The G discount factors.
            input_size: Width of the states.
            action_space: Action space of the policy.
            embeds: Choices of actions are embedded.
            num_policy_samples: As in `AgentConfig`.
            popart: Normalize values with PopArt.
        """
        self.num_policy_samples = num_policy_samples
        self.gammas_G: Tensor
        self.register_buffer("gammas_G", torch.tensor(gammas), persistent=False)
        samples = num_policy_samples > 0
        self.actor = Actor(
            actor,
            input_size=input_size,
            action_space=action_space,
            num_gammas=len(gammas),
            embeds=embeds,
            samples=samples,
        )
        self.value_code = critic.value_code.build(len(gammas), normalize=popart)
        self.critic = critic.build(
            input_size=input_size,
            action_space=action_space,
            gammas_G=self.gammas_G,
            num_outputs=self.value_code.num_outputs,
            embeds=embeds,
            samples=samples,
        )
        self.target_actor = copy.deepcopy(self.actor).requires_grad_(False)
        self.target_critic = copy.deepcopy(self.critic).requires_grad_(False)

    @torch.no_grad()
    def target_values(
        self,
        state_ND: Float[Tensor, "N D"],
        mask_NA: Bool[Tensor, "N A"] | None,
        noise_NGA: Float[Tensor, "N G _"] | None,
        action: Shaped[Tensor, "N ..."] | None = None,
    ) -> TargetValues:
        """Return Q(s, pi(s)) of the target networks for each critic and gamma, in units of scaled reward.

        With the actions of the data, also their values and log-probabilities. The noise is that of
        `Actor.sample_noise`.
        """
        policy, code = self.target_actor(state_ND, mask_NA), self.value_code
        if action is None:
            q_policy = self.target_critic.policy_q(state_ND, policy, noise_NGA, code)
            return TargetValues(code.denormalize(q_policy), None, None)
        output, q_policy = self.target_critic.q_values(state_ND, action, policy, noise_NGA, code)
        q_data = code.denormalize(code.decode(output))
        return TargetValues(code.denormalize(q_policy), q_data, policy.executed_log_prob(action))

    def policy_noise(self, state_ND: Float[Tensor, "N D"], generator: torch.Generator) -> Float[Tensor, "N G _"] | None:
        """Return the noise of `predict`: that of `Actor.sample_noise` for each sample, side by side."""
        first = self.actor.sample_noise(state_ND, generator)
        if first is None or self.num_policy_samples <= 1:
            return first
        others = [self.actor.sample_noise(state_ND, generator) for _ in range(self.num_policy_samples - 1)]
        return torch.cat([first, *(noise for noise in others if noise is not None)], dim=-1)

    def predict(
        self,
        state_ND: Float[Tensor, "N D"],
        batch: Batch,
        td_target_NG: Float[Tensor, "N G"],
        noise_NGA: Float[Tensor, "N G _"] | None,
        target_delta_NO: Float[Tensor, "N O"] | None = None,
        *,
        policy_gradient: bool = True,
    ) -> Predictions:
        """Return the inputs of the losses, from normalized TD targets and `policy_noise`.

        Without `policy_gradient` the policy's value has no gradient, which takes less time.
        """
        policy = self.actor(state_ND, batch.action_mask)
        valued = policy if policy_gradient else detached(policy)
        first, *others = self._noise_of_samples(noise_NGA)
        output, q_policy = self.critic.q_values(state_ND, batch.action, valued, first, self.value_code)
        for noise in others:
            q_policy = q_policy + self.critic.frozen_policy_q(state_ND, valued, noise, self.value_code)
        if others:
            q_policy = q_policy / (1 + len(others))
        return Predictions(
            log_prob_NG=policy.log_prob(batch.action),
            entropy_NG=policy.entropy(first),
            q_data_NKG=self.value_code.decode(output),
            q_policy_NKG=q_policy,
            td_target_NG=td_target_NG,
            td_loss_NKG=self.value_code.loss(output, td_target_NG),
            q_scale_G=self.value_code.scale_G.clone(),
            q_shift_G=self.value_code.shift_G.clone(),
            predicted_delta_NO=None if self.world_model is None else self.world_model(state_ND, batch.action),
            target_delta_NO=target_delta_NO,
        )

    @torch.no_grad()
    def absorb_value_scale(self) -> None:
        """Move the scale of the value code into both kinds of critics, if so configured. No value changes."""
        code = self.value_code
        if code.rescale_critics:
            scale_G, shift_G = code.scale_G.clone(), code.shift_G.clone()
            self.target_critic.absorb_scale(scale_G, shift_G)
            remaining_scale_G, remaining_shift_G = self.critic.absorb_scale(scale_G, shift_G)
            code.scale_G.copy_(remaining_scale_G)
            code.shift_G.copy_(remaining_shift_G)

    def targets(self) -> MovingCopies:
        """Return the target networks: target <- target + rate (online - target)."""
        return MovingCopies([self.target_actor, self.target_critic], [self.actor, self.critic], with_buffers=False)

    def _noise_of_samples(self, noise_NGA: Float[Tensor, "N G _"] | None) -> Sequence[Float[Tensor, "N G _"] | None]:
        if noise_NGA is None or self.num_policy_samples <= 1:
            return (noise_NGA,)
        return [noise.contiguous() for noise in noise_NGA.chunk(self.num_policy_samples, dim=-1)]
