"""Runs on a GPU: acting as on a CPU, any device index, overlapped collection, deterministic algorithms."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny_agents import DISCRETE, TINY_AGENT, shake, tiny_agent

from yamame import cli
from yamame.algorithms.amago.policy import AMAGOPolicy
from yamame.data.step import PolicyInput

pytestmark = pytest.mark.gpu
DEVICE = "cuda"
SHORT = "passive-tmaze --env.horizon 10 --env-steps 3000 --eval.final-trials 8 --eval.interval-env-steps 0 --quiet"


def train(run: Path, *flags: str) -> dict[str, torch.Tensor]:
    """Train in this process; return the weights."""
    assert cli.main(["train", *SHORT.split(), "--compute.device", DEVICE, "--run-dir", str(run), *flags]) == 0
    return weights_of(run)


def weights_of(run: Path) -> dict[str, torch.Tensor]:
    """Return all tensors of the last checkpoint."""
    return load_file(sorted(run.glob("checkpoints/update-*/tensors.safetensors"))[-1])


def test_acting_is_that_of_a_cpu() -> None:
    """Over 30 steps of three environments, with a reset in the middle."""
    agent = tiny_agent(TINY_AGENT, DISCRETE, dtype=torch.float32)
    shake(agent)
    policies = [
        AMAGOPolicy(agent.to(device), num_envs=3, generator=torch.Generator(device).manual_seed(0))
        for device in ("cpu", DEVICE)
    ]
    rng = np.random.default_rng(0)
    time = np.zeros(3, np.int64)
    for step in range(30):
        time = np.where(np.arange(3) == (1 if step == 15 else -1), 0, time)
        given = PolicyInput(
            observation={"vector": rng.uniform(-1, 1, (3, 3)).astype(np.float32), "cell": rng.integers(0, 4, 3)},
            previous_action=np.where(time == 0, 0, rng.integers(3, size=3)),
            previous_reward=np.where(time == 0, 0, rng.normal(size=3)).astype(np.float32),
            episode_start=time == 0,
            time=time,
        )
        here, there = (policy.state(given).cpu() for policy in policies)
        torch.testing.assert_close(there, here, rtol=1e-3, atol=1e-4)
        time = time + 1


@pytest.mark.parametrize("flags", [(), ("--async-collection",), ("--compute.dtype", "bfloat16"), ("--model", "gru")])
def test_a_run_ends(tmp_path: Path, flags: tuple[str, ...]) -> None:
    weights = train(tmp_path / "run", *flags)
    assert weights and all(weight.isfinite().all() for weight in weights.values() if weight.is_floating_point())


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_run_on_the_last_gpu_allocates_nothing_on_the_first(tmp_path: Path) -> None:
    torch.cuda.reset_peak_memory_stats(0)
    before = torch.cuda.max_memory_allocated(0)
    train(tmp_path / "run", "--compute.device", f"cuda:{torch.cuda.device_count() - 1}", "--async-collection")
    assert torch.cuda.max_memory_allocated(0) == before


@pytest.mark.timeout(600)
def test_deterministic_runs_of_a_seed_are_equal(tmp_path: Path) -> None:
    """In processes of their own, since the setting is the process's."""
    for run in ("one", "two"):
        flags = ["--compute.device", DEVICE, "--compute.deterministic", "--run-dir", str(tmp_path / run)]
        subprocess.run([sys.executable, "-m", "yamame", "train", *SHORT.split(), *flags], check=True, env=os.environ)
    one, two = (weights_of(tmp_path / run) for run in ("one", "two"))
    assert one and all(torch.equal(one[name], two[name]) for name in one)
