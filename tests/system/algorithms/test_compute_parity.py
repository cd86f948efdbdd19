"""Every way of computing an update gives what the plain one gives: in chunks, in bfloat16, compiled, recorded."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_agents import (
    CONTINUOUS,
    DISCRETE,
    TINY_AGENT,
    ActionSpace,
    double_batch,
    every_action_space,
    gradients,
    random_windows,
    shake,
    tiny_agent,
)
from torch import Tensor

from yamame.algorithms.amago.agent import AgentConfig
from yamame.algorithms.amago.learner import Learner, LearnerConfig
from yamame.algorithms.amago.losses.filtered_bc import FilteredBCLoss
from yamame.data.batch import Batch, pack
from yamame.nets.compute import CPU_FLOAT32, WARMUP_CALLS, Compute, shape_key
from yamame.nets.sequence.feedforward import FeedForwardConfig
from yamame.nets.sequence.gru import GRUConfig

both_action_spaces = pytest.mark.parametrize("action_space", [DISCRETE, CONTINUOUS], ids=["discrete", "continuous"])


def learner_of(
    compute: Compute,
    action_space: ActionSpace,
    config: AgentConfig = TINY_AGENT,
    dtype: torch.dtype = torch.float64,
    filtered_bc: float = 0.1,
) -> Learner:
    agent = tiny_agent(config, action_space, dtype=dtype)
    shake(agent)
    generator = torch.Generator(compute.device).manual_seed(3)
    losses = LearnerConfig(lr_warmup_updates=1, filtered_bc=FilteredBCLoss(weight=filtered_bc))
    return Learner(agent, losses, generator=generator, compute=compute)


def single_batch(action_space: ActionSpace, seed: int = 0) -> Batch:
    return pack(random_windows(seed, (5, 9, 2, 12), action_space), pad_tokens_to_multiple_of=8)


@every_action_space
@pytest.mark.parametrize("chunk_tokens", [1, 7, 16])
def test_in_chunks(action_space: ActionSpace, chunk_tokens: int) -> None:
    """Chunks of one token, uneven chunks, and one of padding alone; three updates, to see them compound."""
    whole = learner_of(CPU_FLOAT32, action_space)
    chunked = learner_of(replace(CPU_FLOAT32, chunk_tokens=chunk_tokens), action_space)
    for seed in range(3):
        batch = double_batch(random_windows(seed, (5, 9, 2), action_space), token_multiple=32)
        expected, metrics = whole.update(batch), chunked.update(batch)
        for name, value in expected.items():
            torch.testing.assert_close(metrics[name], value, rtol=1e-6, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}")
    for name, value in whole.agent.state_dict().items():
        torch.testing.assert_close(chunked.agent.state_dict()[name], value, rtol=1e-6, atol=1e-9)


@both_action_spaces
@pytest.mark.parametrize("encoder", ["transformer", "gru", "feedforward"])
def test_in_bfloat16(action_space: ActionSpace, encoder: str) -> None:
    """The same direction of the gradient, the same losses; parameters and statistics stay float32.

    Without imitation: rounding may carry an advantage over its threshold.
    """
    encoders = {"gru": GRUConfig(d_model=16, num_layers=2), "feedforward": FeedForwardConfig(d_model=16, num_layers=2)}
    config = replace(TINY_AGENT, trajectory_encoder=encoders.get(encoder, TINY_AGENT.trajectory_encoder))
    exact, coarse = (
        learner_of(replace(CPU_FLOAT32, dtype=dtype), action_space, config, torch.float32, filtered_bc=0.0)
        for dtype in (torch.float32, torch.bfloat16)
    )
    batch = single_batch(action_space)
    expected, metrics = exact.update(batch), coarse.update(batch)
    for name in ("loss/td", "loss/policy_gradient"):
        torch.testing.assert_close(metrics[name], expected[name], rtol=0.05, atol=0.02)
    assert _cosine(gradients(exact.agent), gradients(coarse.agent)) > 0.99
    assert not torch.equal(metrics["loss/td"], expected["loss/td"]), "or nothing was computed in bfloat16"
    assert {value.dtype for value in coarse.agent.state_dict().values()} == {torch.float32}


def _cosine(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    left, right = (torch.cat([value.flatten() for value in each.values()]) for each in (one, other))
    return float(torch.nn.functional.cosine_similarity(left, right, dim=0))


ONE_LAYER = replace(
    TINY_AGENT,
    trajectory_encoder=replace(TINY_AGENT.trajectory_encoder, num_layers=1),
    critic=replace(TINY_AGENT.critic, hidden_sizes=(16,)),
)
COMPILED = """
import sys; sys.path[:0] = PATHS
import warnings; warnings.filterwarnings("error", category=UserWarning, module="yamame")
from dataclasses import replace
import torch
from test_compute_parity import CONTINUOUS, DISCRETE, CPU_FLOAT32, ONE_LAYER, learner_of, single_batch
compute = replace(CPU_FLOAT32, device=torch.device("DEVICE"), chunk_tokens=16)
plain = learner_of(compute, SPACE, ONE_LAYER, dtype=torch.float32)
compiled = learner_of(replace(compute, compile=True), SPACE, ONE_LAYER, dtype=torch.float32)
for seed in range(2):
    expected, metrics = (learner.update(single_batch(SPACE, seed)) for learner in (plain, compiled))
    for name, value in expected.items():
        torch.testing.assert_close(metrics[name], value, rtol=1e-3, atol=1e-4, msg=lambda m: f"{name}: {m}")
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "device",
    [
        pytest.param("cpu", marks=pytest.mark.thorough),  # minutes
        pytest.param("cuda", marks=pytest.mark.gpu),
    ],
)
@pytest.mark.parametrize("space", ["CONTINUOUS", "DISCRETE"])
def test_compiled(space: str, device: str, pytestconfig: pytest.Config) -> None:
    """In a process of its own, where no types are checked at run time: that is not what users compile."""
    paths = [str(pytestconfig.rootpath / "tests" / "helpers"), str(Path(__file__).parent)]
    code = COMPILED.replace("PATHS", str(paths)).replace("DEVICE", device).replace("SPACE", space)
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr


@pytest.mark.gpu
@every_action_space
def test_recorded(action_space: ActionSpace) -> None:
    compute = replace(CPU_FLOAT32, device=torch.device("cuda"))
    plain = learner_of(compute, action_space, dtype=torch.float32)
    recorded = learner_of(replace(compute, cuda_graph=True), action_space, dtype=torch.float32)
    for seed in range(WARMUP_CALLS + 4):
        batch = single_batch(action_space, seed)
        expected, metrics = plain.update(batch), recorded.update(batch)
        for name, value in expected.items():
            torch.testing.assert_close(metrics[name], value, rtol=1e-3, atol=1e-4, msg=lambda m, n=name: f"{n}: {m}")


def test_batches_share_a_recording_only_if_all_shapes_agree() -> None:
    batch = single_batch(DISCRETE)
    assert shape_key(batch) == shape_key(single_batch(DISCRETE, seed=1))
    assert shape_key(batch) != shape_key(replace(batch, max_seqlen=batch.max_seqlen + 1))
    assert shape_key(batch) != shape_key(pack(random_windows(0, (5, 9, 2, 12)), pad_tokens_to_multiple_of=64))
