"""`PPOAgent`: encoders, actor and a value of every state."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from gymnasium import spaces
from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import override

from yamame.algorithms.acting_model import ActingModel, batch_features
from yamame.algorithms.networks import NetworksConfig
from yamame.data.actions import PolicyActionSpace, num_choices
from yamame.data.batch import Batch
from yamame.data.spaces import Leaf, flatten_space
from yamame.errors import check_range
from yamame.nets.blocks import MLP, Activation, at_least_float32
from yamame.nets.heads.actor import Actor, PolicyDistribution
from yamame.nets.heads.popart import PopArtConfig
from yamame.nets.heads.tanh_gaussian import MAX_LOG_STD, MIN_LOG_STD

_CLIP = (1e-8, 1.0)
"""Clip of probabilities in entropies: none but of zeros, whose logarithm has no gradient. Policies act without one."""


@dataclass(frozen=True, kw_only=True)
class ValueConfig:
    """Sizes of the value head."""

    hidden_sizes: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers."""
    activation: Activation = "leaky_relu"
    """Activation of the hidden layers."""
    statistics_rate: float = 0.05
    """Update rate, once an iteration, of mean and deviation of the value targets, by which values are normalized
    (PopArt)."""

    def __post_init__(self) -> None:
        check_range(self, "hidden_sizes", ge=1)
        check_range(self, "statistics_rate", gt=0, le=1)


class AgentEncoders(NamedTuple):
    """Modules that map observations to states, and the width of these."""

    timestep: Any
    """A `TimestepEncoder`, or what has its methods."""
    trajectory: Any
    """A `TrajectoryEncoder`."""
    state_size: int
    """Width of the states."""


@dataclass(frozen=True, kw_only=True)
class PPOAgentConfig(NetworksConfig):
    """Architecture of the agent. The probabilities of actions are not clipped (`actor.probability_clip`)."""

    value: ValueConfig = field(default_factory=ValueConfig)
    acting_gamma: float = 0.99
    """Discount factor, whatever that of the recipe: returns of hundreds of steps have more noise than an iteration can
    average. Raise it where rewards come more than a hundred steps after what they depend on."""
    initial_std: float = 0.6
    """Standard deviation of the Gaussian whose tanh is a continuous action, at the start of training."""
    actor_output_scale: float = 0.01
    """Factor of the actor's initial output weights, so that all actions start about equally likely in every state
    (Andrychowicz et al. 2021, section 3.2)."""
    max_one_hot_choices: int = 0
    """As for AMAGO: number of choices above which they are embedded in the networks' inputs; 0: one-hot vectors."""

    def __post_init__(self) -> None:
        check_range(self, "acting_gamma", gt=0, lt=1)
        check_range(self, "initial_std", gt=math.exp(MIN_LOG_STD), lt=math.exp(MAX_LOG_STD))
        check_range(self, "actor_output_scale", "max_one_hot_choices", ge=0)

    @override
    def with_head_sizes(self, hidden_sizes: Sequence[int]) -> "PPOAgentConfig":
        value = replace(self.value, hidden_sizes=tuple(hidden_sizes))
        return replace(super().with_head_sizes(hidden_sizes), value=value)

    def embeds(self, action_space: PolicyActionSpace) -> bool:
        """Return whether the choices of actions are embedded."""
        return 0 < self.max_one_hot_choices < sum(num_choices(action_space))

    def build_encoders(
        self, leaves: Mapping[str, Leaf], action_space: PolicyActionSpace, *, context_length: int, horizon: int
    ) -> AgentEncoders:
        """Return the encoders for these spaces; the arguments are those of `PPOAgent`."""
        timestep = self.timestep_encoder.build(leaves, action_space, embeds=self.embeds(action_space))
        trajectory = self.trajectory_encoder.build(
            input_size=self.timestep_encoder.output_size, attention_window=context_length + 1, max_timestep=horizon
        )
        return AgentEncoders(timestep, trajectory, self.trajectory_encoder.state_size)


