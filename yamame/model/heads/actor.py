"""Actor head: a policy for every discount from one network."""

import copy
from dataclasses import dataclass

import torch
from gymnasium import spaces
from jaxtyping import Float
from torch import Tensor, nn

from yamame.model.blocks.mlp import MLP, Activation
from yamame.model.blocks.precision import at_least_float32
from yamame.model.heads.distributions import CategoricalPolicy, PolicyDistribution, TanhGaussianPolicy
from yamame.records.errors import FieldError
from yamame.records.limits import check_limits


@dataclass(frozen=True, kw_only=True)
class ActorConfig:
    """Sizes of the actor."""

    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers."""
    probability_clip: tuple[float, float] = (0.001, 0.99)
    """Smallest and largest probability of a discrete action; the lower one must be positive."""
    activation: Activation = "leaky_relu"
    """Activation of the hidden layers."""

    def __post_init__(self) -> None:
        check_limits(self, "hidden", at_least=1)
        check_limits(self, "probability_clip", above=0, at_most=1)
        low, high = self.probability_clip
        if low >= high:
            raise FieldError(self, "probability_clip", f"has its largest probability {high} below its smallest, {low}")


class Actor(nn.Module):
    """MLP from a state to the parameters of G action distributions. Source: paper appendix A."""

    def __init__(
        self, config: ActorConfig, *, inputs: int, action_space: spaces.Discrete | spaces.Box, discounts: int
    ) -> None:
        super().__init__()
        self.discrete = isinstance(action_space, spaces.Discrete)
        self.action_size = 1 if isinstance(action_space, spaces.Discrete) else int(action_space.shape[0])
        self.clip = config.probability_clip
        self.discounts = discounts
        outputs = int(action_space.n) if isinstance(action_space, spaces.Discrete) else 2 * int(action_space.shape[0])
        self.mlp = MLP(inputs, config.hidden, discounts * outputs, config.activation)

    def forward(self, state_ND: Float[Tensor, "N D"]) -> PolicyDistribution:
        """The policy of every discount."""
        raw_NGA = at_least_float32(self.mlp(state_ND)).unflatten(1, (self.discounts, -1))
        return CategoricalPolicy.of(raw_NGA, self.clip) if self.discrete else TanhGaussianPolicy.of(raw_NGA)

    def noise(self, state_ND: Float[Tensor, "N D"], generator: torch.Generator) -> Float[Tensor, "N G A"] | None:
        """The chance in one action for every token and discount; None where values are exact expectations (discrete).

        Drawn apart from `forward`, so that it does not matter in how many pieces that goes through the tokens.
        """
        if self.discrete:
            return None
        shape = (state_ND.shape[0], self.discounts, self.action_size)
        return torch.randn(shape, generator=generator, dtype=state_ND.dtype, device=state_ND.device)

    @torch.no_grad()
    def only(self, discount: int) -> "Actor":
        """A copy that computes the policy of one discount alone (an index): all that acting needs."""
        single = copy.deepcopy(self)
        output = self.mlp.output
        kept = output.weight.unflatten(0, (self.discounts, -1))[discount]
        single.mlp.output = nn.Linear(output.in_features, kept.shape[0], dtype=kept.dtype, device=kept.device)
        single.mlp.output.weight.copy_(kept)
        single.mlp.output.bias.copy_(output.bias.unflatten(0, (self.discounts, -1))[discount])
        single.discounts = 1
        return single
