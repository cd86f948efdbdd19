"""`DeterministicActor`: the actor of TD3."""

import copy

import torch
from gymnasium import spaces
from jaxtyping import Bool, Float
from torch import Tensor, nn

from yamame.data.actions import action_size
from yamame.nets.blocks import MLP, at_least_float32
from yamame.nets.heads.actor import NO_CLIP, ActorConfig
from yamame.nets.heads.tanh_gaussian import TanhGaussianPolicy

MAX_MEAN = 3.0
"""Largest input of tanh: actions are within 0.995, and have a gradient."""


class DeterministicActor(nn.Module):
    """State -> MLP -> tanh: a policy whose standard deviation is 0, so that samples are its mode.

    Inputs of tanh are limited to +-`MAX_MEAN`. Beyond it only gradients that point back pass, as in inverted gradients
    (Hausknecht and Stone 2016): without the limit, an actor that critics push to the bounds before they have learned
    the values has no gradient any more, and stays there.
    """

    def __init__(self, config: ActorConfig, *, input_size: int, action_space: spaces.Box) -> None:
        super().__init__()
        self.action_size = action_size(action_space)
        self.clip = NO_CLIP
        """Unused: for discrete actions."""
        self.mlp = MLP(input_size, config.hidden_sizes, self.action_size, config.activation)

    def forward(self, state_ND: Float[Tensor, "N D"], mask_NA: Bool[Tensor, "N A"] | None = None) -> TanhGaussianPolicy:
        """Return the policy, with a dimension for its single gamma."""
        mean_NGA = _limited(at_least_float32(self.mlp(state_ND)))[:, None]
        return TanhGaussianPolicy(mean_NGA=mean_NGA, log_std_NGA=torch.full_like(mean_NGA, -torch.inf))

    def for_gamma(self, gamma_index: int) -> "DeterministicActor":
        """Return a copy, for acting."""
        return copy.deepcopy(self)


def _limited(x: Float[Tensor, "N A"]) -> Float[Tensor, "N A"]:
    """Return x within +-`MAX_MEAN`. Gradients pass where x is within it, or where a step against them leads back."""
    limited = x.clamp(-MAX_MEAN, MAX_MEAN)
    if not x.requires_grad:
        return limited
    side = torch.where(limited == x, 0.0, x.sign()).detach()
    passed = x + (limited - x).detach()
    passed.register_hook(lambda gradient: torch.where(gradient * side < 0.0, 0.0, gradient))
    return passed
