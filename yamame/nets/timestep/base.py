"""Base class of the configs of leaf encoders: one leaf of an observation -> one vector per timestep."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from jaxtyping import Bool, Shaped
from torch import Tensor, nn

from yamame.data.spaces import Leaf
from yamame.distributed_context import SINGLE_PROCESS, DistributedContext
from yamame.errors import check_range
from yamame.nets.blocks import Activation


@dataclass(frozen=True, kw_only=True)
class LeafEncoderConfig(ABC):
    """Base of the configs of leaf encoders.

    A new encoder is one file in this folder, which `TimestepEncoderConfig` finds; its kind is the file's name. Every
    field needs a default.
    """

    output_size: int = 128
    """Width of a leaf's vector."""

    def __post_init__(self) -> None:
        check_range(self, "output_size", ge=1)

    @abstractmethod
    def matches(self, name: str, leaf: Leaf) -> bool:
        """Return whether this encoder is the default for a leaf."""

    @abstractmethod
    def unsupported_reason(self, leaf: Leaf) -> str:
        """Return why a leaf cannot be encoded, as the end of a sentence that starts with its name; "" if it can."""

    @abstractmethod
    def build(self, leaf: Leaf, activation: Activation) -> nn.Module:
        """Return the module, which maps a stored leaf of N timesteps `[N, ...]` to `[N, output_size]`."""


class NormalizingEncoder(nn.Module, ABC):
    """Base of leaf encoders with running moments of their inputs."""

    @abstractmethod
    def update(
        self,
        leaf: Shaped[Tensor, "N ..."],
        token_mask_N: Bool[Tensor, "N"],
        distributed: DistributedContext = SINGLE_PROCESS,
    ) -> None:
        """Update the moments from the timesteps of a training batch where the mask is True."""
