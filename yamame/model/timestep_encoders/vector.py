"""Timestep encoder for observations that are vectors, categories or both."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from gymnasium import spaces
from jaxtyping import Bool, Float, Int64, Shaped
from torch import Tensor, nn
from torch.nn import functional

from yamame.model.blocks.input_normalizer import InputNormalizer
from yamame.model.blocks.mlp import MLP, Activation
from yamame.records.limits import check_limits
from yamame.records.spaces import Leaf


@dataclass(frozen=True, kw_only=True)
class VectorEncoderConfig:
    """Sizes of the timestep encoder."""

    hidden: tuple[int, ...] = (512, 512)
    """Widths of the hidden layers."""
    width: int = 200
    """Width of the output: one vector a timestep."""
    activation: Activation = "leaky_relu"
    """Activation of the hidden layers."""

    def __post_init__(self) -> None:
        check_limits(self, "hidden", "width", at_least=1)

    def build(self, leaves: Mapping[str, Leaf], action_space: spaces.Discrete | spaces.Box) -> "VectorEncoder":
        """The encoder for these spaces."""
        return VectorEncoder(self, leaves, action_space)


class VectorEncoder(nn.Module):
    """[observation, reset flag, previous reward, time, previous action] -> normalise -> MLP -> LayerNorm.

    Discrete leaves and actions enter as one-hot vectors, everything else flat. Time is the fraction of the horizon.
    Source: SPEC of the paper's appendix A; the order of the side inputs is the authors'. Differs from their 2023 code
    in the blank previous action of a trial's first step: zeros instead of ones or -2.
    """

    def __init__(
        self, config: VectorEncoderConfig, leaves: Mapping[str, Leaf], action_space: spaces.Discrete | spaces.Box
    ) -> None:
        super().__init__()
        self.leaves = dict(leaves)
        self.num_actions = int(action_space.n) if isinstance(action_space, spaces.Discrete) else None
        action_size = self.num_actions if self.num_actions is not None else int(action_space.shape[0])  # type: ignore[index]
        num_features = sum(spaces.flatdim(leaf) for leaf in leaves.values()) + 3 + action_size
        self.normalizer = InputNormalizer(num_features)
        self.mlp = MLP(num_features, config.hidden, config.width, config.activation)
        self.norm = nn.LayerNorm(config.width)

    def features(
        self,
        *,
        observation: Mapping[str, Shaped[Tensor, "N ..."]],
        previous_action: Shaped[Tensor, "N ..."],
        previous_reward: Float[Tensor, "N"],
        episode_start: Bool[Tensor, "N"],
        time: Int64[Tensor, "N"],
        horizon: Float[Tensor, "#N"],
    ) -> Float[Tensor, "N F"]:
        """The raw input vector of each timestep, before normalisation; at time 0 nothing led to it."""
        dtype = self.normalizer.mean.dtype
        parts = [_flat(leaf, observation[name], dtype) for name, leaf in self.leaves.items()]
        fraction = time.to(dtype) / horizon.clamp(min=1.0)  # filling tokens have no horizon
        begun = time > 0
        reward = torch.where(begun, previous_reward.to(dtype), 0.0)
        side = torch.stack([episode_start.to(dtype), reward, fraction], dim=1)
        action = previous_action
        if self.num_actions is not None:
            action = functional.one_hot(previous_action, self.num_actions)
        return torch.cat([*parts, side, torch.where(begun[:, None], action.to(dtype), 0.0)], dim=1)

    def forward(self, features_NF: Float[Tensor, "N F"]) -> Float[Tensor, "N D"]:
        """One vector a timestep."""
        return self.norm(self.mlp(self.normalizer(features_NF)))


def _flat(leaf: Leaf, value: Tensor, dtype: torch.dtype) -> Float[Tensor, "N f"]:
    if isinstance(leaf, spaces.Discrete):
        return functional.one_hot(value, int(leaf.n)).to(dtype)
    if isinstance(leaf, spaces.MultiDiscrete):
        columns = value.reshape(value.shape[0], -1)
        one_hots = [functional.one_hot(columns[:, i], int(n)) for i, n in enumerate(leaf.nvec.flatten())]
        return torch.cat(one_hots, dim=1).to(dtype)
    return value.reshape(value.shape[0], -1).to(dtype)
