"""`RecurrentSACConfig`: recurrent off-policy agents, for `RunConfig.algorithm`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn
from typing_extensions import override

from yamame.algorithms.analysis import AgentAnalysis, SupportsAnalysis, SupportsValues
from yamame.algorithms.base import AlgorithmConfig
from yamame.algorithms.functional_network_policy import FunctionalNetworkPolicy
from yamame.algorithms.functional_policy import SupportsExport
from yamame.algorithms.network_policy import NetworkPolicy
from yamame.algorithms.networks import NetworksConfig
from yamame.algorithms.recurrent_sac.agent import RecurrentAgent, RecurrentAgentConfig
from yamame.algorithms.recurrent_sac.analysis import RecurrentSACValues, analyze_recurrent_agent
from yamame.algorithms.recurrent_sac.learner import RecurrentSAC, RecurrentSACLearnerConfig
from yamame.collect.exploration import NoExploration
from yamame.data.actions import policy_action_space, strip_action_mask
from yamame.data.schema import TaskSpec
from yamame.data.spaces import flatten_space
from yamame.data.trajectory import Trajectory
from yamame.distributed_context import SINGLE_PROCESS, DistributedContext
from yamame.envs.config import EnvConfig
from yamame.nets.compute import Compute

NUM_ENVS = (8, 4, 2)
"""Default numbers of environments: the first at which trials of the whole horizon take at most a 32nd of the run."""
NUM_UPDATES = 25_000
"""Default number of updates of a run, if that is at most one in two environment steps and at least one in 32."""
BATCH_SIZE, BATCH_TRANSITIONS = 8, 256
"""Smallest number of windows of a batch, and of their transitions."""
LEARNING_RATE = 1e-3
"""Default learning rate of critics and actor (Ni et al.: 3e-4, with batches of 32 or 64 trials)."""
VALUE_GROWTH = 5
"""Number of times that values can grow to their full size in a run, by which the default tau is chosen: an update moves
the targets by at most tau times a reward, and values are the rewards of all discounted steps ahead."""
MAX_TAU = 0.05
"""Largest default target network update rate; the smallest is that of Ni et al."""
LOG_TEMPERATURE_RANGE = 25.0
"""How far the logarithm of the temperature can move in a run, by which its default learning rate is chosen."""
MAX_TEMPERATURE_LEARNING_RATE = 0.01
"""Largest default learning rate of the temperature; the smallest is that of Ni et al."""

_OF_DISCRETE_SAC = ("target_entropy_fraction", "final_target_entropy_fraction")
_OF_SAC = ("initial_temperature", "automatic_temperature", *_OF_DISCRETE_SAC)
_OF_TD3 = ("exploration_noise", "target_noise", "target_noise_clip", "actor_interval")
"""Fields of the learner that one method has, apart from those that `run_settings` derives."""


@dataclass(frozen=True, kw_only=True)
class RecurrentSACConfig(AlgorithmConfig, SupportsAnalysis, SupportsValues, SupportsExport):
    """SAC, discrete SAC or TD3 with separate memories of actor and critics (Ni et al. 2022, arXiv 2110.05038)."""

    agent: RecurrentAgentConfig = field(default_factory=RecurrentAgentConfig)
    learner: RecurrentSACLearnerConfig = field(default_factory=RecurrentSACLearnerConfig)
    mode_in_evaluations: bool = True
    """Evaluations, loaded policies and exports act with the mode of the policy (Ni et al.). False: with samples, unless
    `deterministic_actions`."""

    @property
    @override
    def model_width(self) -> int:
        return self.agent.trajectory_encoder.state_size

    @override
    def run_settings(self, recipe: AlgorithmConfig, env: EnvConfig, *, env_steps: int) -> Mapping[str, Any]:
        """Return the settings of a run of this length: random trials first, then no noise but that of the policy.

        The entropy of discrete actions falls in the first half of the run (Ni et al.: it does not), and targets and
        temperature follow as fast as the number of updates requires (Ni et al.: at fixed rates). The timestep encoder
        is that of the recipe, which fits its observations.
        """
        trial = env.max_trial_steps
        networks = getattr(recipe, "agent", None)
        agent = self.agent
        if isinstance(networks, NetworksConfig):
            agent = replace(agent, timestep_encoder=networks.timestep_encoder)
        random_env_steps = env_steps // 50
        updates_per_env_step = min(max(NUM_UPDATES / env_steps, 1 / 32), 1 / 2)
        updates = env_steps * updates_per_env_step
        steps_ahead = min(trial, 1 / (1 - self.agent.acting_gamma))
        return {
            "agent": agent,
            "num_envs": next((count for count in NUM_ENVS if count * trial <= env_steps // 32), NUM_ENVS[-1]),
            "updates_per_env_step": updates_per_env_step,
            "learner.learning_rate": LEARNING_RATE,
            "learner.tau": min(max(VALUE_GROWTH * steps_ahead / updates, self.learner.tau), MAX_TAU),
            "learner.temperature_learning_rate": min(
                max(LOG_TEMPERATURE_RANGE / updates, self.learner.temperature_learning_rate),
                MAX_TEMPERATURE_LEARNING_RATE,
            ),
            "learner.target_entropy_anneal_updates": round(updates / 2),
            "learning_starts": random_env_steps,
            "exploration": NoExploration(random_env_steps=random_env_steps),
            "deterministic_actions": False,
            "replay.batch_size": BATCH_SIZE,
            "replay.min_batch_transitions": BATCH_TRANSITIONS,
            "replay.unrewarded_keep_prob": 1.0,
            "replay.prefer_rewarded_prob": 0.0,
        }

    @override
    def build_model(self, task: TaskSpec, *, context_length: int) -> RecurrentAgent:
        return RecurrentAgent(
            self.agent,
            observation_space=strip_action_mask(task.observation_space, task.action_mask_key),
            action_space=policy_action_space(task.action_space),
            context_length=context_length,
            horizon=task.horizon,
            initial_temperature=self.learner.initial_temperature,
            deterministic=self.learner.method == "td3",
        )

    @override
    def remarks(self, task: TaskSpec, *, offline_only: bool = False) -> list[str]:
        leaves = flatten_space(strip_action_mask(task.observation_space, task.action_mask_key))
        is_box = isinstance(task.action_space, spaces.Box)
        unused = self.agent.unused_actor_remarks(
            "clip_evaluation", "gradient", *(["probability_clip"] if is_box else [])
        )
        default, names = RecurrentSACLearnerConfig(), [*_OF_SAC]
        if self.learner.method == "sac":
            names = [*_OF_TD3, *(_OF_DISCRETE_SAC if is_box else [])]
        changed = [name for name in names if getattr(self.learner, name) != getattr(default, name)]
        unused += [f"learner.{name} has no effect with this method and these actions" for name in changed]
        return [*self.agent.timestep_encoder.remarks(leaves), *unused]

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
        assert isinstance(model, RecurrentAgent)
        noise = self.learner.exploration_noise if self.learner.method == "td3" else 0.0
        return NetworkPolicy(
            model,
            num_envs=num_envs,
            generator=generator,
            mode_only=not collects and self.mode_in_evaluations,
            action_noise=noise if collects else 0.0,
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
    ) -> RecurrentSAC:
        assert isinstance(model, RecurrentAgent)
        return RecurrentSAC(model, self.learner, generator=generator, compute=compute, distributed=distributed)

    @override
    def analyze(
        self, model: nn.Module, trajectory: Trajectory, *, keep: int | None = None, acting_only: bool = False
    ) -> AgentAnalysis:
        assert isinstance(model, RecurrentAgent)
        return analyze_recurrent_agent(model, trajectory, keep=keep, acting_only=acting_only)

    @override
    def value_function(self, model: nn.Module, *, num_envs: int) -> RecurrentSACValues:
        assert isinstance(model, RecurrentAgent)
        return RecurrentSACValues(model, num_envs=num_envs)

    @override
    def functional_policy(self, model: nn.Module) -> FunctionalNetworkPolicy:
        assert isinstance(model, RecurrentAgent)
        return FunctionalNetworkPolicy(model, clips=True, mode_only=self.mode_in_evaluations)

    @override
    def acting_state(self, model: nn.Module) -> dict[str, Tensor]:
        prefixes = ("encoders.", "actor.")
        return {name: tensor for name, tensor in model.state_dict().items() if name.startswith(prefixes)}
