"""`ClippedAdamW` takes the steps of AdamW, bit for bit, and neither it nor an update loads the compiler."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from yamame.algorithms.optimizer import ClippedAdamW, wide_layer_lr_scales
from yamame.distributed_context import SINGLE_PROCESS, DistributedContext

DECAY, MAX_NORM = 0.1, 1.0


def parameters(dtype: torch.dtype) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((3, 5), (), (7,), (2, 1, 4))
    return [nn.Parameter(torch.randn(shape, generator=generator, dtype=dtype)) for shape in shapes]


def set_gradients(of: list[nn.Parameter], step: int, *, scale: float = 1.0) -> None:
    """The last parameter has its first gradient at step 2."""
    generator = torch.Generator().manual_seed(step + 1)
    for index, parameter in enumerate(of):
        gradient = scale * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
        parameter.grad = None if index == len(of) - 1 and step < 2 else gradient


def reference_step(optimizer: torch.optim.AdamW, of: list[nn.Parameter]) -> None:
    norm = nn.utils.get_total_norm([parameter.grad for parameter in of if parameter.grad is not None], foreach=True)
    optimizer.grad_scale = ((norm + 1e-6) / MAX_NORM).clamp(min=1.0).float()  # type: ignore[attr-defined]
    optimizer.found_inf = (~torch.isfinite(norm)).float()  # type: ignore[attr-defined]
    optimizer.step()


def test_every_rank_sums_a_gradient_of_each_parameter() -> None:
    of = parameters(torch.float64)
    optimizer = ClippedAdamW(of, weight_decay=DECAY, max_grad_norm=MAX_NORM)
    set_gradients(of, 0)
    assert len(optimizer.grads_to_sum(SINGLE_PROCESS)) == len(of) - 1
    summed = optimizer.grads_to_sum(DistributedContext(rank=1, world_size=2))
    assert [each.shape for each in summed] == [each.shape for each in of]
    assert not summed[-1].any() and all(each.any() for each in summed[:-1])


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_steps_and_state_are_those_of_adamw(dtype: torch.dtype) -> None:
    ours, theirs = parameters(dtype), parameters(dtype)
    optimizer = ClippedAdamW(ours, weight_decay=DECAY, max_grad_norm=MAX_NORM)
    reference = torch.optim.AdamW(theirs, lr=optimizer.lr, weight_decay=DECAY, fused=True)
    for step in range(6):
        optimizer.lr.fill_(0.01 * (step + 1))
        for each in (ours, theirs):
            set_gradients(each, step, scale=float("inf") if step == 3 else 10.0**-step)
        _, finite = optimizer.step(torch.zeros(()))
        reference_step(reference, theirs)
        assert bool(finite) is (step != 3)
        assert all(map(torch.equal, ours, theirs))
        assert equal(optimizer.state_dict()["state"], reference.state_dict()["state"])


def test_it_continues_from_the_state_of_adamw() -> None:
    ours, theirs = parameters(torch.float32), parameters(torch.float32)
    reference = torch.optim.AdamW(theirs, lr=torch.tensor(0.01), weight_decay=DECAY, fused=True)
    set_gradients(theirs, 5)
    reference_step(reference, theirs)
    optimizer = ClippedAdamW(ours, weight_decay=DECAY, max_grad_norm=MAX_NORM)
    optimizer.lr.fill_(0.01)
    optimizer.load_state_dict({"state": copied(reference.state_dict()["state"])})
    with torch.no_grad():
        for one, other in zip(ours, theirs, strict=True):
            one.copy_(other)
    for each in (ours, theirs):
        set_gradients(each, 6)
    optimizer.step(torch.zeros(()))
    reference_step(reference, theirs)
    assert all(map(torch.equal, ours, theirs))


def test_a_factor_of_the_learning_rate_scales_the_step_but_not_the_decay() -> None:
    ours, theirs, scales = parameters(torch.float64), parameters(torch.float64), (0.25, 1.0, 0.5, 0.25)
    optimizer = ClippedAdamW(ours, weight_decay=DECAY, max_grad_norm=MAX_NORM, lr_scales=scales)
    optimizer.lr.fill_(0.01)
    groups = [
        {"params": [parameter], "lr": torch.tensor(0.01 * scale), "weight_decay": DECAY / scale}
        for parameter, scale in zip(theirs, scales, strict=True)
    ]
    reference = torch.optim.AdamW(groups, fused=True)
    for step in range(4):
        for each in (ours, theirs):
            set_gradients(each, step)
        optimizer.step(torch.zeros(()))
        reference_step(reference, theirs)
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other)


def test_wide_layers_are_the_linear_ones_of_many_inputs() -> None:
    module = nn.Sequential(nn.Embedding(512, 8), nn.Linear(512, 4), nn.Linear(128, 512), nn.LayerNorm(512))
    assert wide_layer_lr_scales(module, list(module.parameters()), 128) == (1.0, 0.25, 1.0, 1.0, 1.0, 1.0, 1.0)
    assert set(wide_layer_lr_scales(module, list(module.parameters()), 0)) == {1.0}
    assert wide_layer_lr_scales(module[2], list(module.parameters()), 128) == (1.0,) * 7


def copied(state: dict[int, dict[str, Tensor]]) -> dict[int, dict[str, Tensor]]:
    return {index: {name: value.clone() for name, value in entries.items()} for index, entries in state.items()}


def in_a_new_process(program: str, *args: str) -> str:
    """What a program prints in a process that has not yet imported anything, and may compile."""
    finished = subprocess.run([sys.executable, "-c", program, *args], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.strip()


COMPILE = """
import torch
from yamame.nets.ops import uncompiled

graphs = []

def backend(graph, inputs):
    graphs.append([node.name for node in graph.graph.nodes if node.op.startswith("call")])
    return graph.forward

@uncompiled
def inside(x):
    assert not torch.compiler.is_compiling()
    return x.sin() if len(x) > 2 else x.cos()

def outside(x):
    return inside(x + 1) * 2

compiled = torch.compile(outside, backend=backend)
for length in (2, 3, 4):
    assert torch.equal(compiled(torch.arange(float(length))), outside(torch.arange(float(length))))
print(*sorted({name for graph in graphs for name in graph}))
"""


@pytest.mark.slow
def test_a_compiler_leaves_uncompiled_functions_out_of_its_graphs() -> None:
    assert in_a_new_process(COMPILE) == "add mul"


TRAIN = """
import sys, yamame
run = yamame.train(
    "passive-tmaze", size="tiny", horizon=3, num_envs=4, env_steps=64, updates_per_env_step=0.25, run_dir=sys.argv[1],
    replay={"batch_size": 2}, eval={"trials": 2, "final_trials": 2}, compute={"device": "cpu", "compile": "off"},
)
print(run.result["updates"], "torch._dynamo" in sys.modules)
"""


@pytest.mark.slow
def test_training_without_compilation_never_loads_the_compiler(tmp_path: Path) -> None:
    assert in_a_new_process(TRAIN, str(tmp_path / "run")) == "16 False"
