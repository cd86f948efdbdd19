"""The discount factors trained together (multi-gamma) and the one that acts."""

import copy
from dataclasses import dataclass, field

import torch
from gymnasium import spaces
from jaxtyping import Bool, Float
from torch import Tensor, nn

from yamame.data.actions import PolicyActionSpace
from yamame.data.batch import Batch, Predictions
from yamame.data.spaces import flatten_space
from yamame.distributed_context import SINGLE_PROCESS, DistributedContext
from yamame.errors import UserError, check_range
from yamame.nets.heads.actor import Actor, ActorConfig
from yamame.nets.heads.critic import CriticConfig
from yamame.nets.heads.world_model import WorldModel
from yamame.nets.sequence.base import TrajectoryEncoderConfig
from yamame.nets.sequence.transformer import TransformerConfig
from yamame.nets.timestep.encoder import TimestepEncoderConfig

PAPER_DISCRETE = (
    0.7, 0.9, 0.93, 0.95, 0.98, 0.99, 0.992, 0.994, 0.995, 0.997, 0.998, 0.999, 0.9991, 0.9992, 0.9993, 0.9994, 0.9995,
)  # fmt: skip
"""The paper's list for discrete actions."""

PAPER_CONTINUOUS = (0.9, 0.95, 0.99, 0.993, 0.996)
"""The paper's list for continuous actions."""

SHORT_GAMMAS = (0.1, 0.9, 0.95, 0.97, 0.99, 0.995)
"""The authors' later default: a third of the cost of the long list."""


_MAX_CHANGE = 10.0
"""Deviations from the mean beyond which nothing is predicted, so that rare numbers do not rule the loss."""


@dataclass(frozen=True, kw_only=True)
class AgentConfig:
    """Everything that fixes the network's shape."""

    timestep_encoder: TimestepEncoderConfig = field(default_factory=TimestepEncoderConfig)
    trajectory_encoder: TrajectoryEncoderConfig = field(default_factory=TransformerConfig)
    actor: ActorConfig = field(default_factory=ActorConfig)
    critic: CriticConfig = field(default_factory=CriticConfig)
    multi_gamma: bool = True
    """Train for many discounts at once; off: for the acting one alone (the paper's ablation)."""
    gammas: tuple[float, ...] = ()
    """Discounts trained beside the acting one; empty: the paper's list for the kind of action."""
    acting_gamma: float = 0.999
    """The discount whose policy acts."""
    popart: bool = True
    """Normalise values with PopArt; off: the paper's ablation."""

    def __post_init__(self) -> None:
        check_range(self, "gammas", "acting_gamma", gt=0, lt=1)

    def all_gammas(self, action_space: PolicyActionSpace) -> tuple[float, ...]:
        """The G discounts; the acting one stands last."""
        if not self.multi_gamma:
            return (self.acting_gamma,)
        paper = PAPER_CONTINUOUS if isinstance(action_space, spaces.Box) else PAPER_DISCRETE
        return (*(self.gammas or paper), self.acting_gamma)


