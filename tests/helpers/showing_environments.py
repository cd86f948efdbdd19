"""Environments that show samples of any space, and agents small enough to look at them in a test."""

from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from tiny_agents import TINY_AGENT, shake

from yamame.algorithms.amago.agent import Agent
from yamame.algorithms.amago.policy import AMAGOPolicy
from yamame.collect.collector import Collector
from yamame.collect.exploration import Explorer, NoExploration
from yamame.data.spaces import space_from_json, space_to_json
from yamame.data.trajectory import Trajectory
from yamame.envs.env_fn import EnvFnConfig
from yamame.nets.timestep.encoder import TimestepEncoderConfig
from yamame.nets.timestep.image import ImageEncoderConfig
from yamame.nets.timestep.text import TextEncoderConfig
from yamame.nets.timestep.tokens import TokenEncoderConfig

LENGTH = 4
SHAPES = TimestepEncoderConfig(
    hidden_sizes=(8,),
    output_size=6,
    image=ImageEncoderConfig(channels=(2, 3), output_size=4),
    tokens=TokenEncoderConfig(embedding_dim=2, output_size=3),
    text=TextEncoderConfig(embedding_dim=2, hidden_size=3, output_size=4),
    chunk_elements=500,
)
AGENT = replace(TINY_AGENT, timestep_encoder=SHAPES)
KINDS: dict[str, spaces.Space[Any]] = {
    "vector": spaces.Box(-1.0, 1.0, (3,)),
    "vector of doubles": spaces.Box(-1e5, 1e5, (3,), np.float64),
    "vector of bytes": spaces.Box(0, 255, (5,), np.uint8),
    "integers": spaces.Box(-100, 100, (2,), np.int64),
    "bits": spaces.Box(0, 1, (2, 2), np.bool_),
    "no dimension": spaces.Box(-1.0, 1.0, ()),
    "nothing": spaces.Box(0, 255, (0, 3), np.uint8),
    "category": spaces.Discrete(3, start=5),
    "large category": spaces.Discrete(200, start=-9),
    "categories": spaces.MultiDiscrete([3, 4], start=[1, -2]),
    "grid": spaces.MultiDiscrete(np.full((3, 2), 5)),
    "flags": spaces.MultiBinary([2, 2]),
    "image": spaces.Box(0, 255, (9, 8, 3), np.uint8),
    "image, channels first": spaces.Box(0, 255, (1, 12, 10), np.uint8),
    "text": spaces.Text(6, min_length=0, charset="abc"),
}
MIXED = spaces.Dict(
    {
        "sight": spaces.Dict({"camera": KINDS["image"], "map": KINDS["grid"], "none": KINDS["nothing"]}),
        "body": spaces.Tuple([KINDS["vector of doubles"], KINDS["category"], KINDS["bits"]]),
        "mission": KINDS["text"],
        "level": KINDS["large category"],
    }
)
ALL = {**KINDS, "all of them in one": MIXED}


class Showing(gymnasium.Env[Any, int]):
    """Shows samples of a space; the reward is random."""

    action_space = spaces.Discrete(3)

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.observation_space = space_from_json(space_to_json(space))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.time = 0
        return self.observation_space.sample(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return self.observation_space.sample(), float(self.np_random.normal()), False, self.time == LENGTH, {}


def agent_for(space: spaces.Space[Any]) -> Agent:
    torch.manual_seed(0)
    agent = Agent(
        AGENT,
        observation_space=space,
        action_space=Showing.action_space,
        context_length=LENGTH,
        horizon=LENGTH,
    )
    shake(agent, scale=0.1)
    return agent


def collected(agent: Agent, space: spaces.Space[Any], trials: int, *, workers: int = 0) -> list[Trajectory]:
    task = EnvFnConfig(env_fn=partial(Showing, space), horizon=LENGTH, num_workers=workers)
    with closing(task.build(2, seed=0)) as environments:
        explorer = Explorer(NoExploration(), environments.action_space, 2, np.random.default_rng(0))
        policy = AMAGOPolicy(agent, num_envs=2, generator=torch.Generator().manual_seed(0))
        collector = Collector(environments, "showing", explorer)
        return list(collector.collect(policy, trials * LENGTH, False))
