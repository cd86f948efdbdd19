"""`DistillationConfig`: algorithm distillation, for `RunConfig.algorithm`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from gymnasium import spaces
from torch import nn
from typing_extensions import override

from yamame.algorithms.base import AlgorithmConfig
from yamame.algorithms.distillation.agent import DistillationAgent, DistillationAgentConfig
from yamame.algorithms.distillation.learner import Distillation, DistillationLearnerConfig
from yamame.algorithms.functional_network_policy import FunctionalNetworkPolicy
from yamame.algorithms.functional_policy import SupportsExport
from yamame.algorithms.network_policy import NetworkPolicy
from yamame.algorithms.networks import NetworksConfig
from yamame.collect.exploration import NoExploration
from yamame.data.actions import policy_action_space, strip_action_mask
from yamame.data.schema import TaskSpec
from yamame.data.spaces import flatten_space
from yamame.distributed_context import SINGLE_PROCESS, DistributedContext
from yamame.envs.config import EnvConfig
from yamame.errors import UserError
from yamame.nets.compute import Compute
from yamame.nets.sequence.transformer import TransformerConfig

BATCH_SIZE, BATCH_TRANSITIONS = 4, 2048
"""Default number of windows that are sampled together, and least number of transitions of a batch."""


@dataclass(frozen=True, kw_only=True)
class DistillationConfig(AlgorithmConfig, SupportsExport):
    """Algorithm distillation (Laskin et al. 2022, arXiv 2210.14215)."""

    agent: DistillationAgentConfig = field(default_factory=DistillationAgentConfig)
    learner: DistillationLearnerConfig = field(default_factory=DistillationLearnerConfig)

    @property
    @override
    def needs_stored_data(self) -> bool:
        return True

    @property
    @override
    def model_width(self) -> int:
        return self.agent.trajectory_encoder.state_size

    @override
    def run_settings(self, recipe: AlgorithmConfig, env: EnvConfig, *, env_steps: int) -> Mapping[str, Any]:
        """Return the settings of a run: the networks of the recipe without time, and small batches of whole windows."""
        networks = getattr(recipe, "agent", None)
        agent = self.agent
        if isinstance(networks, NetworksConfig):
            agent = agent.like(networks)
            agent = replace(agent, timestep_encoder=replace(agent.timestep_encoder, observe_time=False))
            if isinstance(agent.trajectory_encoder, TransformerConfig):
                rotary = replace(agent.trajectory_encoder, position_embedding="rotary")
                agent = replace(agent, trajectory_encoder=rotary)
        many = getattr(networks, "max_one_hot_choices", self.agent.max_one_hot_choices)
        return {
            "agent": replace(agent, max_one_hot_choices=many),
            "learning_starts": 0,
            "deterministic_actions": False,
            "exploration": NoExploration(),
            "replay.batch_size": BATCH_SIZE,
            "replay.min_batch_transitions": BATCH_TRANSITIONS,
            "replay.unrewarded_keep_prob": 1.0,
            "replay.prefer_rewarded_prob": 0.0,
            "replay.relabel.mode": "none",
        }

    @override
    def remarks(self, task: TaskSpec, *, offline_only: bool = False) -> list[str]:
        leaves = flatten_space(strip_action_mask(task.observation_space, task.action_mask_key))
        unused = self.agent.unused_actor_remarks("probability_clip", "clip_evaluation", "gradient")
        return [*self.agent.timestep_encoder.remarks(leaves), *unused]

    @override
    def build_model(self, task: TaskSpec, *, context_length: int) -> DistillationAgent:
        action_space = policy_action_space(task.action_space)
        encoder = self.agent.trajectory_encoder
        if isinstance(encoder, TransformerConfig) and encoder.position_embedding == "learned":
            raise UserError("learned positions end at the horizon, beyond which histories may go on: pass rotary ones")
        if self.learner.label_smoothing and isinstance(action_space, spaces.Box):
            raise UserError("--learner.label-smoothing is for discrete actions: leave it out for a Box")
        return DistillationAgent(
            self.agent,
            observation_space=strip_action_mask(task.observation_space, task.action_mask_key),
            action_space=action_space,
            context_length=context_length,
            horizon=task.horizon,
        )

    @override
    def build_policy(
        self,
        model: nn.Module,
        *,
        num_envs: int,
        generator: torch.Generator,
        collects: bool = False,
        cuda_graph: bool = False,
    ) -> NetworkPolicy:
        assert isinstance(model, DistillationAgent)
        return NetworkPolicy(model, num_envs=num_envs, generator=generator, clips=False, cuda_graph=cuda_graph)

    @override
    def build(
        self,
        model: nn.Module,
        *,
        compute: Compute,
        generator: torch.Generator,
        distributed: DistributedContext = SINGLE_PROCESS,
    ) -> Distillation:
        assert isinstance(model, DistillationAgent)
        return Distillation(model, self.learner, generator=generator, compute=compute, distributed=distributed)

    @override
    def functional_policy(self, model: nn.Module) -> FunctionalNetworkPolicy:
        assert isinstance(model, DistillationAgent)
        return FunctionalNetworkPolicy(model, clips=False)
