"""`DistillationAgent`: encoders and an actor that predicts the next action of a history."""

from dataclasses import dataclass, field
from typing import Any

from gymnasium import spaces
from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import override

from yamame.algorithms.acting_model import ActingModel, batch_features
from yamame.algorithms.networks import NetworksConfig
from yamame.data.actions import PolicyActionSpace, num_choices
from yamame.data.batch import Batch
from yamame.data.spaces import flatten_space
from yamame.distributed_context import SINGLE_PROCESS, DistributedContext
from yamame.errors import check_range
from yamame.nets.blocks import at_least_float32, power_iteration, sigma_layers
from yamame.nets.heads.actor import Actor
from yamame.nets.sequence.base import TrajectoryEncoderConfig
from yamame.nets.sequence.transformer import TransformerConfig
from yamame.nets.timestep.encoder import TimestepEncoderConfig

_NO_CLIP = (1e-8, 1.0)
"""Clip of probabilities: none but of zeros. Policies act without one."""


@dataclass(frozen=True, kw_only=True)
class DistillationAgentConfig(NetworksConfig):
    """Architecture of the agent. The probabilities of actions are not clipped (`actor.probability_clip`).

    Time is not observed, and positions are relative: how far a history has come is to be seen in what happened in it,
    so that windows from any part of a long history can be continued from the first step of a trial on.
    """

    timestep_encoder: TimestepEncoderConfig = field(default_factory=lambda: TimestepEncoderConfig(observe_time=False))
    trajectory_encoder: TrajectoryEncoderConfig = field(
        default_factory=lambda: TransformerConfig(position_embedding="rotary")
    )
    max_one_hot_choices: int = 0
    """As for AMAGO: number of choices above which they are embedded in the networks' inputs; 0: one-hot vectors."""

    def __post_init__(self) -> None:
        check_range(self, "max_one_hot_choices", ge=0)

    def embeds(self, action_space: PolicyActionSpace) -> bool:
        """Return whether the choices of actions are embedded."""
        return 0 < self.max_one_hot_choices < sum(num_choices(action_space))


class DistillationAgent(ActingModel):
    """Maps batches to states, and states to a distribution of the next action.

    Args:
        config: Architecture.
        observation_space: Space of one observation.
        action_space: Action space of the policy.
        context_length: Number of transitions in a training window; memory has one more timestep.
        horizon: Maximum number of steps of a trial.
    """

    def __init__(
        self,
        config: DistillationAgentConfig,
        *,
        observation_space: spaces.Space,
        action_space: PolicyActionSpace,
        context_length: int,
        horizon: int,
    ) -> None:
        super().__init__()
        self.horizon = horizon
        embeds = config.embeds(action_space)
        self.timestep_encoder = config.timestep_encoder.build(
            flatten_space(observation_space), action_space, embeds=embeds
        )
        self.trajectory_encoder: nn.Module = config.trajectory_encoder.build(
            input_size=config.timestep_encoder.output_size, attention_window=context_length + 1, max_timestep=horizon
        )
        state_size = config.trajectory_encoder.state_size
        self.actor = Actor(config.actor, input_size=state_size, action_space=action_space, num_gammas=1, embeds=embeds)
        self.actor.clip = _NO_CLIP

    @override
    def acting_module(self, name: str) -> Any:
        return getattr(self, name)

    def features(self, batch: Batch) -> Float[Tensor, "N F"]:
        """Return the vector part of the timestep encoder's input, before normalization."""
        return batch_features(self.timestep_encoder, batch)

    def encode(self, features_NF: Float[Tensor, "N F"], batch: Batch) -> Float[Tensor, "N D"]:
        """Return the states of all tokens, in float32 at least."""
        timestep_ND = self.timestep_encoder(features_NF, batch.observation)
        return at_least_float32(self.trajectory_encoder(timestep_ND, batch))

    def update_statistics(
        self, features_NF: Float[Tensor, "N F"], batch: Batch, distributed: DistributedContext = SINGLE_PROCESS
    ) -> None:
        """Update the input normalizer from a batch, and spectral norms."""
        self.timestep_encoder.update_normalizers(features_NF, batch.observation, batch.token_mask, distributed)
        power_iteration(sigma_layers(self.trajectory_encoder))
