"""Named sizes of all networks of an agent."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from yamame.algorithms.networks import NetworksConfig
from yamame.nets.timestep.base import LeafEncoderConfig
from yamame.nets.timestep.image import ImageEncoderConfig
from yamame.nets.timestep.instruction import InstructionEncoderConfig

AnyNetworks = TypeVar("AnyNetworks", bound=NetworksConfig)


@dataclass(frozen=True, kw_only=True)
class NetworkSize:
    """Widths and depths of all networks. Their kinds are those of the config it is applied to."""

    timestep_hidden: tuple[int, ...]
    timestep_width: int
    encoder_size: str = ""
    """Size of the trajectory encoder, a key of `TrajectoryEncoderConfig.SIZES`; "": unchanged."""
    head_hidden: tuple[int, ...] = (256, 256)
    """Hidden layer widths of actor and critics."""
    leaf_width: int = ImageEncoderConfig.output_size
    """Output width of the encoders of images, tokens and texts."""
    image_channels: tuple[int, ...] = ImageEncoderConfig.channels
    residual_blocks: int = ImageEncoderConfig.num_residual_blocks

    def apply_to(self, agent: AnyNetworks) -> AnyNetworks:
        """Return the networks of an agent at this size."""
        timestep = agent.timestep_encoder.map_leaf_encoders(self._resize)
        return replace(
            agent,
            timestep_encoder=replace(timestep, hidden_sizes=self.timestep_hidden, output_size=self.timestep_width),
            trajectory_encoder=agent.trajectory_encoder.at_size(self.encoder_size),
        ).with_head_sizes(self.head_hidden)

    def _resize(self, encoder: LeafEncoderConfig) -> LeafEncoderConfig:
        if isinstance(encoder, InstructionEncoderConfig):
            return encoder
        if isinstance(encoder, ImageEncoderConfig):
            encoder = replace(encoder, channels=self.image_channels, num_residual_blocks=self.residual_blocks)
        return replace(encoder, output_size=self.leaf_width)


SIZES: Mapping[str, NetworkSize] = {
    "tiny": NetworkSize(
        timestep_hidden=(32,),
        timestep_width=32,
        encoder_size="tiny",
        head_hidden=(64, 64),
        leaf_width=32,
        image_channels=(8, 16),
        residual_blocks=0,
    ),
    "small": NetworkSize(
        timestep_hidden=(64,),
        timestep_width=64,
        encoder_size="small",
        head_hidden=(128, 128),
        leaf_width=64,
        residual_blocks=0,
    ),
    "base": NetworkSize(timestep_hidden=(512, 512), timestep_width=200, encoder_size="base"),
    "large": NetworkSize(
        timestep_hidden=(384,),
        timestep_width=384,
        encoder_size="large",
        head_hidden=(400, 400),
        leaf_width=256,
        image_channels=(32, 64, 64),
        residual_blocks=2,
    ),
}
"""`small` is trainable on a CPU; `base` and `large` are those of POPGym and Crafter (paper: appendix, table 3)."""
