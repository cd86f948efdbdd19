"""`VariBADAgent`: the agent of PPO on hyper-states, and the decoder that trains the belief in them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from gymnasium import spaces
from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import override

from yamame.algorithms.networks import NetworksConfig
from yamame.algorithms.ppo.agent import AgentEncoders, PPOAgent, PPOAgentConfig
from yamame.algorithms.varibad.belief import Belief, BeliefEncoder
from yamame.algorithms.varibad.decoder import DecoderConfig, RewardDecoder
from yamame.algorithms.varibad.inputs import HyperStateTimestepEncoder, PresentEncoder
from yamame.data.actions import PolicyActionSpace
from yamame.data.batch import Batch
from yamame.data.spaces import Leaf, flatten_space
from yamame.errors import UserError, check_range
from yamame.nets.sequence.base import SupportsFunctionalStep, SupportsStaticStep, TrajectoryEncoderConfig
from yamame.nets.sequence.gru import GRUConfig


@dataclass(frozen=True, kw_only=True)
class VariBADAgentConfig(PPOAgentConfig):
    """Architecture of the agent: `timestep_encoder` and `trajectory_encoder` are those of the belief."""

    trajectory_encoder: TrajectoryEncoderConfig = field(default_factory=lambda: GRUConfig(d_model=128, num_layers=1))
    latent_size: int = 5
    """Number of components of the latent m."""
    present_hidden_sizes: tuple[int, ...] = (64,)
    """Widths of the hidden layers that encode the present observation for policy and value."""
    present_size: int = 64
    """Width of the encoded observation."""
    decoder: DecoderConfig = field(default_factory=DecoderConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "latent_size", "present_hidden_sizes", "present_size", ge=1)

    @override
    def like(self, other: NetworksConfig) -> "VariBADAgentConfig":
        """Return the config with the timestep encoder and the widths of heads of another one; the memory stays."""
        like: VariBADAgentConfig = super().like(other)
        return replace(like, trajectory_encoder=self.trajectory_encoder)

    @override
    def build_encoders(
        self, leaves: Mapping[str, Leaf], action_space: PolicyActionSpace, *, context_length: int, horizon: int
    ) -> AgentEncoders:
        history, encoder, encoder_size = super().build_encoders(
            leaves, action_space, context_length=context_length, horizon=horizon
        )
        if not all(isinstance(encoder, each) for each in (SupportsStaticStep, SupportsFunctionalStep)):
            raise UserError(
                f"varibad cannot use {type(encoder).__name__}, which lacks static_step or functional_step: derive it "
                f"from yamame.nets.sequence.base.RecurrentEncoder"
            )
        present = self.build_present_encoder(
            leaves, action_space, self.present_hidden_sizes, self.present_size, sees_action=False, sees_time=True
        )
        belief = BeliefEncoder(
            encoder, history_size=history.output_size, encoder_size=encoder_size, latent_size=self.latent_size
        )
        return AgentEncoders(
            HyperStateTimestepEncoder(history, present), belief, self.present_size + 2 * self.latent_size
        )

    def build_present_encoder(
        self,
        leaves: Mapping[str, Leaf],
        action_space: PolicyActionSpace,
        hidden_sizes: tuple[int, ...],
        output_size: int,
        *,
        sees_action: bool,
        sees_time: bool,
    ) -> PresentEncoder:
        """Return an encoder of observations with these sizes; else it is like the timestep encoder of the belief."""
        config = replace(self.timestep_encoder, hidden_sizes=hidden_sizes, output_size=output_size)
        encoder = config.build(leaves, action_space, embeds=self.embeds(action_space))
        return PresentEncoder(encoder, sees_action=sees_action, sees_time=sees_time)


class VariBADAgent(PPOAgent):
    """Maps batches to beliefs and hyper-states, hyper-states to a policy and a value, and beliefs to rewards.

    The belief is trained by the decoder alone: no gradient of policy or value reaches it. The arguments are those of
    `PPOAgent`.
    """

    timestep_encoder: HyperStateTimestepEncoder
    trajectory_encoder: BeliefEncoder

    def __init__(
        self,
        config: VariBADAgentConfig,
        *,
        observation_space: spaces.Space,
        action_space: PolicyActionSpace,
        context_length: int,
        horizon: int,
    ) -> None:
        super().__init__(
            config,
            observation_space=observation_space,
            action_space=action_space,
            context_length=context_length,
            horizon=horizon,
        )
        encoder = config.build_present_encoder(
            flatten_space(observation_space),
            action_space,
            config.decoder.feature_hidden_sizes,
            config.decoder.feature_size,
            sees_action=True,
            sees_time=False,
        )
        self.decoder = RewardDecoder(config.decoder, encoder, latent_size=config.latent_size)

    @override
    def policy_parameters(self) -> list[nn.Parameter]:
        of_belief = {id(each) for each in self.belief_parameters()}
        return [each for each in self.parameters() if id(each) not in of_belief]

    def belief_parameters(self) -> list[nn.Parameter]:
        """Return the parameters of belief and decoder."""
        modules = (self.timestep_encoder.history, self.trajectory_encoder, self.decoder)
        return [each for module in modules for each in module.parameters()]

    def belief(self, features_NF: Float[Tensor, "N F"], batch: Batch) -> Belief:
        """Return the beliefs after all tokens."""
        history_ND = self.timestep_encoder.history(features_NF, batch.observation)
        return self.trajectory_encoder.belief(history_ND, batch)

    @override
    def encode(self, batch: Batch) -> Float[Tensor, "N D"]:
        """Return the hyper-states of all tokens, in float32 at least, without a gradient to the belief."""
        features_NF = self.features(batch)
        with torch.no_grad():
            belief = self.belief(features_NF, batch)
        present_ND = self.timestep_encoder.present(features_NF, batch.observation)
        return self.trajectory_encoder.hyper_states(present_ND, belief)

    @override
    @torch.no_grad()
    def update_normalizers(self, batch: Batch) -> None:
        super().update_normalizers(batch)
        belief = self.belief(self.features(batch), batch)
        self.trajectory_encoder.normalizer.update(torch.cat(belief, dim=1), batch.token_mask)