class PPOAgent(ActingModel):
    """Maps batches to states, and states to a policy and a value. Both share the encoders.

    Args:
        config: Architecture.
        observation_space: Space of one observation.
        action_space: Action space of the policy.
        context_length: Number of transitions in a training window; memory has one more timestep.
        horizon: Maximum number of steps of a trial.
    """

    def __init__(
        self,
        config: PPOAgentConfig,
        *,
        observation_space: spaces.Space,
        action_space: PolicyActionSpace,
        context_length: int,
        horizon: int,
    ) -> None:
        super().__init__()
        self.config, self.horizon, self.gamma = config, horizon, config.acting_gamma
        self.context_length = context_length
        self.timestep_encoder, self.trajectory_encoder, state_size = config.build_encoders(
            flatten_space(observation_space), action_space, context_length=context_length, horizon=horizon
        )
        self.actor = Actor(
            config.actor,
            input_size=state_size,
            action_space=action_space,
            num_gammas=1,
            embeds=config.embeds(action_space),
        )
        self.actor.clip = _CLIP
        self._start_actor(config, is_box=isinstance(action_space, spaces.Box))
        self.value = MLP(state_size, config.value.hidden_sizes, 1, config.value.activation, float32_output=True)
        statistics = PopArtConfig(beta=config.value.statistics_rate)
        self.value_code = statistics.build(1, normalize=True)

    @torch.no_grad()
    def _start_actor(self, config: PPOAgentConfig, *, is_box: bool) -> None:
        output = self.actor.mlp.output
        output.weight.mul_(config.actor_output_scale)
        output.bias.zero_()
        if is_box:
            # the inverse of `TanhGaussianPolicy.from_outputs`
            half_range = 0.5 * (MAX_LOG_STD - MIN_LOG_STD)
            raw = math.atanh((math.log(config.initial_std) - MIN_LOG_STD) / half_range - 1.0)
            output.bias[self.actor.action_size :] = raw

    @override
    def acting_module(self, name: str) -> Any:
        return getattr(self, name)

    def policy_parameters(self) -> list[nn.Parameter]:
        """Return the parameters that the losses of PPO train."""
        return list(self.parameters())

    def features(self, batch: Batch) -> Float[Tensor, "N F"]:
        """Return the vector part of the timestep encoder's input, before normalization."""
        return batch_features(self.timestep_encoder, batch)

    def encode(self, batch: Batch) -> Float[Tensor, "N D"]:
        """Return the states of all tokens, in float32 at least."""
        timestep_ND = self.timestep_encoder(self.features(batch), batch.observation)
        return at_least_float32(self.trajectory_encoder(timestep_ND, batch))

    def update_normalizers(self, batch: Batch) -> None:
        """Update the running moments of the networks' inputs from a batch."""
        self.timestep_encoder.update_normalizers(self.features(batch), batch.observation, batch.token_mask)

    def predict(self, state_ND: Float[Tensor, "N D"], batch: Batch) -> tuple[PolicyDistribution, Float[Tensor, "N"]]:
        """Return the policy and the normalized values."""
        return self.actor(state_ND, batch.action_mask), self.normalized_value(state_ND)

    def normalized_value(self, state_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N"]:
        """Return values in standard deviations of the value targets."""
        return self.value(state_ND)[:, 0]

    def value_of(self, normalized_N: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        """Return values in units of reward."""
        return self.value_code.denormalize(normalized_N[:, None, None])[:, 0, 0]

    def normalize(self, value_N: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        """Return normalized values of values in units of reward."""
        return self.value_code.normalize(value_N[:, None])[:, 0]

    @torch.no_grad()
    def update_value_statistics(self, target_N: Float[Tensor, "N"]) -> None:
        """Update mean and deviation of the value targets; no value changes (van Hasselt et al. 2016)."""
        code, output = self.value_code, self.value.output
        code.update(target_N[:, None], torch.ones_like(target_N, dtype=torch.bool))
        output.weight.mul_(code.scale_G)
        output.bias.mul_(code.scale_G).add_(code.shift_G)
        code.scale_G.fill_(1.0)
        code.shift_G.fill_(0.0)
