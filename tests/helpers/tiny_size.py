"""A size that is measured in milliseconds, and its agent and batches."""

from collections.abc import Sequence

import numpy as np
import torch
from gymnasium import spaces

from yamame.algorithms.amago.agent import Agent
from yamame.data.batch import Batch, Window, pack
from yamame.nets.sequence.transformer import TransformerConfig
from yamame.tools.bench.options import BenchNetwork

TINY = BenchNetwork(
    observation=3,
    actions=3,
    timestep_hidden=(10,),
    timestep_width=12,
    transformer=TransformerConfig(d_model=16, d_ff=24, num_layers=2, num_heads=2),
    head_hidden=(14, 18),
)
CONTEXT = 12


def tiny_size_agent(encoder: str = "transformer", *, seed: int = 0) -> Agent:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Agent(
            TINY.agent(encoder),
            observation_space=spaces.Box(-1.0, 1.0, (TINY.observation,), np.float32),
            action_space=spaces.Discrete(TINY.actions),
            context_length=CONTEXT,
            horizon=CONTEXT,
        )


def tiny_size_batch(lengths: Sequence[int], *, token_multiple: int = 1, seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)
    trials = [TINY.random_trajectory(rng, length, CONTEXT) for length in lengths]
    windows = [Window(trajectory=trial, start=0, length=len(trial)) for trial in trials]
    return pack(windows, pad_tokens_to_multiple_of=token_multiple)
