"""One dial for how large a network is: `--size tiny|small|base|large`."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from yamame.model.agent import AgentConfig
from yamame.model.timestep_encoders.image import ImageEncoderConfig
from yamame.model.timestep_encoders.instruction import InstructionEncoderConfig
from yamame.records.errors import UserError
from yamame.run.config import RunConfig


@dataclass(frozen=True, kw_only=True)
class NetworkSize:
    """Widths and depths of all parts of a network; of what kind they are is another matter."""

    timestep_hidden: tuple[int, ...]
    timestep_width: int
    d_model: int
    d_ff: int
    num_layers: int
    num_heads: int
    head_hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of actor and critics."""
    leaf_width: int = ImageEncoderConfig.output_size
    """Width of what is made of an image, of tokens or of a text."""
    image_channels: tuple[int, ...] = ImageEncoderConfig.channels
    residual_blocks: int = ImageEncoderConfig.num_residual_blocks

    def apply_to(self, agent: AgentConfig) -> AgentConfig:
        """The same agent in this size; of a trajectory encoder width, feedforward, layers and heads change."""
        timestep, trajectory = agent.timestep_encoder, agent.trajectory_encoder
        leaves: dict[str, Any] = {
            kind: replace(encoder, output_size=self.leaf_width)
            for kind, encoder in timestep.leaf_encoders().items()
            if not isinstance(encoder, InstructionEncoderConfig)
        }
        leaves["image"] = replace(leaves["image"], channels=self.image_channels, num_residual_blocks=self.residual_blocks)
        own = {each.name for each in fields(trajectory)} & {"d_model", "d_ff", "num_layers", "num_heads"}
        sizes: dict[str, Any] = {name: getattr(self, name) for name in own}
        return replace(
            agent,
            timestep_encoder=replace(timestep, hidden_sizes=self.timestep_hidden, output_size=self.timestep_width, **leaves),
            trajectory_encoder=replace(trajectory, **sizes),
            actor=replace(agent.actor, hidden_sizes=self.head_hidden),
            critic=replace(agent.critic, hidden_sizes=self.head_hidden),
        )


SIZES: Mapping[str, NetworkSize] = {
    "tiny": NetworkSize(
        timestep_hidden=(32,),
        timestep_width=32,
        d_model=32,
        d_ff=128,
        num_layers=1,
        num_heads=2,
        head_hidden=(64, 64),
        leaf_width=32,
        image_channels=(8, 16),
        residual_blocks=0,
    ),
    "small": NetworkSize(
        timestep_hidden=(64,),
        timestep_width=64,
        d_model=64,
        d_ff=256,
        num_layers=2,
        num_heads=4,
        head_hidden=(128, 128),
        leaf_width=64,
        residual_blocks=0,
    ),
    "base": NetworkSize(timestep_hidden=(512, 512), timestep_width=200, d_model=256, d_ff=1024, num_layers=3, num_heads=8),
    "large": NetworkSize(
        timestep_hidden=(384,),
        timestep_width=384,
        d_model=384,
        d_ff=1536,
        num_layers=6,
        num_heads=12,
        head_hidden=(400, 400),
        leaf_width=256,
        image_channels=(32, 64, 64),
        residual_blocks=2,
    ),
}
"""`small` is what a CPU can train; `base` and `large` are the paper's for POPGym and Crafter (appendix, table 3)."""


def apply_size(config: RunConfig, name: str | None) -> RunConfig:
    """The config with a network of a named size; as it is for None. `UserError` for an unknown name."""
    if name is None:
        return config
    if name not in SIZES:
        raise UserError(f"unknown size {name!r}: choose among {', '.join(SIZES)}")
    return replace(config, agent=SIZES[name].apply_to(config.agent))
