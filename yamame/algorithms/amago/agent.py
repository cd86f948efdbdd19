"""`Agent`: encoders, actor, critics, target networks and an optional world model."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from gymnasium import spaces
from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import override

from yamame.algorithms.acting_model import ACTING_MODULES, ActingModel, batch_features
from yamame.algorithms.amago.gammas import PAPER_CONTINUOUS, PAPER_DISCRETE
from yamame.algorithms.amago.heads import Heads
from yamame.algorithms.amago.losses.world_model import WorldModel
from yamame.algorithms.amago.moving_copies import MovingCopies
from yamame.algorithms.amago.novelty import NoveltyPolicy, NoveltyPolicyConfig, has_observation
from yamame.algorithms.amago.separate_heads import SeparateHeads
from yamame.algorithms.networks import NetworksConfig
from yamame.data.actions import PolicyActionSpace, num_choices
from yamame.data.batch import Batch
from yamame.data.spaces import flatten_space
from yamame.distributed_context import SINGLE_PROCESS, DistributedContext
from yamame.errors import UserError, check_range
from yamame.nets.blocks import InputNormalizer, at_least_float32
from yamame.nets.heads.actor import Actor
from yamame.nets.heads.critic import CriticConfig

NOVELTY_PREFIX, SEPARATE_PREFIX = "novelty.", "separate."
"""Prefixes of the names of the tensors of the policy of novelty and of the separate heads."""
OWN_OPTIMIZER = (NOVELTY_PREFIX, SEPARATE_PREFIX)
"""Parts with an optimizer of their own."""
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
    separate_gamma: float = 0.0
    """Further discount factor, with an actor and two critics that share no layer with the others and whose losses do
    not reach the encoders. Its policy acts in evaluations, loaded policies and exports if it is chosen. 0: none
    (paper). No effect without `multi_gamma`."""
    separate_trial_fraction: float = 0.0
    """Fraction of the training trials in which the policy of `separate_gamma` acts, so that its critics learn from what
    it does: a value that is too large is corrected only where it leads. 0: it collects no data."""
    evaluation_gamma_index: int = -1
    """Index of the gamma whose policy acts in evaluations, loaded policies and exports; -1: `acting_gamma` (paper).
    They are in the order of `gammas`, `separate_gamma` and `acting_gamma`.
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
        check_range(self, "separate_gamma", ge=0, lt=1)
        check_range(self, "separate_trial_fraction", ge=0, le=1)
        check_range(self, "max_one_hot_choices", "num_policy_samples", ge=0)

    @override
    def with_head_sizes(self, hidden_sizes: Sequence[int]) -> "AgentConfig":
        critic = replace(self.critic, hidden_sizes=tuple(hidden_sizes))
        return replace(super().with_head_sizes(hidden_sizes), critic=critic)

    def embeds(self, action_space: PolicyActionSpace) -> bool:
        """Return whether the choices of actions are embedded."""
        return 0 < self.max_one_hot_choices < sum(num_choices(action_space))

    def all_gammas(self, action_space: PolicyActionSpace) -> tuple[float, ...]:
        """Return the G discount factors that share layers; the acting one is the last."""
        if not self.multi_gamma:
            return (self.acting_gamma,)
        defaults = PAPER_CONTINUOUS if isinstance(action_space, spaces.Box) else PAPER_DISCRETE
        return (*(self.gammas or defaults), self.acting_gamma)


class Agent(Heads, ActingModel):
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
        separate = (config.separate_gamma,) if config.separate_gamma and config.multi_gamma else ()
        self.policy_gammas = (*gammas[:-1], *separate, gammas[-1])
        """Discount factors of all policies, in the order of `AgentConfig.evaluation_gamma_index`."""
        num_policies = len(self.policy_gammas)
        if not -num_policies <= config.evaluation_gamma_index < num_policies:
            raise UserError(
                f"evaluation_gamma_index is {config.evaluation_gamma_index}: there are {num_policies} gammas"
            )
        embeds = config.embeds(action_space)
        self.timestep_encoder = config.timestep_encoder.build(
            flatten_space(observation_space), action_space, embeds=embeds
        )
        self.trajectory_encoder = config.trajectory_encoder.build(
            input_size=config.timestep_encoder.output_size, attention_window=context_length + 1, max_timestep=horizon
        )
        state_size = config.trajectory_encoder.state_size
        self.build_heads(
            config.actor,
            config.critic,
            gammas=gammas,
            input_size=state_size,
            action_space=action_space,
            embeds=embeds,
            num_policy_samples=config.num_policy_samples,
            popart=config.popart,
        )
        self.averaged: nn.ModuleDict | None = None
        if averaged:
            acting = {name: copy.deepcopy(getattr(self, name)) for name in ACTING_MODULES}
            self.averaged = nn.ModuleDict(acting).requires_grad_(False)
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
        self.separate: SeparateHeads | None = None
        if separate:
            self.separate = SeparateHeads(
                config.actor,
                config.critic,
                gamma=config.separate_gamma,
                input_size=state_size,
                action_space=action_space,
                embeds=embeds,
                num_policy_samples=config.num_policy_samples,
                popart=config.popart,
                averaged=averaged,
            )
        self.register_load_state_dict_pre_hook(_keep_own_parts)

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

    def averages(self) -> MovingCopies | None:
        """Return the moving averages, if there are any. Buffers, such as the statistics of the inputs, are copied."""
        if self.averaged is None:
            return None
        return MovingCopies([self.averaged], [getattr(self, name) for name in ACTING_MODULES], with_buffers=True)

    @override
    def acting_module(self, name: str) -> Any:
        """Return one of `ACTING_MODULES`: its moving average if there is one."""
        return getattr(self, name) if self.averaged is None else self.averaged[name]

    @override
    def actor_of_gamma(self, gamma_index: int, *, averaged: bool = True) -> Actor:
        if self.separate is None:
            return super().actor_of_gamma(gamma_index, averaged=averaged)
        index = gamma_index % len(self.policy_gammas)
        if index == len(self.gammas) - 1:
            separate = self.separate.acting_actor if averaged else self.separate.actor
            return separate.for_gamma(0)
        return super().actor_of_gamma(min(index, len(self.gammas) - 1), averaged=averaged)

    @torch.no_grad()
    def _deltas(self, features_NF: Float[Tensor, "N F"], output_size: int) -> Float[Tensor, "N O"]:
        observation_NO = self.timestep_encoder.normalizer(features_NF, features_NF.dtype)[:, :output_size]
        return observation_NO.roll(-1, dims=0) - observation_NO


def _keep_own_parts(agent: Agent, state: dict[str, Any], *_: Any) -> None:
    """Leave novelty's policy and separate heads as they are if the state has none; drop those that the agent lacks.

    A run that starts from the weights of another one has its own. What is new belongs to one run, and acts in it alone.
    """
    own = {name: tensor for name, tensor in agent.state_dict().items() if name.startswith(OWN_OPTIMIZER)}
    for name in [name for name in state if name.startswith(OWN_OPTIMIZER) and name not in own]:
        del state[name]
    for name, tensor in own.items():
        state.setdefault(name, tensor)
