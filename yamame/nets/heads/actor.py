"""Actor head: one network with a policy for every gamma."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import torch
from gymnasium import spaces
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from yamame.data.actions import PolicyActionSpace, action_size, num_choices
from yamame.errors import ConfigFieldError, check_range
from yamame.nets.blocks import MLP, Activation
from yamame.nets.heads.distributions import (
    CategoricalPolicy,
    DiscreteComponents,
    FactoredPolicy,
    SampledCategoricalPolicy,
)
from yamame.nets.heads.tanh_gaussian import TanhGaussianPolicy

PolicyDistribution = CategoricalPolicy | SampledCategoricalPolicy | FactoredPolicy | TanhGaussianPolicy
"""Policies for Discrete (with few or many choices), MultiDiscrete and Box action spaces."""
NO_CLIP = (0.0, 1.0)
"""Minimum and maximum of probabilities that are not clipped."""
MANY_CHOICES = 256
"""Choices of a component above which the minimum probability of each gets smaller, so that their sum does not grow."""


def distribution_tensors(policy: PolicyDistribution) -> dict[str, Shaped[Tensor, "..."]]:
    """Return the tensors that a distribution consists of, by name."""
    inner = policy.categorical if isinstance(policy, FactoredPolicy) else policy
    values = {each.name: getattr(inner, each.name) for each in fields(inner)}
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}


def detached(policy: PolicyDistribution) -> PolicyDistribution:
    """Return the distribution without gradients."""
    return with_tensors(policy, {name: tensor.detach() for name, tensor in distribution_tensors(policy).items()})


def with_tensors(policy: PolicyDistribution, tensors: Mapping[str, Any]) -> PolicyDistribution:
    """Return the distribution with other `distribution_tensors`, such as copies on another device."""
    if isinstance(policy, FactoredPolicy):
        return replace(policy, categorical=replace(policy.categorical, **tensors))
    return replace(policy, **tensors)


@dataclass(frozen=True, kw_only=True)
class ActorConfig:
    """Sizes of the actor."""

    hidden_sizes: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers."""
    probability_clip: tuple[float, float] = (0.001, 0.99)
    """Minimum and maximum probability of an allowed discrete action, in each component separately. The minimum must be
    positive."""
    clip_evaluation: bool = True
    """Clip the probabilities in evaluations and loaded policies too (paper), not only while collecting. The random
    actions that a clip adds to a policy which is certain cost every trial that a single mistake spoils."""
    activation: Activation = "leaky_relu"
    """Activation of the hidden layers."""
    gradient: Literal["softmax", "replicator"] = "softmax"
    """Gradient of the value of a Discrete policy: that of the softmax (paper), which vanishes where an action is nearly
    certain, or that of replicator dynamics (`replicator.py`)."""

    def __post_init__(self) -> None:
        check_range(self, "hidden_sizes", ge=1)
        check_range(self, "probability_clip", gt=0, le=1)
        low, high = self.probability_clip
        if low >= high:
            raise ConfigFieldError(
                self, "probability_clip", f"must have its minimum below its maximum, got ({low}, {high})"
            )


class Actor(nn.Module):
    """State -> MLP -> parameters of G action distributions. Paper: appendix A.

    Args:
        config: Sizes and the clip of probabilities.
        input_size: Width of the states.
        action_space: Action space of the policy.
        num_gammas: G.
        embeds: Choices of discrete actions, which are many, are embedded in the inputs of critics: these then evaluate
            samples of the policy instead of every choice.
        samples: Critics evaluate samples of a Discrete action in any case, as of other spaces.
    """

    def __init__(
        self,
        config: ActorConfig,
        *,
        input_size: int,
        action_space: PolicyActionSpace,
        num_gammas: int,
        embeds: bool = False,
        samples: bool = False,
    ) -> None:
        super().__init__()
        self.discrete = isinstance(action_space, spaces.Discrete)
        multi_discrete = isinstance(action_space, spaces.MultiDiscrete)
        self.components = DiscreteComponents(num_choices(action_space)) if multi_discrete else None
        self.action_size = action_size(action_space)
        self.clip = config.probability_clip
        self.replicator = config.gradient == "replicator"
        self.embeds = embeds
        self.samples_choices = embeds or (self.discrete and samples)
        """Whether policies are `SampledCategoricalPolicy`, in one or several components."""
        if embeds:
            low, high = config.probability_clip
            self.clip = low * min(1.0, MANY_CHOICES / max(num_choices(action_space))), high
        self.num_gammas = num_gammas
        output_size = self.action_size if self.discrete or multi_discrete else 2 * self.action_size
        self.mlp = MLP(
            input_size, config.hidden_sizes, num_gammas * output_size, config.activation, float32_output=True
        )

    def forward(self, state_ND: Float[Tensor, "N D"], mask_NA: Bool[Tensor, "N A"] | None = None) -> PolicyDistribution:
        """Return the policy of every gamma over the actions that the mask allows (None: all)."""
        raw_NGA = self.mlp(state_ND).unflatten(1, (self.num_gammas, -1))
        if self.discrete:
            allowed_N1A = None if mask_NA is None else mask_NA[:, None]
            if self.samples_choices:
                return SampledCategoricalPolicy.from_logits(raw_NGA, self.clip, allowed_N1A)
            return CategoricalPolicy.from_logits(raw_NGA, self.clip, allowed_N1A, replicator=self.replicator)
        if self.components is not None:
            return FactoredPolicy.from_logits(
                raw_NGA, self.components, self.clip, mask_NA, sampled=self.samples_choices
            )
        return TanhGaussianPolicy.from_outputs(raw_NGA)

    def sample_noise(self, state_ND: Float[Tensor, "N D"], generator: torch.Generator) -> Float[Tensor, "N G _"] | None:
        """Sample the noise of `action_vector` for every token and gamma.

        Normal for Box, Gumbel for MultiDiscrete, uniform for each component if `samples_choices`, and None for Discrete
        otherwise, where values are exact expectations. Sampled separately from `forward`, so that results do not depend
        on the number of chunks.
        """
        if self.samples_choices:
            shape = (state_ND.shape[0], self.num_gammas, self.components.count if self.components else 1)
            return torch.rand(shape, generator=generator, dtype=state_ND.dtype, device=state_ND.device)
        if self.discrete:
            return None
        shape = (state_ND.shape[0], self.num_gammas, self.action_size)
        if self.components is None:
            return torch.randn(shape, generator=generator, dtype=state_ND.dtype, device=state_ND.device)
        clocks = torch.empty(shape, dtype=state_ND.dtype, device=state_ND.device).exponential_(generator=generator)
        return -clocks.clamp(min=torch.finfo(clocks.dtype).tiny).log()

    @torch.no_grad()
    def for_gamma(self, gamma_index: int) -> "Actor":
        """Return a copy with the policy of a single gamma, for acting."""
        weight, bias = (x.unflatten(0, (self.num_gammas, -1))[gamma_index] for x in self.mlp.output.parameters())
        output = nn.Linear(weight.shape[1], weight.shape[0], dtype=weight.dtype, device=weight.device)
        output.weight.copy_(weight)
        output.bias.copy_(bias)
        single = copy.deepcopy(self, {id(self.mlp.output): output})  # the output layer is replaced, not copied
        single.num_gammas = 1
        return single
