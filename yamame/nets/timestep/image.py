"""Image encoder: a small convolutional network whose depth depends on the size of the image."""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from gymnasium import spaces
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn
from typing_extensions import override

from yamame.data.actions import is_unbounded
from yamame.data.goals import INSTRUCTION_KEY
from yamame.data.spaces import Leaf
from yamame.distributed_context import SINGLE_PROCESS, DistributedContext
from yamame.errors import check_range
from yamame.nets.blocks import Activation, InputNormalizer, get_activation
from yamame.nets.timestep.base import LeafEncoderConfig, NormalizingEncoder

MIN_IMAGE_SIDE = 8
"""Minimum height and width in pixels of an image of bytes with channels; smaller arrays are grids or vectors."""
MIN_PLAIN_SIDE = 16
"""Minimum height and width of other images: without channels, or of another type than uint8."""
_MAX_FEATURE_MAP_SIDE = 7
_MAX_PIXELS = 1 << 18
"""Pixels of a batch that take part in an update of the moments."""


@dataclass(frozen=True, kw_only=True)
class ImageEncoderConfig(LeafEncoderConfig):
    """Sizes of the image encoder.

    By default it encodes bounded Boxes of uint8 with channels and at least 8 x 8 pixels, and with `plain` further
    images; with an override, any bounded Box of two or more dimensions. Height and width are the two adjacent axes
    whose shorter one is longest, such as in `[84, 84, 4]`, `[3, 64, 64]` and `[4, 64, 64, 3]`; of equals, the ones
    before the last axis. Of three axes, the only two adjacent ones of equal length come first: `[8, 8, 12]` has twelve
    channels. All other axes are channels.
    """

    channels: tuple[int, ...] = (16, 32, 32)
    """Channels after each halving of the image; the last value is used for all further ones."""
    num_residual_blocks: int = 1
    """Residual blocks of two convolutions after each halving; 0 is the fastest, IMPALA's network has 2."""
    plain: bool = False
    """Encode by default, too: stacks of images of bytes, and with at least 16 x 16 pixels images of other types and
    images without channels. Off in files of runs that were made before this field."""
    normalize_bytes: bool = False
    """Normalize pixels that are bytes by their mean and standard deviation, too, instead of dividing them by their
    bounds: dim images, and grids of small numbers in a Box from 0 to 255, are as good as bright ones then. Off in
    recipes, on in the default of environments without one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "channels", ge=1)
        check_range(self, "num_residual_blocks", ge=0)

    @override
    def matches(self, name: str, leaf: Leaf) -> bool:
        if self.unsupported_reason(leaf):
            return False
        assert isinstance(leaf, spaces.Box)
        has_channels_of_bytes = leaf.dtype == np.uint8 and len(leaf.shape) >= 3
        if name == INSTRUCTION_KEY or not (self.plain or (has_channels_of_bytes and len(leaf.shape) == 3)):
            return False
        return image_side(leaf.shape) >= (MIN_IMAGE_SIDE if has_channels_of_bytes else MIN_PLAIN_SIDE)

    @override
    def unsupported_reason(self, leaf: Leaf) -> str:
        if not (isinstance(leaf, spaces.Box) and len(leaf.shape) >= 2):
            return "is not a Box of two or more dimensions"
        is_bounded = not (is_unbounded(leaf.low) | is_unbounded(leaf.high)).any()
        return "" if is_bounded else "has infinite bounds"

    def missing_reason(self, leaf: Leaf) -> str:
        """Return why a leaf of an image's shape is none, as the end of a sentence; "" if it has another shape."""
        if not isinstance(leaf, spaces.Box | spaces.MultiBinary) or len(leaf.shape or ()) < 2:
            return ""
        if image_side(leaf.shape or ()) < MIN_PLAIN_SIDE:
            return ""
        if isinstance(leaf, spaces.MultiBinary):
            return "is a MultiBinary, not a Box of bool"
        return "has infinite bounds, where an image needs finite ones" if self.unsupported_reason(leaf) else ""

    @override
    def build(self, leaf: Leaf, activation: Activation) -> "ImageEncoder":
        assert isinstance(leaf, spaces.Box)
        return ImageEncoder(self, leaf, activation)


