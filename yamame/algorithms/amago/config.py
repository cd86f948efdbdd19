"""`AMAGOConfig`: the algorithm of the paper, for `RunConfig.algorithm`."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from gymnasium import spaces
from torch import Tensor, nn
from typing_extensions import override

from yamame.algorithms.acting_model import ACTING_MODULES
from yamame.algorithms.amago.agent import NOVELTY_PREFIX, SEPARATE_PREFIX, Agent, AgentConfig
from yamame.algorithms.amago.analysis import analyze_trajectory
from yamame.algorithms.amago.collecting_policy import CollectingPolicy
from yamame.algorithms.amago.learner import Learner, LearnerConfig
from yamame.algorithms.amago.novelty import NoveltyPolicyConfig
from yamame.algorithms.amago.values import AMAGOValues
from yamame.algorithms.analysis import AgentAnalysis, SupportsAnalysis, SupportsValues
from yamame.algorithms.base import AlgorithmConfig
from yamame.algorithms.functional_network_policy import FunctionalNetworkPolicy
from yamame.algorithms.functional_policy import SupportsExport
from yamame.algorithms.network_policy import NetworkPolicy
from yamame.data.actions import num_choices, policy_action_space, strip_action_mask
from yamame.data.schema import TaskSpec
from yamame.data.spaces import flatten_space
from yamame.data.trajectory import Trajectory
from yamame.distributed_context import SINGLE_PROCESS, DistributedContext
from yamame.nets.compute import Compute
from yamame.nets.heads.classification import ClassificationConfig

MAX_QUICK_CHOICES = 1000
"""Choices of an action, summed over its components, above which the policy takes most of the time of an update."""


@dataclass(frozen=True, kw_only=True)
class AMAGOConfig(AlgorithmConfig, SupportsAnalysis, SupportsValues, SupportsExport):
    """AMAGO: actor and critics on a shared trajectory encoder, trained off-policy (arXiv 2310.09971)."""

    agent: AgentConfig = field(default_factory=AgentConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    novelty: NoveltyPolicyConfig = field(default_factory=NoveltyPolicyConfig)

    @property
    @override
    def model_width(self) -> int:
        return self.agent.trajectory_encoder.state_size

    @override
    def build_model(self, task: TaskSpec, *, context_length: int) -> Agent:
        return Agent(
            self.agent,
            observation_space=strip_action_mask(task.observation_space, task.action_mask_key),
            action_space=policy_action_space(task.action_space),
            context_length=context_length,
            horizon=task.horizon,
            world_model=self.learner.world_model.weight > 0,
            averaged=self.learner.averaging_rate > 0,
            novelty=self.novelty,
        )

    @override
    def remarks(self, task: TaskSpec, *, offline_only: bool = False) -> list[str]:
        leaves = flatten_space(strip_action_mask(task.observation_space, task.action_mask_key))
        remarks = [*self.agent.timestep_encoder.remarks(leaves), *self._action_remarks(task), *self._loss_remarks()]
        if isinstance(self.agent.critic.value_code, ClassificationConfig):
            remarks.append(
                "values by classification have the unit of rewards: returns should be between about 1 and 10,000; "
                "--learner.td.reward-scale scales them"
            )
        return [*remarks, self._offline_remark()] if offline_only else remarks

    @override
    def random_weights_remarks(self) -> list[str]:
        named = " and ".join(self.learner.frozen)
        return [f"learner.frozen keeps the random weights of {named}, since there is no init_from"] if named else []

    def _loss_remarks(self) -> list[str]:
        """Return what no loss trains, or trains twice, and what has no effect, unless the run has losses of its own."""
        learner = self.learner
        if learner.extra_losses:
            return []
        remarks = [
            f"agent.gammas has {gamma:g} {count} times: its values are learned as often, and count as much in the loss"
            for gamma, count in Counter(self.agent.gammas).items()
            if count > 1
        ]
        if not (learner.policy_gradient.weight or learner.filtered_bc.weight):
            remarks.append("no loss trains the policy: learner.policy_gradient.weight and filtered_bc.weight are 0")
        if not learner.td.weight:
            remarks.append("no loss trains the critics: learner.td.weight is 0")
        if learner.td.trace_decay and learner.td.n_step > 1:
            remarks.append(
                "learner.td.n_step has no effect here: targets are traces, as learner.td.trace_decay is not 0"
            )
        return remarks

    def _offline_remark(self) -> str:
        imitation, settings = self.learner.filtered_bc, "learner.filtered_bc.weight 1, advantage_threshold -1e9"
        if imitation.imitates_all and imitation.weight >= 1:
            return f"stored data alone: all of its actions are imitated, beside the policy gradient ({settings})"
        return (
            "stored data alone, whose actions are not all imitated: on demonstrations the result may be below random "
            f"actions without {settings}"
        )

    def _action_remarks(self, task: TaskSpec) -> list[str]:
        space = policy_action_space(task.action_space)
        choices, remarks = sum(num_choices(space)), []
        exact = isinstance(space, spaces.Discrete) and not (self.agent.embeds(space) or self.agent.num_policy_samples)
        if self.agent.actor.gradient == "replicator" and not exact:
            remarks.append(
                "agent.actor.gradient replicator has no effect here: it is for a single discrete choice, each of which "
                "the critics evaluate"
            )
        if choices <= MAX_QUICK_CHOICES:
            return remarks
        num_gammas = len(self.agent.all_gammas(space))
        return [
            *remarks,
            f"an action has {choices:,} choices, for each of which an update computes {num_gammas} probabilities a "
            f"timestep: on a CPU it may take {1 + choices / MAX_QUICK_CHOICES:.0f} times as long as with ten. Fewer "
            "choices, a Box, or --agent.multi-gamma false make it faster",
        ]

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
        assert isinstance(model, Agent)
        build: Callable[..., NetworkPolicy] = NetworkPolicy
        if collects and (model.novelty is not None or self.agent.separate_trial_fraction):
            build = partial(
                CollectingPolicy,
                novelty_fraction=self.novelty.trial_fraction,
                separate_fraction=self.agent.separate_trial_fraction,
            )
        return build(
            model,
            num_envs=num_envs,
            generator=generator,
            records_log_prob=collects and self.learner.td.trace_decay > 0,
            clips=collects or self.agent.actor.clip_evaluation,
            gamma_index=-1 if collects else self.agent.evaluation_gamma_index,
            cuda_graph=cuda_graph,
        )

    @override
    def build(
        self,
        model: nn.Module,
        *,
        compute: Compute,
        generator: torch.Generator,
        distributed: DistributedContext = SINGLE_PROCESS,
    ) -> Learner:
        assert isinstance(model, Agent)
        return Learner(model, self.learner, generator=generator, compute=compute, distributed=distributed)

    @override
    def analyze(
        self, model: nn.Module, trajectory: Trajectory, *, keep: int | None = None, acting_only: bool = False
    ) -> AgentAnalysis:
        assert isinstance(model, Agent)
        scale = None if acting_only else self.learner.td.reward_scale
        return analyze_trajectory(
            model, trajectory, reward_scale=scale, gamma_index=self.agent.evaluation_gamma_index, keep=keep
        )

    @override
    def value_function(self, model: nn.Module, *, num_envs: int) -> AMAGOValues:
        assert isinstance(model, Agent)
        return AMAGOValues(model, num_envs=num_envs, reward_scale=self.learner.td.reward_scale)

    @override
    def num_policies(self, model: nn.Module) -> int:
        assert isinstance(model, Agent)
        return len(model.policy_gammas)

    @override
    def with_policy(self, index: int) -> "AMAGOConfig":
        return replace(self, agent=replace(self.agent, evaluation_gamma_index=index))

    @override
    def functional_policy(self, model: nn.Module) -> FunctionalNetworkPolicy:
        assert isinstance(model, Agent)
        return FunctionalNetworkPolicy(
            model, clips=self.agent.actor.clip_evaluation, gamma_index=self.agent.evaluation_gamma_index
        )

    @override
    def acting_state(self, model: nn.Module) -> dict[str, Tensor]:
        if model.averaged is None:
            prefixes = (*(f"{name}." for name in ACTING_MODULES), f"{SEPARATE_PREFIX}actor.")
        else:
            prefixes = ("averaged.", f"{SEPARATE_PREFIX}averaged_actor.")
        return {name: tensor for name, tensor in model.state_dict().items() if name.startswith(prefixes)}

    @override
    def collecting_state(self, model: nn.Module) -> dict[str, Tensor]:
        novelty = {name: tensor for name, tensor in model.state_dict().items() if name.startswith(NOVELTY_PREFIX)}
        return {**self.acting_state(model), **novelty}
