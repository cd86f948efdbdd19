"""Runs on a GPU: acting as on a CPU and as a CUDA graph, any device index, async collection, deterministic runs."""

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny_agents import (
    DISCRETE,
    TINY_AGENT,
    TINY_TRANSFORMER,
    ActionSpace,
    every_action_space,
    random_actions,
    shake,
    tiny_agent,
)

from yamame import cli
from yamame.algorithms.network_policy import NetworkPolicy
from yamame.data.step import PolicyInput
from yamame.nets.compute import WARMUP_CALLS
from yamame.nets.sequence.base import TrajectoryEncoderConfig
from yamame.nets.sequence.feedforward import FeedForwardConfig
from yamame.nets.sequence.gru import GRUConfig

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
        NetworkPolicy(agent.to(device), num_envs=3, generator=torch.Generator(device).manual_seed(0))
        for device in ("cpu", DEVICE)
    ]
    for given in timesteps(30):
        here, there = (policy.state(given).cpu() for policy in policies)
        torch.testing.assert_close(there, here, rtol=1e-3, atol=1e-4)


def timesteps(count: int, action_space: ActionSpace = DISCRETE) -> Iterator[PolicyInput]:
    """Of three environments, the second of which starts a trial in the middle."""
    rng = np.random.default_rng(0)
    time = np.zeros(3, np.int64)
    for step in range(count):
        time = np.where(np.arange(3) == (1 if step == count // 2 else -1), 0, time)
        yield PolicyInput(
            observation={"vector": rng.uniform(-1, 1, (3, 3)).astype(np.float32), "cell": rng.integers(0, 4, 3)},
            previous_action=random_actions(rng, 3, action_space),
            previous_reward=rng.normal(size=3).astype(np.float32),
            episode_start=time == 0,
            time=time,
        )
        time = time + 1


@every_action_space
@pytest.mark.parametrize("encoder", [TINY_TRANSFORMER, GRUConfig(d_model=16), FeedForwardConfig(d_model=16)])
def test_replays_act_as_eager_steps_do(
    encoder: TrajectoryEncoderConfig, action_space: ActionSpace, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same samples and log-probabilities, with new weights in between, on a stream of its own as in the
    background. A replayed step waits for the device once."""
    agent = tiny_agent(replace(TINY_AGENT, trajectory_encoder=encoder), action_space, dtype=torch.float32).to(DEVICE)
    captured, eager = (
        NetworkPolicy(
            agent,
            num_envs=3,
            generator=torch.Generator(DEVICE).manual_seed(0),
            records_log_prob=True,
            cuda_graph=cuda_graph,
        )
        for cuda_graph in (True, False)
    )
    with torch.cuda.stream(torch.cuda.Stream()):
        for number, step in enumerate(timesteps(60, action_space)):
            if number == 30:
                agent.actor.mlp.output.weight.data += 0.3
                captured.load_weights(agent, version=1)
                eager.load_weights(agent, version=1)
            with warnings.catch_warnings(record=True) as waits:
                warnings.simplefilter("always")
                torch.cuda.set_sync_debug_mode("warn" if number > WARMUP_CALLS else "default")
                action = captured.act(step)
                torch.cuda.set_sync_debug_mode("default")
            assert len(waits) <= 1
            np.testing.assert_allclose(action, eager.act(step), rtol=1e-5, atol=1e-5)
            noise = np.zeros(3)
            log_prob, expected = (policy.extras(action, noise, noise > 0) for policy in (captured, eager))
            np.testing.assert_allclose(log_prob["acting_log_prob"], expected["acting_log_prob"], rtol=1e-4, atol=1e-4)
    assert captured._static_steps[False]._graph is not None and not capsys.readouterr().err


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