class ImageEncoder(NormalizingEncoder):
    """Pixels -> stages that halve the image until no side exceeds 7 -> linear -> LayerNorm.

    A stage is a 3 x 3 convolution of stride 2, an activation, and residual blocks. The same rule covers 8 x 8 and
    210 x 160 pixels, at a tenth of the cost of IMPALA's network, which convolves before it halves. Bytes are divided by
    their bounds unless `normalize_bytes`, other pixels are normalized as numbers are, by one mean and standard
    deviation: an image that is declared as wide as its type and holds numbers around 1 would be all zeros by its
    bounds. Differs from the
    authors' code: three layers of the Nature DQN there, which need 36 pixels, with delta-orthogonal weights.
    """

    def __init__(self, config: ImageEncoderConfig, leaf: spaces.Box, activation: Activation) -> None:
        super().__init__()
        first = _height_axis(leaf.shape)
        self.axes = (first + 1, first + 2)
        """Of height and width, behind that of the timesteps."""
        height, width = leaf.shape[first : first + 2]
        depth = math.prod(leaf.shape) // (height * width)
        self.has_bytes = leaf.dtype in (np.uint8, np.bool_)
        is_normalized = config.normalize_bytes if self.has_bytes else config.plain
        self.normalizer = InputNormalizer(1) if is_normalized else None
        """Of the pixels of an image whose bounds need not be those of its pixels."""
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
        x = x.movedim(self.axes, (-2, -1))
        x = x.flatten(1, -3) if x.dim() > 4 else x
        dtype = self.stages[0].halve.weight.dtype
        if self.normalizer is None:
            x = (x.to(dtype) - self.low) / self.range
        elif self.has_bytes:
            bytes_V = torch.arange(256, dtype=self.normalizer.mean.dtype, device=x.device)
            normalized_V = self.normalizer(bytes_V[:, None], dtype).flatten()
            x = normalized_V.index_select(0, x.flatten().int()).view(x.shape)
        else:
            x = self.normalizer(x.reshape(-1, 1), dtype).reshape(x.shape)
        for stage in self.stages:
            x = stage(x)
        return self.norm(self.output(x.flatten(1)))

    @torch.no_grad()
    def update(
        self,
        image: Shaped[Tensor, "N ..."],
        token_mask_N: Bool[Tensor, "N"],
        distributed: DistributedContext = SINGLE_PROCESS,
    ) -> None:
        """Update the running moments of the pixels from a batch; of more than `_MAX_PIXELS`, from some of its rows."""
        if self.normalizer is None:
            return
        every = -(-image.numel() // _MAX_PIXELS)
        rows, mask = image[::every], token_mask_N[::every]
        pixels = rows.reshape(-1, 1).to(self.normalizer.mean.dtype)
        self.normalizer.update(pixels, mask.repeat_interleave(len(pixels) // len(rows)), distributed)


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


def image_side(shape: tuple[int, ...]) -> int:
    """Return the shorter side of an image of a shape of two or more dimensions."""
    first = _height_axis(shape)
    return min(shape[first : first + 2])


def _height_axis(shape: tuple[int, ...]) -> int:
    """Return the axis of the height; that of the width follows it. See `ImageEncoderConfig`."""
    before_last = max(0, len(shape) - 3)  # where the height is if the last axis has the channels
    pairs = list(pairwise(shape))
    squares = [axis for axis, (first, second) in enumerate(pairs) if first == second]
    if len(squares) == 1 and len(shape) == 3:  # a board may have more planes than rows
        return squares[0]
    return max(range(len(pairs)), key=lambda axis: (min(pairs[axis]), sum(pairs[axis]), axis == before_last))
