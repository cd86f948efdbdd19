"""`RewardDecoder`: the rewards of a whole trial, predicted from one sample of the latent m."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from yamame.algorithms.varibad.inputs import PresentEncoder
from yamame.data.batch import Batch
from yamame.errors import ConfigFieldError, check_range
from yamame.nets.blocks import MLP, Activation, get_activation
from yamame.nets.layouts import PaddedLayout


@dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """Sizes of the reward decoder."""

    feature_hidden_sizes: tuple[int, ...] = (64,)
    """Widths of the hidden layers that encode an observation, with the action that led to it."""
    feature_size: int = 32
    """Width of an encoded observation."""
    hidden_sizes: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers between latent and observations, and the reward."""
    activation: Activation = "leaky_relu"
    """Activation of the latter."""

    def __post_init__(self) -> None:
        check_range(self, "feature_hidden_sizes", "feature_size", "hidden_sizes", ge=1)
        if not self.hidden_sizes:
            raise ConfigFieldError(self, "hidden_sizes", "must have at least one hidden layer, got ()")


class RewardDecoder(nn.Module):
    """Normalized rewards from (m, observation, action, next observation): p(r | s, a, s', m) of Zintgraf et al. 2020.

    Both observations are inputs, since at the end of an attempt the next one is the first of another attempt. Neither
    time nor earlier rewards are, so that what is unknown has to come from m. Differs from the source: next observations
    are not predicted.

    Args:
        config: Sizes.
        encoder: Of an observation and the action that led to it.
        latent_size: Z.
    """

    def __init__(self, config: DecoderConfig, encoder: PresentEncoder, *, latent_size: int) -> None:
        super().__init__()
        self.encoder = encoder
        first, *others = config.hidden_sizes
        self.of_latent = nn.Linear(latent_size, first)
        self.of_transition = nn.Linear(2 * encoder.output_size, first, bias=False)
        self.activation = get_activation(config.activation)
        self.mlp = MLP(first, others, 1, config.activation, float32_output=True)

    def transitions(
        self, features_NF: Float[Tensor, "N F"], batch: Batch, layout: PaddedLayout
    ) -> Float[Tensor, "B L H"]:
        """Return the first layer's part of every transition of the windows; what padding has is arbitrary."""
        rows_BSD = layout.pad(self.encoder(features_NF, batch.observation))
        transition_BLH: Tensor = self.of_transition(torch.cat([rows_BSD[:, :-1], rows_BSD[:, 1:]], dim=2))
        return transition_BLH

    def forward(
        self, latent_BMZ: Float[Tensor, "B M Z"], transition_BLH: Float[Tensor, "B L H"]
    ) -> Float[Tensor, "B M L"]:
        """Return the reward of each of L transitions, predicted from each of M latents of the same window."""
        hidden_BMLH = self.of_latent(latent_BMZ)[:, :, None] + transition_BLH[:, None]
        reward_BML1: Tensor = self.mlp(self.activation(hidden_BMLH))
        return reward_BML1[..., 0]
