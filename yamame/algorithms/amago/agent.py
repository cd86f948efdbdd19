"""`Agent`: encoders, actor, critics, target networks and an optional world model."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from gymnasium import spaces
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn
from typing_extensions import override

from yamame.algorithms.acting_model import ACTING_MODULES, ActingModel, batch_features
from yamame.algorithms.amago.gammas import PAPER_CONTINUOUS, PAPER_DISCRETE
from yamame.algorithms.amago.losses.td import TargetValues
from yamame.algorithms.amago.losses.world_model import WorldModel
from yamame.algorithms.amago.moving_copies import MovingCopies
from yamame.algorithms.amago.novelty import NoveltyPolicy, NoveltyPolicyConfig, has_observation
from yamame.algorithms.networks import NetworksConfig
from yamame.data.actions import PolicyActionSpace, num_choices
from yamame.data.batch import Batch, Predictions
from yamame.data.spaces import flatten_space
from yamame.distributed_context import SINGLE_PROCESS, DistributedContext
from yamame.errors import UserError, check_range
from yamame.nets.blocks import InputNormalizer, at_least_float32
from yamame.nets.heads.actor import Actor, detached
from yamame.nets.heads.critic import CriticConfig

NOVELTY_PREFIX = "novelty."
"""Prefix of the names of the policy of novelty's tensors."""
_MAX_ABS_DELTA = 10.0
"""Clip of normalized observation deltas, so that outliers do not dominate the world-model loss."""


@dataclass(frozen=True, kw_only=True)
class AgentConfig(NetworksConfig):
    """Architecture of the agent."""

    critic: CriticConfig = field(default_factory=CriticConfig)
    multi_gamma: bool = True
    """Train all gammas in parallel; off: only the acting one (paper: ablation)."""
    gammas: tuple[float, ...] = ()
    """Extra discount factors; empty: those of the paper for discrete or continuous actions."""
    acting_gamma: float = 0.999
    """Discount factor of the policy that acts."""
    evaluation_gamma_index: int = -1
    """Index of the gamma whose policy acts in evaluations, loaded policies and exports; -1: `acting_gamma` (paper).
    With `eval.choose_policy` the run chooses it after training, and this field has no effect."""
    max_one_hot_choices: int = 0
    """Number of choices, summed over the components of a discrete action, above which choices are embedded in the
    networks' inputs and critics evaluate samples of the policy. 0: choices are one-hot vectors, and critics evaluate
    every choice of a single component (paper)."""
    num_policy_samples: int = 0
    """Actions whose mean value is that of the policy in the losses of the actor; the critics' targets use one. Choices
    of discrete actions are then inputs of the critics, as Box actions are (AMAGO-2: 3). 0: one, and for a single
    discrete component the exact expectation over all choices (paper)."""
    popart: bool = True
    """Normalize values with PopArt; off: no normalization (paper: ablation). No effect on other value codes."""

    def __post_init__(self) -> None:
        check_range(self, "gammas", "acting_gamma", gt=0, lt=1)
        check_range(self, "max_one_hot_choices", "num_policy_samples", ge=0)

    @override
    def with_head_sizes(self, hidden_sizes: Sequence[int]) -> "AgentConfig":
        critic = replace(self.critic, hidden_sizes=tuple(hidden_sizes))
        return replace(super().with_head_sizes(hidden_sizes), critic=critic)

    def embeds(self, action_space: PolicyActionSpace) -> bool:
        """Return whether the choices of actions are embedded."""
        return 0 < self.max_one_hot_choices < sum(num_choices(action_space))

    def all_gammas(self, action_space: PolicyActionSpace) -> tuple[float, ...]:
        """Return the G discount factors; the acting one is the last."""
        if not self.multi_gamma:
            return (self.acting_gamma,)
        defaults = PAPER_CONTINUOUS if isinstance(action_space, spaces.Box) else PAPER_DISCRETE
        return (*(self.gammas or defaults), self.acting_gamma)


