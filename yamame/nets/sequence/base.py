"""What every trajectory encoder's config offers."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True, kw_only=True)
class TrajectoryEncoderConfig(ABC):
    """Base of the configs of trajectory encoders; choosing one is choosing its config's class.

    Fields called width, layers, heads and feedforward follow the dial for the size of the network.
    """

    @property
    @abstractmethod
    def state_size(self) -> int:
        """Width of the states that the encoder gives."""

    @abstractmethod
    def build(self, *, input_size: int, attention_window: int, max_timestep: int) -> nn.Module:
        """The encoder (a `TrajectoryEncoder`) for vectors of width `inputs`.

        It looks back over `memory_length` timesteps, the present one included; `max_time` is the largest time of any.
        """
