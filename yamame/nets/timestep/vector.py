"""Vector features of a timestep: vectors, small categories, previous action and reward."""

from collections.abc import Mapping

import torch
from gymnasium import spaces
from jaxtyping import Bool, Float, Int64, Shaped
from torch import Tensor

from yamame.data.actions import PolicyActionSpace, action_size, num_choices
from yamame.data.spaces import Leaf
from yamame.nets.blocks import concat_one_hot


class VectorFeatures:
    """Concatenation of [leaves, reset flag, previous reward, time, previous action].

    Discrete leaves and actions are one-hot vectors, other leaves are flattened, and time is a fraction of the horizon.
    Paper: appendix A; the order is that of the authors' code. Differs from their 2023 code in the previous action of a
    trial's first step: zeros instead of ones or -2.
    """

    def __init__(self, leaves: Mapping[str, Leaf], action_space: PolicyActionSpace) -> None:
        self.leaves = dict(leaves)
        self.num_choices = num_choices(action_space)
        self.observation_size = sum(spaces.flatdim(leaf) for leaf in leaves.values())
        """Number of features of the leaves, which come first."""
        self.size = self.observation_size + 3 + action_size(action_space)
        """Number of features, F."""

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
        """Return the features of each timestep. Previous action and reward are zero at time 0."""
        features = [_flat(leaf, observation[name], dtype) for name, leaf in self.leaves.items()]
        fraction = time.to(dtype) / horizon.clamp(min=1.0)  # padding has no horizon
        has_previous = time > 0
        reward = torch.where(has_previous, previous_reward.to(dtype), 0.0)
        side = torch.stack([episode_start.to(dtype), reward, fraction], dim=1)
        action = concat_one_hot(previous_action, self.num_choices) if self.num_choices else previous_action
        return torch.cat([*features, side, torch.where(has_previous[:, None], action.to(dtype), 0.0)], dim=1)


def _flat(leaf: Leaf, value: Tensor, dtype: torch.dtype) -> Float[Tensor, "N f"]:
    if isinstance(leaf, spaces.Discrete | spaces.MultiDiscrete):
        return concat_one_hot(value, num_choices(leaf)).to(dtype)
    return value.reshape(value.shape[0], -1).to(dtype)
