"""`NoveltyNetworks`: how unfamiliar a hyper-state is, by random network distillation."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from yamame.algorithms.varibad.belief import Belief
from yamame.algorithms.varibad.inputs import PresentEncoder
from yamame.data.batch import Batch
from yamame.errors import check_range
from yamame.nets.blocks import MLP


@dataclass(frozen=True, kw_only=True)
class NoveltyConfig:
    """Sizes of the networks of the novelty."""

    hidden_sizes: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of both networks."""
    output_size: int = 128
    """Number of outputs that are predicted."""
    scale: float = 10.0
    """Factor of the initial weights of the fixed network."""
    feature_size: int = 64
    """Width of an encoded observation."""

    def __post_init__(self) -> None:
        check_range(self, "hidden_sizes", "output_size", "feature_size", ge=1)
        check_range(self, "scale", gt=0)


class NoveltyNetworks(nn.Module):
    """Random network distillation (Burda et al. 2019) of hyper-states: observation, mean and log-variance of q(m).

    One network is fixed. The other one is trained to predict its outputs, and errs where it was not trained. Time and
    earlier rewards are in the belief alone. Differs from the source (Zintgraf et al. 2021): both networks see the
    observation through a fixed random encoder, with normalized inputs, so that images and texts can be new, too.

    Args:
        config: Sizes.
        encoder: Of an observation alone, without the action that led to it. It is never trained.
        latent_size: Z.
    """

    def __init__(self, config: NoveltyConfig, encoder: PresentEncoder, *, latent_size: int) -> None:
        super().__init__()
        sizes = (encoder.output_size + 2 * latent_size, config.hidden_sizes, config.output_size)
        self.encoder = encoder
        self.fixed = MLP(*sizes, "relu")
        self.predictor = MLP(*sizes, "relu")
        self.encoder.requires_grad_(False)
        self.fixed.requires_grad_(False)
        for parameter in self.fixed.parameters():
            parameter.mul_(config.scale)

    def hyper_states(
        self, features_NF: Float[Tensor, "N F"], batch: Batch, belief: Belief
    ) -> Float[Tensor, "N hyper_state"]:
        """Return what the networks see of every token."""
        observation_ND = self.encoder(features_NF, batch.observation)
        return torch.cat([observation_ND.to(belief.mean_NZ.dtype), *belief], dim=1)

    def forward(self, hyper_state_NH: Float[Tensor, "N hyper_state"]) -> Float[Tensor, "N"]:
        """Return the mean squared error of the predicted outputs; its gradient reaches the predictor alone."""
        error_NO = self.predictor(hyper_state_NH) - self.fixed(hyper_state_NH)
        return error_NO.square().mean(1)
