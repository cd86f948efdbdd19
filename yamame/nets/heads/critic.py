"""Critic heads: an ensemble of K critics, each with a value for every gamma.

A critic gives Z outputs for each value, which its value code decodes.
"""

from dataclasses import dataclass, field
from itertools import pairwise

import torch
from gymnasium import spaces
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from yamame.data.actions import PolicyActionSpace, action_size, num_choices
from yamame.errors import ConfigFieldError, check_range
from yamame.nets.action_embedding import EMBEDDING_SIZE, ActionEmbedding
from yamame.nets.blocks import (
    Activation,
    EnsembleLinear,
    concat_one_hot,
    get_activation,
    in_float32,
    shared_input_linear,
)
from yamame.nets.heads.actor import PolicyDistribution
from yamame.nets.heads.distributions import CategoricalPolicy
from yamame.nets.heads.popart import PopArtConfig
from yamame.nets.heads.replicator import replicator_expectation
from yamame.nets.heads.value_code import ValueCode, ValueCodeConfig


@dataclass(frozen=True, kw_only=True)
class CriticConfig:
    """Sizes of the critics."""

    num_critics: int = 4
    """Number of independent critics."""
    hidden_sizes: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers; at least one."""
    activation: Activation = "leaky_relu"
    """Activation of the hidden layers."""
    value_code: ValueCodeConfig = field(default_factory=PopArtConfig)
    """Encoding of values: scalars with PopArt, or another `ValueCodeConfig`."""

    def __post_init__(self) -> None:
        check_range(self, "num_critics", "hidden_sizes", ge=1)
        if not self.hidden_sizes:
            raise ConfigFieldError(self, "hidden_sizes", "must have at least one hidden layer, got ()")

    def build(
        self,
        *,
        input_size: int,
        action_space: PolicyActionSpace,
        gammas_G: Float[Tensor, "G"],
        num_outputs: int = 1,
        embeds: bool = False,
        samples: bool = False,
    ) -> "Critic":
        """Return the critics for an action space, with `num_outputs` (Z) outputs for each value.

        With `embeds`, discrete actions are embedded inputs; with `samples`, every kind of action is an input.
        """
        if isinstance(action_space, spaces.Discrete) and not (embeds or samples):
            return DiscreteCritic(
                self,
                input_size=input_size,
                num_actions=int(action_space.n),
                num_gammas=len(gammas_G),
                num_outputs=num_outputs,
            )
        return ActionInputCritic(
            self,
            input_size=input_size,
            action_space=action_space,
            gammas_G=gammas_G,
            num_outputs=num_outputs,
            embeds=embeds,
        )


class DiscreteCritic(nn.Module):
    """Q(s, .) of all actions in one pass; Q(s, pi) is the exact expectation. Paper: appendix A, equation 3."""

    def __init__(
        self, config: CriticConfig, *, input_size: int, num_actions: int, num_gammas: int, num_outputs: int
    ) -> None:
        super().__init__()
        self.num_gammas, self.num_outputs = num_gammas, num_outputs
        self.layers: list[EnsembleLinear] = _layers(config, input_size, num_gammas * num_actions * num_outputs)  # type: ignore[assignment]
        self.activation = get_activation(config.activation)

    def forward(self, state_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N K G A Z"]:
        """Return the outputs for every action."""
        first, *rest = self.layers
        x_KNH = shared_input_linear(state_ND, first.weight, first.bias)
        for layer in rest[:-1]:
            x_KNH = layer(self.activation(x_KNH))
        output_KNO = in_float32(rest[-1], self.activation(x_KNH))
        return output_KNO.unflatten(2, (self.num_gammas, -1, self.num_outputs)).movedim(0, 1)

    def q_values(
        self,
        state_ND: Float[Tensor, "N D"],
        action: Shaped[Tensor, "N"],
        policy: PolicyDistribution,
        noise_NGA: Float[Tensor, "N G A"] | None,
        value_code: ValueCode,
    ) -> tuple[Float[Tensor, "N K G Z"], Float[Tensor, "N K G"]]:
        """Return the outputs for (s, a) and the critic values Q(s, pi).

        Q(s, pi) has a gradient to the policy alone, since the outputs are detached. It is exact and needs no noise.
        """
        output_NKGAZ = self(state_ND)
        num_critics, num_gammas, _, num_outputs = output_NKGAZ.shape[1:]
        index = action[:, None, None, None, None].expand(-1, num_critics, num_gammas, 1, num_outputs)
        q_policy = _expectation(value_code.decode(output_NKGAZ.detach()), policy)
        return output_NKGAZ.gather(3, index).squeeze(3), q_policy

    def policy_q(
        self,
        state_ND: Float[Tensor, "N D"],
        policy: PolicyDistribution,
        noise_NGA: Float[Tensor, "N G A"] | None,
        value_code: ValueCode,
    ) -> Float[Tensor, "N K G"]:
        """Return the critic values Q(s, pi), exact."""
        return _expectation(value_code.decode(self(state_ND)), policy)

    def frozen_policy_q(
        self,
        state_ND: Float[Tensor, "N D"],
        policy: PolicyDistribution,
        noise_NGA: Float[Tensor, "N G A"] | None,
        value_code: ValueCode,
    ) -> Float[Tensor, "N K G"]:
        """Return the critic values Q(s, pi), with a gradient to the policy alone."""
        return _expectation(value_code.decode(self(state_ND).detach()), policy)

    @torch.no_grad()
    def absorb_scale(
        self, scale_G: Float[Tensor, "G"], shift_G: Float[Tensor, "G"]
    ) -> tuple[Float[Tensor, "G"], Float[Tensor, "G"]]:
        """Replace every output x of a gamma by `scale_G` x + `shift_G`; return the scale and shift that remain."""
        last = self.layers[-1]
        repeats = last.bias.shape[-1] // self.num_gammas
        scale, shift = scale_G.repeat_interleave(repeats), shift_G.repeat_interleave(repeats)
        last.weight.mul_(scale)
        last.bias.mul_(scale).add_(shift)
        return torch.ones_like(scale_G), torch.zeros_like(shift_G)


class ActionInputCritic(nn.Module):
    """Q(s, gamma, a) of action vectors: continuous actions, or discrete choices as one-hot vectors or embedded.

    The gamma is an input, so that each gamma evaluates its own action. The first layer is applied in three parts
    (state, action, feature of gamma), so that the state's part is computed once for all gammas; the function is
    that of a linear layer on their concatenation. Continuous actions are clamped to +-0.999.

    The feature of a gamma is log(1 + 1 / (1 - gamma)), as in the authors' later code. Differs from their first code:
    10 log gamma, which hardly separates long horizons.
    """

    def __init__(
        self,
        config: CriticConfig,
        *,
        input_size: int,
        action_space: PolicyActionSpace,
        gammas_G: Float[Tensor, "G"],
        num_outputs: int,
        embeds: bool = False,
    ) -> None:
        super().__init__()
        self.num_choices = num_choices(action_space)
        self.embedding = ActionEmbedding(self.num_choices) if embeds else None
        """One table for all critics; None: action vectors are passed."""
        width = EMBEDDING_SIZE if embeds else action_size(action_space)
        self.layers: list[EnsembleLinear] = _layers(config, input_size + width + 1, num_outputs)  # type: ignore[assignment]
        self.activation = get_activation(config.activation)
        self.split = (input_size, width, 1)
        self.feature_G: Tensor
        self.register_buffer("feature_G", torch.log1p(1.0 / (1.0 - gammas_G)), persistent=False)

    def forward(
        self, state_ND: Float[Tensor, "N D"], action_NGA: Shaped[Tensor, "N #G _"], *, detach_weights: bool = False
    ) -> Float[Tensor, "N K G Z"]:
        """Return the outputs for one action per gamma: a vector, or the choices of all components.

        With `detach_weights`, gradients reach the actions but not the critics.
        """
        if self.embedding is not None:
            action_NGA = self.embedding(action_NGA, detach_weights=detach_weights)
        elif not self.num_choices:
            action_NGA = action_NGA.clamp(-0.999, 0.999)
        elif not action_NGA.is_floating_point():
            one_hot = concat_one_hot(action_NGA.flatten(0, 1), self.num_choices)
            action_NGA = one_hot.unflatten(0, action_NGA.shape[:2]).to(state_ND.dtype)
        first = self.layers[0]
        weight, bias = (first.weight.detach(), first.bias.detach()) if detach_weights else (first.weight, first.bias)
        state_weight, action_weight, feature_weight = weight.split(self.split, dim=1)
        state_KN1H = shared_input_linear(state_ND, state_weight, bias)[:, :, None]
        action_KNGH = torch.einsum("nga,kah->kngh", action_NGA, action_weight)
        feature_K1GH = (self.feature_G.to(weight.dtype)[:, None] * feature_weight)[:, None].to(action_KNGH.dtype)
        x_KNGH = self.activation(state_KN1H + action_KNGH + feature_K1GH)
        num_tokens, num_gammas = x_KNGH.shape[1:3]
        x_KMH = x_KNGH.flatten(1, 2)
        for layer in self.layers[1:-1]:
            x_KMH = self.activation(layer(x_KMH, detach_weights=detach_weights))
        output_KMZ = in_float32(self.layers[-1], x_KMH, detach_weights=detach_weights)
        return output_KMZ.unflatten(1, (num_tokens, num_gammas)).movedim(0, 1)

    def q_values(
        self,
        state_ND: Float[Tensor, "N D"],
        action: Shaped[Tensor, "N *components"],
        policy: PolicyDistribution,
        noise_NGA: Float[Tensor, "N G _"] | None,
        value_code: ValueCode,
    ) -> tuple[Float[Tensor, "N K G Z"], Float[Tensor, "N K G"]]:
        """Return the outputs for (s, a) and the critic values Q(s, a_pi), with one action a_pi made from the noise.

        Q(s, a_pi) has a gradient to the policy alone.
        """
        action_NA = action.reshape(len(action), len(self.num_choices)) if self.num_choices else action
        q_policy = self.frozen_policy_q(state_ND, policy, noise_NGA, value_code)
        return self(state_ND, action_NA[:, None]), q_policy

    def frozen_policy_q(
        self,
        state_ND: Float[Tensor, "N D"],
        policy: PolicyDistribution,
        noise_NGA: Float[Tensor, "N G _"] | None,
        value_code: ValueCode,
    ) -> Float[Tensor, "N K G"]:
        """Return the critic values Q(s, a_pi) of the action made from the noise, with a gradient to the policy only."""
        assert not isinstance(policy, CategoricalPolicy)
        state = state_ND.detach()
        return policy.expected_value(
            lambda action_NGA: value_code.decode(self(state, action_NGA, detach_weights=True)), noise_NGA
        )

    def policy_q(
        self,
        state_ND: Float[Tensor, "N D"],
        policy: PolicyDistribution,
        noise_NGA: Float[Tensor, "N G _"] | None,
        value_code: ValueCode,
    ) -> Float[Tensor, "N K G"]:
        """Return the critic values Q(s, a_pi) of the action made from the noise."""
        assert not isinstance(policy, CategoricalPolicy)
        return value_code.decode(self(state_ND, policy.action_vector(noise_NGA)))

    @torch.no_grad()
    def absorb_scale(
        self, scale_G: Float[Tensor, "G"], shift_G: Float[Tensor, "G"]
    ) -> tuple[Float[Tensor, "G"], Float[Tensor, "G"]]:
        """Multiply every output by the geometric mean of `scale_G`; return the scale and shift that remain.

        All gammas share the last layer, so that their differences cannot move into it. The mean is rounded to a
        power of 2, by which products are exact.
        """
        mean = scale_G.log2().mean().round().exp2()
        self.layers[-1].weight.mul_(mean)
        self.layers[-1].bias.mul_(mean)
        return scale_G / mean, shift_G


Critic = DiscreteCritic | ActionInputCritic


def _layers(config: CriticConfig, input_size: int, output_size: int) -> nn.ModuleList:
    widths = (input_size, *config.hidden_sizes, output_size)
    return nn.ModuleList(EnsembleLinear(config.num_critics, a, b) for a, b in pairwise(widths))


def _expectation(q_NKGA: Float[Tensor, "N K G A"], policy: PolicyDistribution) -> Float[Tensor, "N K G"]:
    assert isinstance(policy, CategoricalPolicy)
    if policy.replicator and policy.log_softmax_NGA.requires_grad:
        return replicator_expectation(q_NKGA, policy)
    return (q_NKGA * policy.probability_NGA[:, None]).sum(-1)
