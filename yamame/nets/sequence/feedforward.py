"""Trajectory encoder without memory: the paper's "w/o memory" ablation, still trained on sequences."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional

from yamame.data.batch import Batch
from yamame.errors import check_range
from yamame.nets.blocks import at_least_float32
from yamame.nets.sequence.base import TrajectoryEncoderConfig


@dataclass(frozen=True, kw_only=True)
class FeedForwardConfig(TrajectoryEncoderConfig):
    """Sizes of the encoder without memory."""

    SIZES: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {"d_model": 32, "num_layers": 1},
        "small": {"d_model": 64, "num_layers": 2},
        "base": {"d_model": 256, "num_layers": 3},
        "large": {"d_model": 384, "num_layers": 6},
    }

    d_model: int = 256
    """Width of the residual stream and of the states."""
    num_layers: int = 3
    """Number of residual blocks; the hidden layer of each is four times as wide."""

    def __post_init__(self) -> None:
        check_range(self, "d_model", "num_layers", ge=1)

    @property
    def state_size(self) -> int:
        """Width of the states."""
        return self.d_model

    def build(self, *, input_size: int, attention_window: int, max_timestep: int) -> "FeedForward":
        """Return the encoder. It ignores both lengths."""
        return FeedForward(self, input_size=input_size)


class FeedForward(nn.Module):
    """Linear -> residual blocks x + act(linear(act(linear(x)))) -> linear -> LayerNorm, for each timestep alone."""

    def __init__(self, config: FeedForwardConfig, *, input_size: int) -> None:
        super().__init__()
        width = config.d_model
        self.embed = nn.Linear(input_size, width)
        self.widen = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(config.num_layers))
        self.narrow = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(config.num_layers))
        self.output = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, timestep_ND: Float[Tensor, "N D"], batch: Batch) -> Float[Tensor, "N S"]:
        """Return the states of all tokens."""
        return self._encode(timestep_ND)

    def initial_state(self, num_envs: int) -> None:
        """Return None: there is no memory."""

    def step(
        self, timestep_ED: Float[Tensor, "E D"], time_E: Int64[np.ndarray, "E"], state: None
    ) -> Float[Tensor, "E S"]:
        """Return the states of one more timestep of each environment."""
        return self._encode(timestep_ED)

    def static_step(
        self, timestep_ED: Float[Tensor, "E D"], time_E: Int64[Tensor, "E"], state: None
    ) -> Float[Tensor, "E S"]:
        """Return the states of `step`."""
        return self._encode(timestep_ED)

    def empty_memory(self, timestep_ED: Float[Tensor, "E D"]) -> dict[str, Tensor]:
        """Return no tensors."""
        return {}

    def functional_step(
        self, timestep_ED: Float[Tensor, "E D"], time_E: Int64[Tensor, "E"], memory: Mapping[str, Tensor]
    ) -> tuple[Float[Tensor, "E S"], dict[str, Tensor]]:
        """Return the states of one more timestep of each environment, and no memory."""
        return self._encode(timestep_ED), {}

    def _encode(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N S"]:
        x = at_least_float32(functional.leaky_relu(self.embed(x)))
        for widen, narrow in zip(self.widen, self.narrow, strict=True):
            x = x + functional.leaky_relu(narrow(functional.leaky_relu(widen(x))))
        return self.norm(at_least_float32(self.output(x)))
