"""`PPOConfig`: recurrent PPO, for `RunConfig.algorithm`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from typing_extensions import override

from yamame.algorithms.acting_model import ACTING_MODULES
from yamame.algorithms.analysis import SupportsValues
from yamame.algorithms.base import Algorithm, AlgorithmConfig
from yamame.algorithms.functional_network_policy import FunctionalNetworkPolicy
from yamame.algorithms.functional_policy import SupportsExport
from yamame.algorithms.network_policy import NetworkPolicy
from yamame.algorithms.networks import NetworksConfig
from yamame.algorithms.ppo.agent import PPOAgent, PPOAgentConfig
from yamame.algorithms.ppo.learner import PPO, PPOLearnerConfig
from yamame.algorithms.ppo.values import PPOValues
from yamame.collect.exploration import NoExploration
from yamame.data.actions import policy_action_space, strip_action_mask
from yamame.data.sampler import ReplayConfig
from yamame.data.schema import TaskSpec
from yamame.data.spaces import flatten_space
from yamame.distributed_context import SINGLE_PROCESS, DistributedContext
from yamame.envs.config import EnvConfig
from yamame.nets.compute import Compute

NUM_ENVS = (16, 8, 4, 2)
"""Default numbers of environments: the first at which trials of the whole horizon take at most an eighth of the run."""
STEPS_PER_ITERATION = 2048
"""Default number of environment steps of an iteration, if that is at most a 128th of the run."""
MIN_STEPS_PER_ITERATION = 256
MAX_CONTEXT = 1024
"""Length up to which windows are whole trials, whatever the context length of the recipe: states of learning are then
those of acting."""

_SAMPLING_FIELDS = (
    "batch_size",
    "min_batch_transitions",
    "unrewarded_keep_prob",
    "prefer_rewarded_prob",
    "prefer_rewarded_anneal_start_env_steps",
    "prefer_rewarded_anneal_end_env_steps",
    "cover_trial_ends",
)
"""Fields of `ReplayConfig` for windows that are sampled: here each iteration's are cut from its trials."""


@dataclass(frozen=True, kw_only=True)
class PPOConfig(AlgorithmConfig, SupportsValues, SupportsExport):
    """PPO over whole trials with memory, and so RL^2 (Schulman et al. 2017, Duan et al. 2016)."""

    AGENT: ClassVar[type[PPOAgent]] = PPOAgent
    LEARNER: ClassVar[Callable[..., Algorithm]] = PPO

    agent: PPOAgentConfig = field(default_factory=PPOAgentConfig)
    learner: PPOLearnerConfig = field(default_factory=PPOLearnerConfig)

    @property
    @override
    def is_on_policy(self) -> bool:
        return True

    @property
    @override
    def unused_replay_fields(self) -> tuple[str, ...]:
        return _SAMPLING_FIELDS

    @property
    @override
    def min_trials(self) -> int:
        return self.learner.passes.min_trials

    @property
    @override
    def model_width(self) -> int:
        return self.agent.trajectory_encoder.state_size

    @property
    @override
    def compiles(self) -> bool:
        return False

    @override
    def run_settings(self, recipe: AlgorithmConfig, env: EnvConfig, *, env_steps: int) -> Mapping[str, Any]:
        """Return the settings of a run of this length.

        An iteration is a whole number of trials of each environment, if they are short enough.
        """
        trial = env.max_trial_steps
        num_envs = next((count for count in NUM_ENVS if count * trial <= env_steps // 8), NUM_ENVS[-1])
        steps = max(min(STEPS_PER_ITERATION, env_steps // 128), MIN_STEPS_PER_ITERATION)
        if steps >= num_envs * trial:
            steps -= steps % (num_envs * trial)
        networks = getattr(recipe, "agent", None)
        own = {"agent": self.agent.like(networks)} if isinstance(networks, NetworksConfig) else {}
        many = getattr(networks, "max_one_hot_choices", self.agent.max_one_hot_choices)
        return {
            **own,
            "agent.max_one_hot_choices": many,
            **({"context_length": 0} if trial <= MAX_CONTEXT else {}),
            "learner.lr_decay_env_steps": env_steps,
            "learner.entropy_decay_env_steps": env_steps,
            "num_envs": num_envs,
            "env_steps_per_iteration": steps,
            "updates_per_env_step": 0.0,
            "learning_starts": 0,
            "deterministic_actions": False,
            "eval.choose_policy": True,
            "exploration": NoExploration(),
            **{f"replay.{name}": getattr(ReplayConfig(), name) for name in self.unused_replay_fields},
            "replay.relabel.mode": "none",
        }

    @override
    def remarks(self, task: TaskSpec, *, offline_only: bool = False) -> list[str]:
        leaves = flatten_space(strip_action_mask(task.observation_space, task.action_mask_key))
        unused = self.agent.unused_actor_remarks("probability_clip", "clip_evaluation", "gradient")
        return [*self.agent.timestep_encoder.remarks(leaves), *unused]

    @override
    def memory_remarks(self, task: TaskSpec, *, context_length: int) -> list[str]:
        if task.horizon <= context_length:
            return []
        return [
            f"trials have up to {task.horizon:,} steps, windows {context_length:,}: the agent learns without memory of "
            f"what was before a window, though it acts with it. --context-length 0 makes windows of whole trials"
        ]

    @override
    def build_model(self, task: TaskSpec, *, context_length: int) -> PPOAgent:
        return self.AGENT(
            self.agent,
            observation_space=strip_action_mask(task.observation_space, task.action_mask_key),
            action_space=policy_action_space(task.action_space),
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
        assert isinstance(model, PPOAgent)
        return NetworkPolicy(
            model,
            num_envs=num_envs,
            generator=generator,
            records_log_prob=collects,
            clips=False,
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
    ) -> Algorithm:
        assert isinstance(model, self.AGENT)
        return self.LEARNER(
            model, self.learner, context_length=model.context_length, generator=generator, compute=compute
        )

    @override
    def value_function(self, model: nn.Module, *, num_envs: int) -> PPOValues:
        assert isinstance(model, PPOAgent)
        return PPOValues(model, num_envs=num_envs)

    @override
    def functional_policy(self, model: nn.Module) -> FunctionalNetworkPolicy:
        assert isinstance(model, PPOAgent)
        return FunctionalNetworkPolicy(model, clips=False)

    @override
    def acting_state(self, model: nn.Module) -> dict[str, Tensor]:
        prefixes = tuple(f"{name}." for name in ACTING_MODULES)
        return {name: tensor for name, tensor in model.state_dict().items() if name.startswith(prefixes)}
