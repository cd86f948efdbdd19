"""Actor head: a policy for every discount from one network."""

import copy
from dataclasses import dataclass

import torch
from gymnasium import spaces
from jaxtyping import Bool, Float
from torch import Tensor, nn

from yamame.data.actions import PolicyActionSpace, action_size, num_choices
from yamame.errors import ConfigFieldError, check_range
from yamame.nets.blocks import MLP, Activation, at_least_float32
from yamame.nets.heads.distributions import CategoricalPolicy, DiscreteComponents, FactoredPolicy, TanhGaussianPolicy

PolicyDistribution = CategoricalPolicy | FactoredPolicy | TanhGaussianPolicy
"""The policies of the three kinds of action: Discrete, MultiDiscrete, Box."""


@dataclass(frozen=True, kw_only=True)
class ActorConfig:
    """Sizes of the actor."""

    hidden_sizes: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers."""
    probability_clip: tuple[float, float] = (0.001, 0.99)
    """Smallest and largest probability of a discrete action, among the allowed ones and in each component by itself;
    the lower one must be positive."""
    activation: Activation = "leaky_relu"
    """Activation of the hidden layers."""

    def __post_init__(self) -> None:
        check_range(self, "hidden_sizes", ge=1)
        check_range(self, "probability_clip", gt=0, le=1)
        low, high = self.probability_clip
        if low >= high:
            raise ConfigFieldError(
                self, "probability_clip", f"has its largest probability {high} below its smallest, {low}"
            )


class Actor(nn.Module):
    """MLP from a state to the parameters of G action distributions. Source: paper appendix A."""

    def __init__(self, config: ActorConfig, *, inputs: int, action_space: PolicyActionSpace, gammas: int) -> None:
        super().__init__()
        self.discrete = isinstance(action_space, spaces.Discrete)
        several = isinstance(action_space, spaces.MultiDiscrete)
        self.components = DiscreteComponents(num_choices(action_space)) if several else None
        self.action_size = action_size(action_space)
        self.clip = config.probability_clip
        self.gammas = gammas
        outputs = self.action_size if self.discrete or several else 2 * self.action_size
        self.mlp = MLP(inputs, config.hidden_sizes, gammas * outputs, config.activation)

    def forward(self, state_ND: Float[Tensor, "N D"], mask_NA: Bool[Tensor, "N A"] | None = None) -> PolicyDistribution:
        """The policy of every discount, over what the mask allows; None: everything."""
        raw_NGA = at_least_float32(self.mlp(state_ND)).unflatten(1, (self.gammas, -1))
        if self.discrete:
            return CategoricalPolicy.from_logits(raw_NGA, self.clip, None if mask_NA is None else mask_NA[:, None])
        if self.components is not None:
            return FactoredPolicy.from_logits(raw_NGA, self.components, self.clip, mask_NA)
        return TanhGaussianPolicy.from_outputs(raw_NGA)

    def sample_noise(self, state_ND: Float[Tensor, "N D"], generator: torch.Generator) -> Float[Tensor, "N G A"] | None:
        """The chance in one action for every token and discount, for `action_vector`: normal, or Gumbel for several
        choices at once; None where values are exact expectations (discrete).

        Drawn apart from `forward`, so that it does not matter in how many pieces that goes through the tokens.
        """
        if self.discrete:
            return None
        shape = (state_ND.shape[0], self.gammas, self.action_size)
        if self.components is None:
            return torch.randn(shape, generator=generator, dtype=state_ND.dtype, device=state_ND.device)
        clocks = torch.empty(shape, dtype=state_ND.dtype, device=state_ND.device).exponential_(generator=generator)
        return -clocks.clamp(min=torch.finfo(clocks.dtype).tiny).log()

    @torch.no_grad()
    def for_gamma(self, gamma_index: int) -> "Actor":
        """A copy that computes the policy of one discount alone (an index): all that acting needs."""
        single = copy.deepcopy(self)
        output = self.mlp.output
        kept = output.weight.unflatten(0, (self.gammas, -1))[gamma_index]
        single.mlp.output = nn.Linear(output.in_features, kept.shape[0], dtype=kept.dtype, device=kept.device)
        single.mlp.output.weight.copy_(kept)
        single.mlp.output.bias.copy_(output.bias.unflatten(0, (self.gammas, -1))[gamma_index])
        single.gammas = 1
        return single
