"""What every leaf encoder's config offers: one leaf of an observation -> one vector a timestep."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import nn

from yamame.data.spaces import Leaf
from yamame.errors import check_range
from yamame.nets.blocks import Activation


@dataclass(frozen=True, kw_only=True)
class LeafEncoderConfig(ABC):
    """Base of the configs of leaf encoders. Each is a field of `TimestepEncoderConfig`, whose name is its kind."""

    output_size: int = 128
    """Width of what is made of such a leaf."""

    def __post_init__(self) -> None:
        check_range(self, "output_size", ge=1)

    @abstractmethod
    def matches(self, name: str, leaf: Leaf) -> bool:
        """Whether a leaf of that name comes here unless the user says otherwise."""

    @abstractmethod
    def unsupported_reason(self, leaf: Leaf) -> str:
        """Why such a leaf can never come here: the end of a sentence that begins with it; empty if it can."""

    @abstractmethod
    def build(self, leaf: Leaf, activation: Activation) -> nn.Module:
        """The module: the leaf of N timesteps `[N, ...]`, as it is stored, -> `[N, width]`."""
