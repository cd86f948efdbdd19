"""`RecurrentAgent`: actor and critics with a memory each, and target networks."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from gymnasium import spaces
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from typing_extensions import override

from yamame.algorithms.acting_model import ActingModel, batch_features
from yamame.algorithms.networks import NetworksConfig
from yamame.algorithms.recurrent_sac.deterministic_actor import DeterministicActor
from yamame.data.actions import PolicyActionSpace, num_choices
from yamame.data.batch import Batch
from yamame.data.spaces import Leaf, flatten_space
from yamame.distributed_context import SINGLE_PROCESS, DistributedContext
from yamame.errors import ConfigFieldError, UserError, check_range
from yamame.nets.blocks import at_least_float32, concat_one_hot, power_iteration, sigma_layers
from yamame.nets.heads.actor import Actor, ActorConfig, PolicyDistribution
from yamame.nets.heads.critic import CriticConfig, DiscreteCritic
from yamame.nets.heads.distributions import CategoricalPolicy
from yamame.nets.sequence.base import TrajectoryEncoderConfig
from yamame.nets.sequence.gru import GRUConfig
from yamame.nets.timestep.encoder import TimestepEncoderConfig


@dataclass(frozen=True, kw_only=True)
class RecurrentAgentConfig(NetworksConfig):
    """Architecture of the agent. Sizes are about those of Ni et al.: one recurrent layer of 128, heads of 128 x 2."""

    timestep_encoder: TimestepEncoderConfig = field(
        default_factory=lambda: TimestepEncoderConfig(hidden_sizes=(64,), output_size=64)
    )
    trajectory_encoder: TrajectoryEncoderConfig = field(default_factory=lambda: GRUConfig(d_model=128, num_layers=1))
    """Memory, of which actor and critics have one each."""
    actor: ActorConfig = field(
        default_factory=lambda: ActorConfig(hidden_sizes=(128, 128), probability_clip=(1e-8, 1.0))
    )
    """Probabilities of discrete actions are practically not clipped: the entropy bonus keeps them apart from 0."""
    num_critics: int = 2
    """Number of independent critics, the minimum of which is the value."""
    critic_hidden_sizes: tuple[int, ...] = (128, 128)
    """Widths of the hidden layers of a critic; at least one."""
    acting_gamma: float = 0.99
    """Discount factor."""
    shared: bool = False
    """Actor and critics have one timestep encoder and one memory together, which the critics' gradient alone trains:
    an update encodes a batch once less."""

    def __post_init__(self) -> None:
        check_range(self, "num_critics", "critic_hidden_sizes", ge=1)
        check_range(self, "acting_gamma", gt=0, lt=1)
        if not self.critic_hidden_sizes:
            raise ConfigFieldError(self, "critic_hidden_sizes", "must have at least one hidden layer, got ()")

    @override
    def with_head_sizes(self, hidden_sizes: Sequence[int]) -> "RecurrentAgentConfig":
        return replace(super().with_head_sizes(hidden_sizes), critic_hidden_sizes=tuple(hidden_sizes))

    @property
    def critic(self) -> CriticConfig:
        """The heads of the critics."""
        return CriticConfig(
            num_critics=self.num_critics, hidden_sizes=self.critic_hidden_sizes, activation=self.actor.activation
        )


class Encoders(nn.Module):
    """A timestep encoder and a trajectory encoder: batch -> states."""

    def __init__(
        self,
        config: RecurrentAgentConfig,
        *,
        leaves: Mapping[str, Leaf],
        action_space: PolicyActionSpace,
        context_length: int,
        horizon: int,
    ) -> None:
        super().__init__()
        self.timestep_encoder = config.timestep_encoder.build(leaves, action_space)
        self.trajectory_encoder = config.trajectory_encoder.build(
            input_size=config.timestep_encoder.output_size, attention_window=context_length + 1, max_timestep=horizon
        )

    def forward(self, features_NF: Float[Tensor, "N F"], batch: Batch) -> Float[Tensor, "N D"]:
        """Return the states of all tokens, in float32 at least."""
        return at_least_float32(self.trajectory_encoder(self.timestep_encoder(features_NF, batch.observation), batch))


class RecurrentAgent(ActingModel):
    """Actor and critics, each with a timestep encoder and a trajectory encoder of its own, or with shared ones.

    The critics have target copies, their encoders included; with `deterministic` the actor has one, too.

    Args:
        config: Architecture.
        observation_space: Space of one observation.
        action_space: Action space of the policy.
        context_length: Number of transitions in a training window; memory has one more timestep.
        horizon: Maximum number of steps of a trial.
        initial_temperature: Temperature before the first update.
        deterministic: The actor returns an action without noise (TD3). Raises `UserError` for discrete actions.
    """

    def __init__(
        self,
        config: RecurrentAgentConfig,
        *,
        observation_space: spaces.Space,
        action_space: PolicyActionSpace,
        context_length: int,
        horizon: int,
        initial_temperature: float,
        deterministic: bool = False,
    ) -> None:
        super().__init__()
        self.config = config
        self.horizon = horizon
        self.action_choices = num_choices(action_space)
        """Number of choices of each component of a discrete action; empty: continuous."""
        leaves = flatten_space(observation_space)
        shapes = {"leaves": leaves, "context_length": context_length, "horizon": horizon}
        self.encoders = Encoders(config, action_space=action_space, **shapes)  # type: ignore[arg-type]
        """Of the actor; of the critics, too, if they are shared."""
        self.critic_encoders = None if config.shared else Encoders(config, action_space=action_space, **shapes)  # type: ignore[arg-type]
        state_size = config.trajectory_encoder.state_size
        self.actor: Actor | DeterministicActor
        if deterministic:
            if not isinstance(action_space, spaces.Box):
                raise UserError("TD3 needs continuous actions: use --learner.method sac for discrete ones")
            self.actor = DeterministicActor(config.actor, input_size=state_size, action_space=action_space)
        else:
            self.actor = Actor(config.actor, input_size=state_size, action_space=action_space, num_gammas=1)
        self.critic = config.critic.build(
            input_size=state_size, action_space=action_space, gammas_G=torch.tensor([config.acting_gamma])
        )
        self.log_temperature = nn.Parameter(torch.tensor(float(initial_temperature)).log())
        self.target_encoders = copy.deepcopy(self.value_encoders).requires_grad_(False)
        self.target_critic = copy.deepcopy(self.critic).requires_grad_(False)
        self.target_actor: nn.Module | None = None
        self.target_actor_encoders: Encoders | None = None
        if deterministic:
            self.target_actor = copy.deepcopy(self.actor).requires_grad_(False)
            if not config.shared:
                self.target_actor_encoders = copy.deepcopy(self.encoders).requires_grad_(False)
        self.train()

    @property
    def value_encoders(self) -> Encoders:
        """The encoders of the critics."""
        return self.encoders if self.critic_encoders is None else self.critic_encoders

    @override
    def train(self, mode: bool = True) -> "RecurrentAgent":
        """Set the mode of all networks but the targets, which never drop out."""
        super().train(mode)
        for target in (self.target_encoders, self.target_actor_encoders):
            if target is not None:
                target.eval()
        return self

    @override
    def acting_module(self, name: str) -> Any:
        return self.actor if name == "actor" else getattr(self.encoders, name)

    def actor_parameters(self) -> list[nn.Parameter]:
        """Return the weights that the actor's loss trains."""
        encoders = [] if self.config.shared else list(self.encoders.parameters())
        return [*encoders, *self.actor.parameters()]

    def critic_parameters(self) -> list[nn.Parameter]:
        """Return the weights that the critics' loss trains."""
        return [*self.value_encoders.parameters(), *self.critic.parameters()]

    def features(self, batch: Batch) -> Float[Tensor, "N F"]:
        """Return the vector part of the input of all timestep encoders, before normalization."""
        return batch_features(self.encoders.timestep_encoder, batch)

    @torch.no_grad()
    def update_statistics(
        self, features_NF: Float[Tensor, "N F"], batch: Batch, distributed: DistributedContext = SINGLE_PROCESS
    ) -> None:
        """Update the input normalizers from a batch, which are the same in all encoders, and spectral norms."""
        first = self.encoders.timestep_encoder
        first.update_normalizers(features_NF, batch.observation, batch.token_mask, distributed)
        for encoders in self._all_encoders():
            power_iteration(sigma_layers(encoders.trajectory_encoder))
            if encoders is not self.encoders:
                torch._foreach_copy_(list(encoders.timestep_encoder.buffers()), list(first.buffers()))

    def statistics(self) -> list[Tensor]:
        """Return what `update_statistics` changes."""
        return [buffer for encoders in self._all_encoders() for buffer in encoders.buffers()]

    def action_values(
        self, state_ND: Float[Tensor, "N D"], action: Shaped[Tensor, "N ..."], *, target: bool = False
    ) -> Float[Tensor, "N K"]:
        """Return Q(s, a) of each critic, or target critic, for actions in the format of `Batch.action`."""
        critic = self.target_critic if target else self.critic
        if isinstance(critic, DiscreteCritic):
            index_NK1 = action[:, None, None].expand(-1, self.config.num_critics, 1)
            return _all_values(critic, state_ND).gather(2, index_NK1).squeeze(2)
        vector_NA = concat_one_hot(action, self.action_choices) if self.action_choices else action
        q_NKGZ: Tensor = critic(state_ND, vector_NA.to(state_ND.dtype)[:, None])
        return q_NKGZ[..., 0, 0]

    def policy_values(
        self,
        state_ND: Float[Tensor, "N D"],
        policy: PolicyDistribution,
        noise_NGA: Float[Tensor, "N G _"] | None,
        *,
        target: bool,
    ) -> Float[Tensor, "N"]:
        """Return the minimum over the critics of Q(s, pi), with a gradient to the policy alone.

        A single discrete choice: the exact expectation of the minimum of each action. Otherwise: of the action made
        from the noise.
        """
        critic = self.target_critic if target else self.critic
        state_ND = state_ND.detach()
        if isinstance(policy, CategoricalPolicy):
            return (self.choice_values(state_ND, target=target) * policy.probability_NGA[:, 0]).sum(1)
        q_NKG = policy.expected_value(
            lambda action_NGA: critic(state_ND, action_NGA, detach_weights=True).squeeze(-1), noise_NGA
        )
        return q_NKG.min(dim=1).values[:, 0]

    @torch.no_grad()
    def choice_values(self, state_ND: Float[Tensor, "N D"], *, target: bool = False) -> Float[Tensor, "N A"]:
        """Return the minimum over the critics of Q(s, a) for every action of a single discrete choice."""
        critic = self.target_critic if target else self.critic
        assert isinstance(critic, DiscreteCritic)
        return _all_values(critic, state_ND).amin(1)

    @torch.no_grad()
    def mean_policy_values(self, state_ND: Float[Tensor, "N D"], policy: PolicyDistribution) -> Float[Tensor, "N"]:
        """Return the value of the policy, mean over the critics.

        A single discrete choice: the expectation. Otherwise: the value of the mode.
        """
        if isinstance(self.critic, DiscreteCritic):
            q_NA = _all_values(self.critic, state_ND).mean(1)
            return (q_NA * policy.probability_NGA[:, 0]).sum(1)  # type: ignore[union-attr]
        return self.action_values(state_ND, policy.mode()[:, 0]).mean(1)

    def max_entropy(self, batch: Batch) -> Float[Tensor, "N"]:
        """Return the entropy of uniform choices among the allowed ones, for discrete actions."""
        mask_NA = batch.action_mask
        if mask_NA is None:
            sizes = torch.tensor(self.action_choices, dtype=torch.float32, device=batch.reward.device)
            return sizes.log().sum().expand(len(batch.reward))
        counts = [part_NA.sum(1) for part_NA in mask_NA.split(list(self.action_choices), dim=1)]
        return torch.stack(counts, dim=1).float().log().sum(1)

    @torch.no_grad()
    def update_targets(self, rate: Float[Tensor, ""]) -> None:
        """Update the target networks: target <- target + rate (online - target)."""
        pairs: list[tuple[nn.Module | None, nn.Module]] = [
            (self.target_encoders, self.value_encoders),
            (self.target_critic, self.critic),
            (self.target_actor_encoders, self.encoders),
            (self.target_actor, self.actor),
        ]
        target: list[Tensor] = [each for module, _ in pairs if module is not None for each in module.parameters()]
        online: list[Tensor] = [each for module, online in pairs if module is not None for each in online.parameters()]
        step = torch._foreach_sub(online, target)
        torch._foreach_mul_(step, rate)
        torch._foreach_add_(target, step)

    def _all_encoders(self) -> list[Encoders]:
        every = (self.encoders, self.critic_encoders, self.target_encoders, self.target_actor_encoders)
        return [encoders for encoders in every if encoders is not None]


def _all_values(critic: DiscreteCritic, state_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N K A"]:
    """Return Q(s, a) of every action."""
    q_NKGAZ: Tensor = critic(state_ND)
    return q_NKGAZ[:, :, 0, :, 0]
