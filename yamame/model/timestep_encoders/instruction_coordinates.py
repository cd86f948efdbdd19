"""Instructions whose sub-goals are places -> vectors."""

import math
from dataclasses import dataclass

import torch
from gymnasium import spaces
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from yamame.model.blocks.mlp import MLP, Activation
from yamame.model.timestep_encoders.instruction import InstructionEncoderConfig
from yamame.records.limits import check_range
from yamame.records.spaces import Leaf


@dataclass(frozen=True, kw_only=True)
class InstructionCoordinatesConfig(InstructionEncoderConfig):
    """Sizes of the network for instructions of coordinates. Source: the paper's appendix, table 3, "goal emb"."""

    hidden_sizes: tuple[int, ...] = (64,)
    """Widths of the hidden layers."""
    output_size: int = 32
    """Width of what is made of an instruction."""
    normalize: bool = True
    """Divide coordinates by their largest value, where the space has one; off: as they are, like in the paper."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "hidden_sizes", ge=1)

    def build(self, leaf: Leaf, activation: Activation) -> "InstructionCoordinateEncoder":
        """The network for instructions of this shape."""
        assert isinstance(leaf, spaces.Box)
        return InstructionCoordinateEncoder(self, leaf, activation)


class InstructionCoordinateEncoder(nn.Module):
    """All sub-goals side by side -> MLP -> LayerNorm.

    Coordinates enter between 0 and 1, rows of -1 (no sub-goal) and -3 (completed) as they are. They bypass the input
    normaliser, as in the paper, whose running moments would mix the rows' three meanings. Differs from the authors'
    code in the division by the largest coordinate: behind raw numbers of 30 the LayerNorm sees little but the
    direction of the whole vector, and the side on which a goal lies is learned some three times more slowly.
    """

    def __init__(self, config: InstructionCoordinatesConfig, leaf: spaces.Box, activation: Activation) -> None:
        super().__init__()
        largest = torch.from_numpy(leaf.high).float()
        has_largest = config.normalize & largest.isfinite() & (largest > 0)
        self.unit: Tensor
        self.register_buffer("unit", torch.where(has_largest, largest, 1.0), persistent=False)
        self.mlp = MLP(math.prod(leaf.shape), config.hidden_sizes, config.output_size, activation)
        self.norm = nn.LayerNorm(config.output_size)

    def forward(self, instruction: Shaped[Tensor, "N slots goal"]) -> Float[Tensor, "N D"]:
        """One vector an instruction."""
        x = instruction.to(self.unit.dtype)
        return self.norm(self.mlp(torch.where(x > 0, x / self.unit, x).flatten(1)))
