"""Agents for observations of any space, small enough for a test, and trajectories of theirs."""

from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from collecting import collect_trials
from gymnasium import spaces
from sampled_observations import LENGTH, SampledObservations
from tiny_agents import TINY_AGENT, shake

from yamame.algorithms.amago.agent import Agent
from yamame.algorithms.network_policy import NetworkPolicy
from yamame.collect.collector import Collector
from yamame.collect.exploration import Explorer, NoExploration
from yamame.data.trajectory import Trajectory
from yamame.envs.env_fn import EnvFnConfig
from yamame.nets.timestep.encoder import TimestepEncoderConfig
from yamame.nets.timestep.image import ImageEncoderConfig
from yamame.nets.timestep.text import TextEncoderConfig
from yamame.nets.timestep.tokens import TokenEncoderConfig

SHAPES = TimestepEncoderConfig(
    hidden_sizes=(8,),
    output_size=6,
    image=ImageEncoderConfig(channels=(2, 3), output_size=4),
    tokens=TokenEncoderConfig(embedding_dim=2, output_size=3),
    text=TextEncoderConfig(embedding_dim=2, hidden_size=3, output_size=4),
    chunk_elements=500,
)
AGENT = replace(TINY_AGENT, timestep_encoder=SHAPES)


def agent_for(space: spaces.Space[Any]) -> Agent:
    torch.manual_seed(0)
    agent = Agent(
        AGENT,
        observation_space=space,
        action_space=SampledObservations.action_space,
        context_length=LENGTH,
        horizon=LENGTH,
    )
    shake(agent, scale=0.1)
    return agent


def collected(agent: Agent, space: spaces.Space[Any], trials: int, *, workers: int = 0) -> list[Trajectory]:
    task = EnvFnConfig(env_fn=partial(SampledObservations, space), horizon=LENGTH, num_workers=workers)
    with closing(task.build(2, seed=0)) as environments:
        explorer = Explorer(NoExploration(), environments.action_space, 2, np.random.default_rng(0))
        policy = NetworkPolicy(agent, num_envs=2, generator=torch.Generator().manual_seed(0))
        collector = Collector(environments, "sampled", explorer)
        return list(collect_trials(collector, policy, trials * LENGTH))
