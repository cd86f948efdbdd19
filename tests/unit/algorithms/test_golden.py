"""Golden numbers: loss and gradient norm of five updates on a frozen batch, for refactors that must change nothing.

A change that is meant to alter the numbers is blessed by

    YAMAME_BLESS=1 .venv/bin/pytest -n0 tests/unit/algorithms/test_golden.py

which rewrites `golden.json` in this folder; say in the commit why they moved. Everything here is spelled out, so that
no shared helper moves them.
"""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces

from yamame.algorithms.amago.agent import Agent, AgentConfig
from yamame.algorithms.amago.learner import Learner, LearnerConfig
from yamame.algorithms.amago.losses.td import TDLoss
from yamame.data.batch import Batch, Window, pack
from yamame.data.trajectory import Trajectory
from yamame.nets.heads.actor import ActorConfig
from yamame.nets.heads.critic import CriticConfig
from yamame.nets.heads.popart import PopArtConfig
from yamame.nets.sequence.transformer import TransformerConfig
from yamame.nets.timestep.encoder import TimestepEncoderConfig

GOLDEN = Path(__file__).with_name("golden.json")
OBSERVATION = spaces.Box(-1.0, 1.0, (3,), np.float32)
ACTIONS: dict[str, spaces.Discrete | spaces.Box] = {
    "discrete": spaces.Discrete(3),
    "continuous": spaces.Box(-1.0, 1.0, (2,), np.float32),
}


def frozen_batch(kind: str) -> Batch:
    rng = np.random.default_rng(7)
    windows = []
    for length in (3, 8, 6):
        action = rng.integers(0, 3, length) if kind == "discrete" else rng.uniform(-1, 1, (length, 2))
        trajectory = Trajectory(
            reward=rng.normal(size=length).astype(np.float32),
            action=action.astype(np.int64 if kind == "discrete" else np.float32),
            terminated=np.arange(length) == length - 1,
            truncated=np.zeros(length, np.bool_),
            episode_start=np.arange(length + 1) % 4 == 0,
            observation={"observation": rng.uniform(-1, 1, (length + 1, 3)).astype(np.float32)},
            horizon=10,
        )
        windows.append(Window(trajectory=trajectory, start=0, length=length))
    return pack(windows, pad_tokens_to_multiple_of=8)


def five_updates(kind: str) -> dict[str, list[float]]:
    torch.manual_seed(11)
    agent = Agent(
        AgentConfig(
            timestep_encoder=TimestepEncoderConfig(hidden_sizes=(16,), output_size=12),
            trajectory_encoder=TransformerConfig(d_model=16, num_layers=2, num_heads=2, d_ff=32),
            actor=ActorConfig(hidden_sizes=(16,)),
            critic=CriticConfig(hidden_sizes=(16, 16), value_code=PopArtConfig(initial_square=100.0)),
            gammas=(0.5, 0.9),
            acting_gamma=0.95,
        ),
        observation_space=OBSERVATION,
        action_space=ACTIONS[kind],
        context_length=8,
        horizon=10,
    )
    config = LearnerConfig(td=TDLoss(n_step=2, reward_scale=10.0), learning_rate=1e-3, lr_warmup_updates=3, tau=0.1)
    learner = Learner(agent, config, generator=torch.Generator().manual_seed(13))
    batch = frozen_batch(kind)
    updates = [learner.update(batch) for _ in range(5)]
    names = ("loss/td", "loss/policy_gradient", "loss/filtered_bc", "optim/grad_norm")
    return {name: [metrics[name].item() for metrics in updates] for name in names}


@pytest.mark.parametrize("kind", ACTIONS)
def test_five_updates_give_the_golden_numbers(kind: str) -> None:
    measured = five_updates(kind)
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if os.environ.get("YAMAME_BLESS"):
        GOLDEN.write_text(json.dumps(golden | {kind: measured}, indent=2) + "\n")
        pytest.skip(f"{kind}: blessed")
    assert measured.keys() == golden[kind].keys()
    for name, values in golden[kind].items():
        assert measured[name] == pytest.approx(values, rel=1e-4, abs=1e-6), name