class Agent(nn.Module):
    """batch -> states -> predictions. Only the heads have slow copies: the encoders have none (paper section 3).

    `context_length` is the number of transitions in a training window; memory holds one timestep more. `world_model`:
    whether there is a head for `WorldModelLoss`; `UserError` if so and the observation has no numbers to predict.
    """

    def __init__(
        self,
        config: AgentConfig,
        *,
        observation_space: spaces.Space,
        action_space: PolicyActionSpace,
        context_length: int,
        horizon: int,
        world_model: bool = False,
    ) -> None:
        super().__init__()
        self.config = config
        self.horizon = horizon
        discounts = config.all_gammas(action_space)
        self.acting_index = len(discounts) - 1
        self.gammas_G: Tensor
        self.register_buffer("gammas_G", torch.tensor(discounts), persistent=False)
        self.timestep_encoder = config.timestep_encoder.build(flatten_space(observation_space), action_space)
        self.trajectory_encoder = config.trajectory_encoder.build(
            input_size=config.timestep_encoder.output_size, attention_window=context_length + 1, max_timestep=horizon
        )
        state_size = config.trajectory_encoder.state_size
        self.actor = Actor(config.actor, input_size=state_size, action_space=action_space, num_gammas=len(discounts))
        self.value_code = config.critic.value_code.build(len(discounts), normalize=config.popart)
        self.critic = config.critic.build(
            input_size=state_size,
            action_space=action_space,
            gammas_G=self.gammas_G,
            num_outputs=self.value_code.num_outputs,
        )
        self.target_actor = copy.deepcopy(self.actor).requires_grad_(False)
        self.target_critic = copy.deepcopy(self.critic).requires_grad_(False)
        self.world_model = self._new_world_model(action_space) if world_model else None

    def features(self, batch: Batch) -> Float[Tensor, "N F"]:
        """The vector part of the input of a batch, before normalisation."""
        return self.timestep_encoder.features(
            observation=batch.observation,
            previous_action=batch.previous_action,
            previous_reward=batch.previous_reward,
            episode_start=batch.episode_start,
            time=batch.time,
            horizon=batch.horizon,
        )

    def encode(self, features_NF: Float[Tensor, "N F"], batch: Batch) -> Float[Tensor, "N D"]:
        """States of all tokens."""
        return self.trajectory_encoder(self.timestep_encoder(features_NF, batch.observation), batch)

    def update_normalizers(
        self, features_NF: Float[Tensor, "N F"], batch: Batch, ranks: DistributedContext = SINGLE_PROCESS
    ) -> None:
        """Move the running moments of the inputs, and of what the world model predicts, towards those of a batch."""
        self.timestep_encoder.normalizer.update(features_NF, batch.token_mask, ranks)
        if self.world_model is not None:
            self.world_model.normalizer.update(
                self._changes(features_NF, self.world_model.output_size), batch.loss_mask, ranks
            )

    def running_stats(self) -> list[Tensor]:
        """All running moments: what `observe` and PopArt move."""
        normalizers = [self.timestep_encoder.normalizer]
        if self.world_model is not None:
            normalizers.append(self.world_model.normalizer)
        return [*self.value_code.buffers(), *(moment for normalizer in normalizers for moment in normalizer.buffers())]

    @torch.no_grad()
    def observation_deltas(self, features_NF: Float[Tensor, "N F"]) -> Float[Tensor, "N O"] | None:
        """What the world model of each token is to predict: how its observation changes, normalised.

        It means nothing at the last slot of a window. None without such a head.
        """
        if self.world_model is None:
            return None
        target_delta_NO = self.world_model.normalizer(self._changes(features_NF, self.world_model.output_size))
        return target_delta_NO.clamp(-_MAX_CHANGE, _MAX_CHANGE)

    @torch.no_grad()
    def target_values(
        self,
        state_ND: Float[Tensor, "N D"],
        mask_NA: Bool[Tensor, "N A"] | None,
        noise_NGA: Float[Tensor, "N G A"] | None,
    ) -> Float[Tensor, "N K G"]:
        """Q(s, pi) by the slow heads, in units of scaled reward.

        `mask_NA` is `Batch.action_mask`, `noise_NGA` from `Actor.noise`.
        """
        raw = self.target_critic.policy_q(state_ND, self.target_actor(state_ND, mask_NA), noise_NGA, self.value_code)
        return self.value_code.denormalize(raw)

    def predict(
        self,
        state_ND: Float[Tensor, "N D"],
        batch: Batch,
        td_target_NG: Float[Tensor, "N G"],
        noise_NGA: Float[Tensor, "N G A"] | None,
        target_delta_NO: Float[Tensor, "N O"] | None = None,
    ) -> Predictions:
        """All that the losses look at.

        `td_target_NG` is normalised, `noise_NGA` from `Actor.noise`, `target_delta_NO` from `changes`.
        """
        policy = self.actor(state_ND, batch.action_mask)
        output, q_policy = self.critic.q_values(state_ND, batch.action, policy, noise_NGA, self.value_code)
        return Predictions(
            log_prob_NG=policy.log_prob(batch.action),
            entropy_NG=policy.entropy(noise_NGA),
            q_data_NKG=self.value_code.decode(output),
            q_policy_NKG=q_policy,
            td_target_NG=td_target_NG,
            td_loss_NKG=self.value_code.loss(output, td_target_NG),
            q_scale_G=self.value_code.scale_G.clone(),
            q_shift_G=self.value_code.shift_G.clone(),
            predicted_delta_NO=None if self.world_model is None else self.world_model(state_ND, batch.action),
            target_delta_NO=target_delta_NO,
        )

    @torch.no_grad()
    def update_targets(self, rate: float | Float[Tensor, ""]) -> None:
        """target <- target + rate (online - target), for both heads."""
        slow: list[Tensor] = [*self.target_actor.parameters(), *self.target_critic.parameters()]
        online: list[Tensor] = [*self.actor.parameters(), *self.critic.parameters()]
        step = torch._foreach_sub(online, slow)
        torch._foreach_mul_(step, rate)
        torch._foreach_add_(slow, step)

    @torch.no_grad()
    def _changes(self, features_NF: Float[Tensor, "N F"], outputs: int) -> Float[Tensor, "N O"]:
        shown_NO = self.timestep_encoder.normalizer(features_NF)[:, :outputs]
        return shown_NO.roll(-1, dims=0) - shown_NO

    def _new_world_model(self, action_space: PolicyActionSpace) -> WorldModel:
        outputs = self.timestep_encoder.vector.observation_size
        if not outputs:
            raise UserError(
                "the observation has no numbers that a world model could predict: set --learner.world-model.weight 0"
            )
        inputs = self.config.trajectory_encoder.state_size
        return WorldModel(self.config.critic, input_size=inputs, output_size=outputs, action_space=action_space)
