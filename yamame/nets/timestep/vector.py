"""What enters the network as plain numbers: vectors, small categories, and what led to a timestep."""

from collections.abc import Mapping

import torch
from gymnasium import spaces
from jaxtyping import Bool, Float, Int64, Shaped
from torch import Tensor

from yamame.data.actions import PolicyActionSpace, action_size, num_choices
from yamame.data.spaces import Leaf
from yamame.nets.blocks import concat_one_hot


class VectorFeatures:
    """[leaves, reset flag, previous reward, time, previous action] side by side.

    Discrete leaves and actions enter as one-hot vectors, everything else flat. Time is the fraction of the horizon.
    Source: SPEC of the paper's appendix A; the order of the side inputs is the authors'. Differs from their 2023 code
    in the blank previous action of a trial's first step: zeros instead of ones or -2.
    """

    def __init__(self, leaves: Mapping[str, Leaf], action_space: PolicyActionSpace) -> None:
        self.leaves = dict(leaves)
        self.num_choices = num_choices(action_space)
        self.observation_size = sum(spaces.flatdim(leaf) for leaf in leaves.values())
        """Features of the leaves, which stand first."""
        self.size = self.observation_size + 3 + action_size(action_space)
        """F."""

    def __call__(
        self,
        *,
        observation: Mapping[str, Shaped[Tensor, "N ..."]],
        previous_action: Shaped[Tensor, "N ..."],
        previous_reward: Float[Tensor, "N"],
        episode_start: Bool[Tensor, "N"],
        time: Int64[Tensor, "N"],
        horizon: Float[Tensor, "#N"],
        dtype: torch.dtype,
    ) -> Float[Tensor, "N F"]:
        """The features of each timestep; at time 0 nothing led to it."""
        parts = [_flat(leaf, observation[name], dtype) for name, leaf in self.leaves.items()]
        fraction = time.to(dtype) / horizon.clamp(min=1.0)  # filling tokens have no horizon
        begun = time > 0
        reward = torch.where(begun, previous_reward.to(dtype), 0.0)
        side = torch.stack([episode_start.to(dtype), reward, fraction], dim=1)
        action = concat_one_hot(previous_action, self.num_choices) if self.num_choices else previous_action
        return torch.cat([*parts, side, torch.where(begun[:, None], action.to(dtype), 0.0)], dim=1)


def _flat(leaf: Leaf, value: Tensor, dtype: torch.dtype) -> Float[Tensor, "N f"]:
    if isinstance(leaf, spaces.Discrete | spaces.MultiDiscrete):
        return concat_one_hot(value, num_choices(leaf)).to(dtype)
    return value.reshape(value.shape[0], -1).to(dtype)
