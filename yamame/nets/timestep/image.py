"""Image encoder: a small convolutional network whose depth depends on the size of the image."""

from dataclasses import dataclass

import numpy as np
from gymnasium import spaces
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from typing_extensions import override

from yamame.data.spaces import Leaf
from yamame.errors import check_range
from yamame.nets.blocks import Activation, get_activation
from yamame.nets.timestep.base import LeafEncoderConfig

MIN_IMAGE_SIDE = 8
"""Minimum height and width of an image in pixels; smaller arrays are grids or vectors."""
_MAX_FEATURE_MAP_SIDE = 7


@dataclass(frozen=True, kw_only=True)
class ImageEncoderConfig(LeafEncoderConfig):
    """Sizes of the image encoder.

    By default it encodes three-dimensional Boxes of uint8 with at least 8 x 8 pixels; with an override, any bounded
    Box of two or three dimensions. The channel axis is the shorter of the first and the last axis, and the last one if
    both are equal, such as in `[84, 84, 4]` and `[3, 64, 64]`.
    """

    channels: tuple[int, ...] = (16, 32, 32)
    """Channels after each halving of the image; the last value is used for all further ones."""
    num_residual_blocks: int = 1
    """Residual blocks of two convolutions after each halving; 0 is the fastest, IMPALA's network has 2."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "channels", ge=1)
        check_range(self, "num_residual_blocks", ge=0)

    @override
    def matches(self, name: str, leaf: Leaf) -> bool:
        if not (isinstance(leaf, spaces.Box) and leaf.dtype == np.uint8 and len(leaf.shape) == 3):
            return False
        return not self.unsupported_reason(leaf) and min(_planes(leaf.shape)[1:]) >= MIN_IMAGE_SIDE

    @override
    def unsupported_reason(self, leaf: Leaf) -> str:
        if not (isinstance(leaf, spaces.Box) and len(leaf.shape) in (2, 3)):
            return "is not a Box of two or three dimensions"
        return "" if leaf.is_bounded() else "has infinite bounds"

    @override
    def build(self, leaf: Leaf, activation: Activation) -> "ImageEncoder":
        assert isinstance(leaf, spaces.Box)
        return ImageEncoder(self, leaf, activation)


class ImageEncoder(nn.Module):
    """Pixels in [0, 1] -> stages that halve the image until no side exceeds 7 -> linear -> LayerNorm.

    A stage is a 3 x 3 convolution of stride 2, an activation, and residual blocks. The same rule covers 8 x 8 and
    210 x 160 pixels, at a tenth of the cost of IMPALA's network, which convolves before it halves. Differs from the
    authors' code: three layers of the Nature DQN there, which need 36 pixels, with delta-orthogonal weights.
    """

    def __init__(self, config: ImageEncoderConfig, leaf: spaces.Box, activation: Activation) -> None:
        super().__init__()
        depth, height, width = _planes(leaf.shape)
        self.channels_first = _channels_first(leaf.shape)
        self.low = float(leaf.low.min())
        self.range = max(float(leaf.high.max()) - self.low, 1e-6)
        self.activation = get_activation(activation)
        stages: list[_Stage] = []
        while not stages or max(height, width) > _MAX_FEATURE_MAP_SIDE:
            channels = config.channels[min(len(stages), len(config.channels) - 1)]
            stages.append(_Stage(depth, channels, config.num_residual_blocks, activation))
            depth, height, width = channels, -(-height // 2), -(-width // 2)
        self.stages: list[_Stage] = nn.ModuleList(stages)  # type: ignore[assignment]
        self.output = nn.Linear(depth * height * width, config.output_size)
        self.norm = nn.LayerNorm(config.output_size)

    def forward(self, image: Shaped[Tensor, "N ..."]) -> Float[Tensor, "N D"]:
        """Return one vector per image."""
        x = image.unsqueeze(-1) if image.dim() == 3 else image
        x = x if self.channels_first else x.movedim(-1, 1)
        x = (x.to(self.stages[0].halve.weight.dtype) - self.low) / self.range
        for stage in self.stages:
            x = stage(x)
        return self.norm(self.output(x.flatten(1)))


class _Stage(nn.Module):
    def __init__(self, inputs: int, channels: int, residual_blocks: int, activation: Activation) -> None:
        super().__init__()
        self.halve = nn.Conv2d(inputs, channels, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList(_ResidualBlock(channels, activation) for _ in range(residual_blocks))
        self.activation = get_activation(activation)

    def forward(self, x: Float[Tensor, "N c h w"]) -> Float[Tensor, "N C H W"]:
        x = self.activation(self.halve(x))
        for block in self.blocks:
            x = block(x)
        return x


class _ResidualBlock(nn.Module):
    def __init__(self, channels: int, activation: Activation) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        self.activation = get_activation(activation)

    def forward(self, x: Float[Tensor, "N C H W"]) -> Float[Tensor, "N C H W"]:
        return x + self.second(self.activation(self.first(self.activation(x))))


def _planes(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """(channels, height, width)."""
    if len(shape) == 2:
        return 1, shape[0], shape[1]
    return (shape[0], shape[1], shape[2]) if _channels_first(shape) else (shape[2], shape[0], shape[1])


def _channels_first(shape: tuple[int, ...]) -> bool:
    return len(shape) == 3 and shape[0] < shape[2]
