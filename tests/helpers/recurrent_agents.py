"""Tiny recurrent agents with actor and critics, and their learners."""

from dataclasses import replace
from typing import Any

import torch
from tiny_agents import DISCRETE, HORIZON, OBSERVATIONS, ActionSpace

from yamame.algorithms.recurrent_sac.agent import RecurrentAgent, RecurrentAgentConfig
from yamame.algorithms.recurrent_sac.learner import RecurrentSAC, RecurrentSACLearnerConfig
from yamame.nets.sequence.gru import GRUConfig
from yamame.nets.timestep.encoder import TimestepEncoderConfig

TINY_RECURRENT = RecurrentAgentConfig(
    timestep_encoder=TimestepEncoderConfig(hidden_sizes=(16,), output_size=12),
    trajectory_encoder=GRUConfig(d_model=16, num_layers=1),
    actor=replace(RecurrentAgentConfig().actor, hidden_sizes=(16,)),
    critic_hidden_sizes=(16, 16),
)

SAC = RecurrentSACLearnerConfig()


def recurrent_agent(
    config: RecurrentAgentConfig = TINY_RECURRENT,
    action_space: ActionSpace = DISCRETE,
    *,
    learner: RecurrentSACLearnerConfig = SAC,
    observation_space: Any = OBSERVATIONS,
    context_length: int = 12,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> RecurrentAgent:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        agent = RecurrentAgent(
            config,
            observation_space=observation_space,
            action_space=action_space,
            context_length=context_length,
            horizon=HORIZON,
            initial_temperature=learner.initial_temperature,
            deterministic=learner.method == "td3",
        )
    return agent.to(dtype)


def recurrent_learner(
    config: RecurrentAgentConfig = TINY_RECURRENT,
    action_space: ActionSpace = DISCRETE,
    *,
    learner: RecurrentSACLearnerConfig = SAC,
    **options: Any,
) -> RecurrentSAC:
    agent = recurrent_agent(config, action_space, learner=learner, **options)
    return RecurrentSAC(agent, learner, generator=torch.Generator().manual_seed(0))
