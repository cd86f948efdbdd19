"""`NetworksConfig`: the networks that algorithms have in common, which `--size` and `--model` change."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from yamame.nets.heads.actor import ActorConfig
from yamame.nets.sequence.base import TrajectoryEncoderConfig
from yamame.nets.sequence.transformer import TransformerConfig
from yamame.nets.timestep.encoder import TimestepEncoderConfig


@dataclass(frozen=True, kw_only=True)
class NetworksConfig:
    """Base of the architectures of agents: the field `agent` of an `AlgorithmConfig`."""

    timestep_encoder: TimestepEncoderConfig = field(default_factory=TimestepEncoderConfig)
    trajectory_encoder: TrajectoryEncoderConfig = field(default_factory=TransformerConfig)
    actor: ActorConfig = field(default_factory=ActorConfig)

    def with_head_sizes(self, hidden_sizes: Sequence[int]) -> Any:
        """Return the config with other hidden layer widths of all heads. Subclasses add theirs."""
        return replace(self, actor=replace(self.actor, hidden_sizes=tuple(hidden_sizes)))

    def unused_actor_remarks(self, *unused: str) -> list[str]:
        """Return a line for each of these fields of the actor that is not at its default."""
        default = type(self)().actor
        changed = [name for name in unused if getattr(self.actor, name) != getattr(default, name)]
        return [f"agent.actor.{name} has no effect with this algorithm" for name in changed]

    def like(self, other: "NetworksConfig") -> Any:
        """Return the config with the encoders of another one, and heads of the widths of its actor."""
        same = replace(self, timestep_encoder=other.timestep_encoder, trajectory_encoder=other.trajectory_encoder)
        return same.with_head_sizes(other.actor.hidden_sizes)
