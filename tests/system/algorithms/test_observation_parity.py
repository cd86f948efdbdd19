"""Every way of computing an update on images, tokens and texts gives what the plain one gives."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from observation_agents import agent_for, collected
from sampled_observations import LENGTH, MIXED

from yamame.algorithms.amago.learner import Learner, LearnerConfig
from yamame.data.batch import Batch, Window, pack
from yamame.nets.compute import CPU_FLOAT32, WARMUP_CALLS, Compute


def learner_on_all_kinds(compute: Compute, chunk_elements: int = 500) -> Learner:
    agent = agent_for(MIXED)
    agent.timestep_encoder.chunk_elements = chunk_elements
    generator = torch.Generator(compute.device).manual_seed(0)
    return Learner(agent, LearnerConfig(lr_warmup_updates=1), generator=generator, compute=compute)


def batch_of_all_kinds(trials: int) -> Batch:
    trajectories = collected(agent_for(MIXED), MIXED, trials)
    return pack(
        [Window(trajectory=each, start=0, length=LENGTH) for each in trajectories], pad_tokens_to_multiple_of=16
    )


def check_the_same_updates(plain: Learner, other: Learner, tolerance: float) -> None:
    for trials in (2, 4, 6):
        batch = batch_of_all_kinds(trials)
        expected, found = plain.update(batch), other.update(batch)
        for name in ("loss/td", "optim/grad_norm"):
            torch.testing.assert_close(found[name], expected[name], rtol=tolerance, atol=tolerance)


def test_updates_in_bfloat16_are_close() -> None:
    coarse = replace(CPU_FLOAT32, dtype=torch.bfloat16)
    check_the_same_updates(learner_on_all_kinds(CPU_FLOAT32), learner_on_all_kinds(coarse), tolerance=0.05)


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("chunk_elements", [500, 10**6])
def test_updates_compiled_are_the_same(chunk_elements: int, pytestconfig: pytest.Config) -> None:
    """In a process of its own, where no types are checked; batches of several sizes, in chunks and whole."""
    paths = [str(pytestconfig.rootpath / "tests" / "helpers"), str(Path(__file__).parent)]
    code = f"""
import sys; sys.path[:0] = {paths}
from dataclasses import replace
from test_observation_parity import CPU_FLOAT32, check_the_same_updates, learner_on_all_kinds
compiled = replace(CPU_FLOAT32, compile=True)
check_the_same_updates(learner_on_all_kinds(CPU_FLOAT32), learner_on_all_kinds(compiled, {chunk_elements}), 1e-3)
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr


@pytest.mark.gpu
@pytest.mark.parametrize("chunk_elements", [500, 10**6])
def test_updates_recorded_are_the_same(chunk_elements: int) -> None:
    on_gpu = replace(CPU_FLOAT32, device=torch.device("cuda"))
    plain, recorded = (
        learner_on_all_kinds(replace(on_gpu, cuda_graph=cuda_graph), chunk_elements) for cuda_graph in (False, True)
    )
    batch = batch_of_all_kinds(4)
    for _ in range(WARMUP_CALLS + 3):
        expected, found = plain.update(batch), recorded.update(batch)
        torch.testing.assert_close(found["loss/td"], expected["loss/td"], rtol=1e-3, atol=1e-3)
