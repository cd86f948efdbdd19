"""Critic heads: an ensemble of K critics, each with a value for every discount."""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
from gymnasium import spaces
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from yamame.data.actions import PolicyActionSpace, action_size, num_choices
from yamame.errors import ConfigFieldError, check_range
from yamame.nets.blocks import (
    Activation,
    EnsembleLinear,
    at_least_float32,
    concat_one_hot,
    get_activation,
    shared_input_linear,
)
from yamame.nets.heads.actor import PolicyDistribution
from yamame.nets.heads.distributions import CategoricalPolicy


@dataclass(frozen=True, kw_only=True)
class CriticConfig:
    """Sizes of the critics."""

    num_critics: int = 4
    """Number of independent critics."""
    hidden_sizes: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers; at least one."""
    activation: Activation = "leaky_relu"
    """Activation of the hidden layers."""

    def __post_init__(self) -> None:
        check_range(self, "num_critics", "hidden_sizes", ge=1)
        if not self.hidden_sizes:
            raise ConfigFieldError(self, "hidden_sizes", "is empty: give the width of at least one hidden layer")

    def build(self, *, input_size: int, action_space: PolicyActionSpace, gammas_G: Float[Tensor, "G"]) -> "Critic":
        """The critics for an action space."""
        if isinstance(action_space, spaces.Discrete):
            return DiscreteCritic(self, inputs=input_size, actions=int(action_space.n), gammas=len(gammas_G))
        return ActionInputCritic(self, inputs=input_size, action_space=action_space, gammas_G=gammas_G)


class DiscreteCritic(nn.Module):
    """Q(s, .) of all actions in one pass; Q(s, pi) is the exact expectation. Source: paper appendix A, equation 3."""

    def __init__(self, config: CriticConfig, *, inputs: int, actions: int, gammas: int) -> None:
        super().__init__()
        self.gammas = gammas
        self.layers: list[EnsembleLinear] = _layers(config, inputs, gammas * actions)  # type: ignore[assignment]
        self.activation = get_activation(config.activation)

    def forward(self, state_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N K G A"]:
        """Raw values of every action."""
        first, *rest = self.layers
        x_KNH = shared_input_linear(state_ND, first.weight, first.bias)
        for layer in rest:
            x_KNH = layer(self.activation(x_KNH))
        return at_least_float32(x_KNH).unflatten(2, (self.gammas, -1)).movedim(0, 1)

    def q_values(
        self,
        state_ND: Float[Tensor, "N D"],
        action: Shaped[Tensor, "N"],
        policy: PolicyDistribution,
        noise_NGA: Float[Tensor, "N G A"] | None,
    ) -> tuple[Float[Tensor, "N K G"], Float[Tensor, "N K G"]]:
        """(Q(s, a), Q(s, pi)). The second carries gradient to the policy alone, by detaching the one pass of Q.

        The expectation is exact: it needs no noise.
        """
        q_NKGA = self(state_ND)
        index = action[:, None, None, None].expand(-1, *q_NKGA.shape[1:3], 1)
        return q_NKGA.gather(3, index).squeeze(3), _expectation(q_NKGA.detach(), policy)

    def policy_q(
        self, state_ND: Float[Tensor, "N D"], policy: PolicyDistribution, noise_NGA: Float[Tensor, "N G A"] | None
    ) -> Float[Tensor, "N K G"]:
        """Q(s, pi), exact."""
        return _expectation(self(state_ND), policy)


class ActionInputCritic(nn.Module):
    """Q(s, gamma, a) of continuous actions or of several discrete choices, as vectors.

    The discount is an input too, so each discount's own action can be judged.

    The first layer is applied in three parts (state, action, discount feature), so that the state's share is
    computed once for all discounts; the function is that of a linear layer on their concatenation. The discount
    feature is log(1 + 1/(1 - gamma)) as in the authors' later code (the first one used 10 log gamma, which hardly
    tells long horizons apart). Continuous actions are clamped to +-0.999.
    """

    def __init__(
        self, config: CriticConfig, *, inputs: int, action_space: PolicyActionSpace, gammas_G: Float[Tensor, "G"]
    ) -> None:
        super().__init__()
        self.num_choices = num_choices(action_space)
        actions = action_size(action_space)
        self.layers: list[EnsembleLinear] = _layers(config, inputs + actions + 1, 1)  # type: ignore[assignment]
        self.activation = get_activation(config.activation)
        self.split = (inputs, actions, 1)
        self.feature_G: Tensor
        self.register_buffer("feature_G", torch.log1p(1.0 / (1.0 - gammas_G)), persistent=False)

    def forward(
        self, state_ND: Float[Tensor, "N D"], action_NGA: Float[Tensor, "N #G A"], *, detach_weights: bool = False
    ) -> Float[Tensor, "N K G"]:
        """Raw values of one action vector a discount. `frozen`: gradients reach the actions but not the critics."""
        if not self.num_choices:
            action_NGA = action_NGA.clamp(-0.999, 0.999)
        first = self.layers[0]
        weight, bias = (first.weight.detach(), first.bias.detach()) if detach_weights else (first.weight, first.bias)
        of_state, of_action, of_feature = weight.split(self.split, dim=1)
        state_KN1H = shared_input_linear(state_ND, of_state, bias)[:, :, None]
        action_KNGH = torch.einsum("nga,kah->kngh", action_NGA, of_action)
        feature_K1GH = (self.feature_G.to(weight.dtype)[:, None] * of_feature)[:, None].to(action_KNGH.dtype)
        x_KNGH = self.activation(state_KN1H + action_KNGH + feature_K1GH)
        num_tokens, discounts = x_KNGH.shape[1:3]
        x_KMH = x_KNGH.flatten(1, 2)
        for layer in self.layers[1:-1]:
            x_KMH = self.activation(layer(x_KMH, detach_weights=detach_weights))
        q_KM = self.layers[-1](x_KMH, detach_weights=detach_weights).squeeze(2)
        return at_least_float32(q_KM).unflatten(1, (num_tokens, discounts)).movedim(0, 1)

    def q_values(
        self,
        state_ND: Float[Tensor, "N D"],
        action: Shaped[Tensor, "N _"],
        policy: PolicyDistribution,
        noise_NGA: Float[Tensor, "N G A"] | None,
    ) -> tuple[Float[Tensor, "N K G"], Float[Tensor, "N K G"]]:
        """(Q(s, a), Q(s, a_pi)) with the one action a_pi that the noise makes; the second teaches the policy alone."""
        assert not isinstance(policy, CategoricalPolicy) and noise_NGA is not None
        action_NA = concat_one_hot(action, self.num_choices).to(noise_NGA.dtype) if self.num_choices else action
        q_policy = policy.expected_value(partial(self, state_ND.detach(), detach_weights=True), noise_NGA)
        return self(state_ND, action_NA[:, None]), q_policy

    def policy_q(
        self, state_ND: Float[Tensor, "N D"], policy: PolicyDistribution, noise_NGA: Float[Tensor, "N G A"] | None
    ) -> Float[Tensor, "N K G"]:
        """Q(s, a_pi) with the one action that the noise makes."""
        assert not isinstance(policy, CategoricalPolicy) and noise_NGA is not None
        return self(state_ND, policy.action_vector(noise_NGA))


Critic = DiscreteCritic | ActionInputCritic


def _layers(config: CriticConfig, inputs: int, outputs: int) -> nn.ModuleList:
    widths = (inputs, *config.hidden_sizes, outputs)
    return nn.ModuleList(EnsembleLinear(config.num_critics, a, b) for a, b in pairwise(widths))


def _expectation(q_NKGA: Float[Tensor, "N K G A"], policy: PolicyDistribution) -> Float[Tensor, "N K G"]:
    assert isinstance(policy, CategoricalPolicy)
    return (q_NKGA * policy.probability_NGA[:, None]).sum(-1)
