"""Trials with instructions of coordinates and of words, and agents small enough for a test."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tiny_agents import HORIZON, TINY_AGENT

from yamame.algorithms.amago.agent import Agent
from yamame.data.batch import Batch, Window, pack
from yamame.data.goals import INSTRUCTION_KEY, instruction_observations
from yamame.data.trajectory import Trajectory
from yamame.nets.timestep.encoder import TimestepEncoderConfig
from yamame.nets.timestep.instruction import InstructionCoordinatesConfig, InstructionTokensConfig

SLOTS = 4
COORDINATES = spaces.Box(-3.0, np.array([[9.0, 20.0]] * SLOTS, np.float32))
WORDS = spaces.Box(-3, 11, (SLOTS, 2), np.int64)
LEAVES: dict[str, spaces.Box] = {"coordinates": COORDINATES, "words": WORDS}
every_leaf = pytest.mark.parametrize("leaf", LEAVES.values(), ids=LEAVES)
SMALL = TimestepEncoderConfig(
    hidden_sizes=(16,),
    output_size=12,
    instruction_tokens=InstructionTokensConfig(embedding_dim=3, hidden_size=6, output_size=5),
    instruction_coordinates=InstructionCoordinatesConfig(hidden_sizes=(7,), output_size=5),
)


def agent_for(leaf: spaces.Box, *, world_model: bool = False) -> Agent:
    torch.manual_seed(0)
    return Agent(
        replace(TINY_AGENT, timestep_encoder=SMALL),
        observation_space=spaces.Dict({INSTRUCTION_KEY: leaf, "here": spaces.Box(0.0, 20.0, (2,))}),
        action_space=spaces.Discrete(3),
        context_length=12,
        horizon=HORIZON,
        world_model=world_model,
    )


def instructed_trial(length: int, seed: int) -> Trajectory:
    """A trial whose first sub-goals are completed at steps 2 and 5."""
    rng = np.random.default_rng(seed)
    sub_goals = rng.integers(1, 9, (3, 2))
    completed = (np.arange(length + 1)[:, None] >= (2, 5)).sum(1)
    return Trajectory(
        reward=np.diff(completed).astype(np.float32),
        action=rng.integers(0, 3, length),
        terminated=np.zeros(length, np.bool_),
        truncated=np.arange(length) == length - 1,
        episode_start=np.arange(length + 1) == 0,
        observation={
            INSTRUCTION_KEY: instruction_observations(sub_goals, slots=SLOTS, hide_future_goals=False)[completed],
            "here": rng.uniform(0, 20, (length + 1, 2)).astype(np.float32),
        },
        horizon=HORIZON,
    )


def instructed_batch(seed: int = 0) -> Batch:
    trials = [instructed_trial(length, 10 * seed + length) for length in (8, 11, 3)]
    return pack([Window(trajectory=each, start=0, length=len(each)) for each in trials], pad_tokens_to_multiple_of=16)
