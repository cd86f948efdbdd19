"""`NoveltyNetworks`: how unfamiliar a hyper-state is, by random network distillation."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

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
    scale: float = 1.0
    """Factor of the initial weights of the fixed network. With 10 (HyperX) its outputs are a thousand times as large,
    and the predictor takes thousands of updates until its error is small where it was trained."""

    REMOVED_FIELDS: ClassVar = ("feature_size",)

    def __post_init__(self) -> None:
        check_range(self, "hidden_sizes", "output_size", ge=1)
        check_range(self, "scale", gt=0)


class NoveltyNetworks(nn.Module):
    """Random network distillation (Burda et al. 2019) of hyper-states: observation, mean and log-variance of q(m).

    One network is fixed. The other one is trained to predict its outputs, and errs where it was not trained. Time and
    earlier rewards are in the belief alone. Differs from the source (Zintgraf et al. 2021): belief and the numbers of
    the observation are normalized, so that neither hides the other, and images and texts are seen through fixed random
    encoders, so that they can be new, too.

    Args:
        config: Sizes.
        encoder: Of an observation alone, without the action that led to it. Its inputs alone are used: behind its MLP
            and LayerNorm, observations of one direction would be alike. It is never trained.
        latent_size: Z.
    """

    def __init__(self, config: NoveltyConfig, encoder: PresentEncoder, *, latent_size: int) -> None:
        super().__init__()
        sizes = (encoder.encoder.input_size + 2 * latent_size, config.hidden_sizes, config.output_size)
        self.encoder = encoder
        self.fixed = MLP(*sizes, "relu")
        self.predictor = MLP(*sizes, "relu")
        self.encoder.requires_grad_(False)
        self.fixed.requires_grad_(False)
        for parameter in self.fixed.parameters():
            parameter.mul_(config.scale)

    def hyper_states(
        self, features_NF: Float[Tensor, "N F"], batch: Batch, moments_NM: Float[Tensor, "N moments"]
    ) -> Float[Tensor, "N hyper_state"]:
        """Return what the networks see of every token, with these normalized moments of its belief."""
        observation_NI = self.encoder.inputs(features_NF, batch.observation)
        return torch.cat([observation_NI.to(moments_NM.dtype), moments_NM], dim=1)

    def forward(self, hyper_state_NH: Float[Tensor, "N hyper_state"]) -> Float[Tensor, "N"]:
        """Return the mean squared error of the predicted outputs; its gradient reaches the predictor alone."""
        error_NO = self.predictor(hyper_state_NH) - self.fixed(hyper_state_NH)
        return error_NO.square().mean(1)