class Agent(ActingModel):
    """Maps batches to states and states to predictions.

    Paper: section 3. The heads have target networks, the encoders do not.

    Args:
        config: Architecture.
        observation_space: Space of one observation.
        action_space: Action space of the policy.
        context_length: Number of transitions in a training window; memory has one more timestep.
        horizon: Maximum number of steps of a trial.
        world_model: Add the head of `WorldModelLoss`. Raises `UserError` if the observation has no numeric leaves.
        averaged: Add moving averages of `ACTING_MODULES`, which then act.
        novelty: Policy of novelty, if it is enabled; None: there is none.
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
        averaged: bool = False,
        novelty: NoveltyPolicyConfig | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.horizon = horizon
        gammas = self.gammas = config.all_gammas(action_space)
        if not -len(gammas) <= config.evaluation_gamma_index < len(gammas):
            raise UserError(
                f"evaluation_gamma_index is {config.evaluation_gamma_index}: there are {len(gammas)} gammas"
            )
        self.gammas_G: Tensor
        self.register_buffer("gammas_G", torch.tensor(gammas), persistent=False)
        embeds = config.embeds(action_space)
        self.timestep_encoder = config.timestep_encoder.build(
            flatten_space(observation_space), action_space, embeds=embeds
        )
        self.trajectory_encoder = config.trajectory_encoder.build(
            input_size=config.timestep_encoder.output_size, attention_window=context_length + 1, max_timestep=horizon
        )
        state_size = config.trajectory_encoder.state_size
        samples = config.num_policy_samples > 0
        self.actor = Actor(
            config.actor,
            input_size=state_size,
            action_space=action_space,
            num_gammas=len(gammas),
            embeds=embeds,
            samples=samples,
        )
        self.value_code = config.critic.value_code.build(len(gammas), normalize=config.popart)
        self.critic = config.critic.build(
            input_size=state_size,
            action_space=action_space,
            gammas_G=self.gammas_G,
            num_outputs=self.value_code.num_outputs,
            embeds=embeds,
            samples=samples,
        )
        self.target_actor = copy.deepcopy(self.actor).requires_grad_(False)
        self.target_critic = copy.deepcopy(self.critic).requires_grad_(False)
        self.averaged: nn.ModuleDict | None = None
        if averaged:
            acting = {name: copy.deepcopy(getattr(self, name)) for name in ACTING_MODULES}
            self.averaged = nn.ModuleDict(acting).requires_grad_(False)
        self.world_model: WorldModel | None = None
        if world_model:
            output_size = self.timestep_encoder.observation_size
            if not output_size:
                raise UserError(
                    "the observation has no numeric leaves for a world model to predict: "
                    "set --learner.world-model.weight 0"
                )
            self.world_model = WorldModel(
                config.critic, input_size=state_size, output_size=output_size, action_space=action_space
            )

        self.novelty: NoveltyPolicy | None = None
        if novelty is not None and novelty.trial_fraction and has_observation(self.timestep_encoder):
            self.novelty = NoveltyPolicy(
                novelty,
                timestep_encoder=self.timestep_encoder,
                leaves=flatten_space(observation_space),
                action_space=action_space,
                embeds=embeds,
            )
        self.register_load_state_dict_pre_hook(_keep_own_novelty)

    def features(self, batch: Batch) -> Float[Tensor, "N F"]:
        """Return the vector part of the timestep encoder's input, before normalization."""
        return batch_features(self.timestep_encoder, batch)

    def encode(self, features_NF: Float[Tensor, "N F"], batch: Batch) -> Float[Tensor, "N D"]:
        """Return the states of all tokens, in float32 at least."""
        return at_least_float32(self.trajectory_encoder(self.timestep_encoder(features_NF, batch.observation), batch))

    def update_normalizers(
        self,
        features_NF: Float[Tensor, "N F"],
        batch: Batch,
        distributed: DistributedContext = SINGLE_PROCESS,
        *,
        of_inputs: bool = True,
    ) -> None:
        """Update the input and world-model normalizers from a batch; without `of_inputs`, only the latter."""
        if of_inputs:
            self.timestep_encoder.update_normalizers(features_NF, batch.observation, batch.token_mask, distributed)
        if self.world_model is not None:
            deltas_NO = self._deltas(features_NF, self.world_model.output_size)
            self.world_model.normalizer.update(deltas_NO, batch.loss_mask, distributed)

    def running_stats(self) -> list[Tensor]:
        """Return all running statistics: those of the normalizers and of PopArt."""
        parts = [self.timestep_encoder] if self.world_model is None else [self.timestep_encoder, self.world_model]
        normalizers = [module for part in parts for module in part.modules() if isinstance(module, InputNormalizer)]
        return [*self.value_code.buffers(), *(moment for normalizer in normalizers for moment in normalizer.buffers())]

    @torch.no_grad()
    def observation_deltas(self, features_NF: Float[Tensor, "N F"]) -> Float[Tensor, "N O"] | None:
        """Return the targets of the world model: normalized changes of the observation to the next token.

        Undefined at the last token of a window. None without a world model.
        """
        if self.world_model is None:
            return None
        deltas_NO = self._deltas(features_NF, self.world_model.output_size)
        target_delta_NO = self.world_model.normalizer(deltas_NO, self.gammas_G.dtype)
        return target_delta_NO.clamp(-_MAX_ABS_DELTA, _MAX_ABS_DELTA)

    @torch.no_grad()
    def target_values(
        self,
        state_ND: Float[Tensor, "N D"],
        mask_NA: Bool[Tensor, "N A"] | None,
        noise_NGA: Float[Tensor, "N G _"] | None,
        action: Shaped[Tensor, "N ..."] | None = None,
    ) -> TargetValues:
        """Return Q(s, pi(s)) of the target networks for each critic and gamma, in units of scaled reward.

        With the actions of the data, also their values and log-probabilities. The noise is that of
        `Actor.sample_noise`.
        """
        policy, code = self.target_actor(state_ND, mask_NA), self.value_code
        if action is None:
            q_policy = self.target_critic.policy_q(state_ND, policy, noise_NGA, code)
            return TargetValues(code.denormalize(q_policy), None, None)
        output, q_policy = self.target_critic.q_values(state_ND, action, policy, noise_NGA, code)
        q_data = code.denormalize(code.decode(output))
        return TargetValues(code.denormalize(q_policy), q_data, policy.executed_log_prob(action))

    def policy_noise(self, state_ND: Float[Tensor, "N D"], generator: torch.Generator) -> Float[Tensor, "N G _"] | None:
        """Return the noise of `predict`: that of `Actor.sample_noise` for each sample, side by side."""
        first = self.actor.sample_noise(state_ND, generator)
        if first is None or self.config.num_policy_samples <= 1:
            return first
        others = [self.actor.sample_noise(state_ND, generator) for _ in range(self.config.num_policy_samples - 1)]
        return torch.cat([first, *(noise for noise in others if noise is not None)], dim=-1)

    def predict(
        self,
        state_ND: Float[Tensor, "N D"],
        batch: Batch,
        td_target_NG: Float[Tensor, "N G"],
        noise_NGA: Float[Tensor, "N G _"] | None,
        target_delta_NO: Float[Tensor, "N O"] | None = None,
        *,
        policy_gradient: bool = True,
    ) -> Predictions:
        """Return the inputs of the losses, from normalized TD targets and `policy_noise`.

        Without `policy_gradient` the policy's value has no gradient, which takes less time.
        """
        policy = self.actor(state_ND, batch.action_mask)
        valued = policy if policy_gradient else detached(policy)
        first, *others = self._noise_of_samples(noise_NGA)
        output, q_policy = self.critic.q_values(state_ND, batch.action, valued, first, self.value_code)
        for noise in others:
            q_policy = q_policy + self.critic.frozen_policy_q(state_ND, valued, noise, self.value_code)
        if others:
            q_policy = q_policy / (1 + len(others))
        return Predictions(
            log_prob_NG=policy.log_prob(batch.action),
            entropy_NG=policy.entropy(first),
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
    def absorb_value_scale(self) -> None:
        """Move the scale of the value code into both kinds of critics, if so configured. No value changes."""
        code = self.value_code
        if code.rescale_critics:
            scale_G, shift_G = code.scale_G.clone(), code.shift_G.clone()
            self.target_critic.absorb_scale(scale_G, shift_G)
            remaining_scale_G, remaining_shift_G = self.critic.absorb_scale(scale_G, shift_G)
            code.scale_G.copy_(remaining_scale_G)
            code.shift_G.copy_(remaining_shift_G)

    def targets(self) -> MovingCopies:
        """Return the target networks: target <- target + rate (online - target)."""
        return MovingCopies([self.target_actor, self.target_critic], [self.actor, self.critic], with_buffers=False)

    def averages(self) -> MovingCopies | None:
        """Return the moving averages, if there are any. Buffers, such as the statistics of the inputs, are copied."""
        if self.averaged is None:
            return None
        return MovingCopies([self.averaged], [getattr(self, name) for name in ACTING_MODULES], with_buffers=True)

    @override
    def acting_module(self, name: str) -> Any:
        """Return one of `ACTING_MODULES`: its moving average if there is one."""
        return getattr(self, name) if self.averaged is None else self.averaged[name]

    def _noise_of_samples(self, noise_NGA: Float[Tensor, "N G _"] | None) -> Sequence[Float[Tensor, "N G _"] | None]:
        if noise_NGA is None or self.config.num_policy_samples <= 1:
            return (noise_NGA,)
        return [noise.contiguous() for noise in noise_NGA.chunk(self.config.num_policy_samples, dim=-1)]

    @torch.no_grad()
    def _deltas(self, features_NF: Float[Tensor, "N F"], output_size: int) -> Float[Tensor, "N O"]:
        observation_NO = self.timestep_encoder.normalizer(features_NF, features_NF.dtype)[:, :output_size]
        return observation_NO.roll(-1, dims=0) - observation_NO


def _keep_own_novelty(agent: Agent, state: dict[str, Any], *_: Any) -> None:
    """Leave the policy of novelty as it is if the state has none, and drop that of a state if the agent has none.

    What is new belongs to one run, and acts in it alone: other runs start from its other weights, and with their own.
    """
    own = {} if agent.novelty is None else agent.novelty.state_dict(prefix=NOVELTY_PREFIX)
    for name in [name for name in state if name.startswith(NOVELTY_PREFIX) and name not in own]:
        del state[name]
    for name, tensor in own.items():
        state.setdefault(name, tensor)
