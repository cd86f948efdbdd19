"""Measurement of time, memory and peak throughput, and the results of benchmarks."""

import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import nn

from yamame.algorithms.amago.agent import Agent
from yamame.envs.vector.autotune import available_cores
from yamame.nets.sequence.transformer import Transformer

MIN_REPEAT_SECONDS = 0.25
"""Faster work is called several times per repeat."""
PEAK_SECONDS = 0.5
"""Time per shape of a matrix product."""
_CLEAR_PEAK, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
"""Linux files that reset and report the peak resident set size."""


def synchronize(device: torch.device) -> None:
    """Block until the device is idle."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds_per_call(work: Callable[[], object], *, repeats: int, device: torch.device) -> list[float]:
    """Return the seconds per call of each repeat. Warm up before."""
    calls = max(1, math.ceil(MIN_REPEAT_SECONDS / _seconds(work, 1, device)))
    return [_seconds(work, calls, device) / calls for _ in range(repeats)]


@dataclass(frozen=True, kw_only=True)
class UpdateTimes:
    """Times and memory of repeated updates."""

    seconds: list[float]
    """Per update, of each repeat."""
    warmup_seconds: float
    peak_memory_bytes: int


def time_updates(update: Callable[[], object], *, warmup: int, repeats: int, device: torch.device) -> UpdateTimes:
    """Make `warmup` updates, then time `repeats` times as many as take long enough."""
    memory = PeakMemory(device)
    warmup_seconds = _seconds(update, warmup, device)
    with memory:
        seconds = seconds_per_call(update, repeats=repeats, device=device)
    return UpdateTimes(seconds=seconds, warmup_seconds=warmup_seconds, peak_memory_bytes=memory.num_bytes)


def _seconds(work: Callable[[], object], calls: int, device: torch.device) -> float:
    synchronize(device)
    began = time.perf_counter()
    for _ in range(calls):
        work()
    synchronize(device)
    return time.perf_counter() - began


class PeakMemory:
    """Peak memory of a block.

    CPU: resident set size of the process, PyTorch's libraries (0.3 GB) included, within the block. GPU: memory that
    PyTorch's allocator handed out since this object was created. Create it before the warm-up, since a CUDA graph
    allocates its memory when it is captured.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.num_bytes = 0
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)

    def __enter__(self) -> "PeakMemory":
        if self._device.type != "cuda":
            with suppress(OSError):  # not Linux: the peak since the process started
                _CLEAR_PEAK.write_text("5", encoding="ascii")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._device.type == "cuda":
            self.num_bytes = torch.cuda.max_memory_allocated(self._device)
        elif _STATUS.exists():
            self.num_bytes = int(_STATUS.read_text(encoding="ascii").partition("VmHWM:")[2].split()[0]) * 1024
        else:
            self.num_bytes = _peak_resident_bytes()


def _peak_resident_bytes() -> int:
    """Peak resident set since the process began; 0 on Windows, which has no `resource`."""
    if sys.platform == "win32":
        return 0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def matmul_peak(device: torch.device, dtype: torch.dtype, shapes: Sequence[tuple[int, int, int]]) -> float:
    """Return the FLOP/s of the fastest of the products `[m, k] @ [n, k].T` (2 m k n FLOPs each), at its fastest call.

    Shapes are tried from small to large until one takes too long, as in bfloat16 without hardware support.
    """
    fastest = 0.0
    for m, k, n in sorted(shapes, key=math.prod):
        seconds = _product_seconds(device, dtype, m, k, n)
        fastest = max(fastest, 2.0 * m * k * n / seconds)
        if seconds > PEAK_SECONDS:
            break
    return fastest


def _product_seconds(device: torch.device, dtype: torch.dtype, m: int, k: int, n: int) -> float:
    left, right = (torch.ones(rows, k, device=device, dtype=dtype) for rows in (m, n))
    out = torch.empty(m, n, device=device, dtype=dtype)

    def multiply() -> None:
        torch.mm(left, right.T, out=out)  # the layout of a linear layer

    spent, best = _seconds(multiply, 1, device), math.inf
    while spent < PEAK_SECONDS or math.isinf(best):
        took = _seconds(multiply, 1, device)
        spent, best = spent + took, min(best, took)
    return best


_ISA = ("avx2", "avx512_f", "avx512_bf16", "amx_tile", "amx_bf16", "amx_fp16", "neon", "sve", "bf16")
"""CPU capabilities that affect matrix products."""


def describe_machine(device: torch.device) -> dict[str, Any]:
    """Return CPU, cores, instruction sets, memory, versions, PyTorch threads, and the GPU if it is used."""
    capabilities = torch.cpu.get_capabilities()
    memory_bytes = 0  # unknown on Windows
    if sys.platform != "win32":
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": _cpu_model(),
        "cores": available_cores(),
        "isa": [name for name in _ISA if capabilities.get(name)],
        "memory_gib": round(memory_bytes / 2**30, 1),
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def format_machine(machine: Mapping[str, Any]) -> str:
    """Format a machine in one line."""
    isa, gpu = " ".join(machine["isa"]) or "no vector units known", f"{machine['gpu']}, " if machine["gpu"] else ""
    return (
        f"{gpu}{machine['cpu']}, {machine['cores']} cores ({isa}), {machine['memory_gib']} GiB, "
        f"{machine['threads']} threads, PyTorch {machine['torch']}, Python {machine['python']}, {machine['system']}"
    )


def _cpu_model() -> str:
    try:
        about = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    models = [line.partition(":")[2].strip() for line in about.splitlines() if line.startswith("model name")]
    return models[0] if models else platform.processor()


@dataclass(frozen=True, kw_only=True)
class BenchResult:
    """Result of a benchmark."""

    bench: str
    samples: Mapping[str, Sequence[float]]
    """Values of the repeats by name."""
    scalars: Mapping[str, float | int]
    """Values measured once."""
    config: Mapping[str, Any]
    machine: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return medians and scalars by name; `spread` has the minimum and maximum of the repeats."""
        return {
            "bench": self.bench,
            **{name: statistics.median(values) for name, values in self.samples.items()},
            **self.scalars,
            "repeats": len(next(iter(self.samples.values()))),
            "spread": {name: [min(values), max(values)] for name, values in self.samples.items()},
            "config": dict(self.config),
            "machine": dict(self.machine),
        }

    def to_text(self) -> str:
        """Return a line per value."""
        rows = [
            (name, _short(statistics.median(values)), f"{_short(min(values))} to {_short(max(values))}")
            for name, values in self.samples.items()
        ]
        rows += [(name, _short(value), "") for name, value in self.scalars.items()]
        names, medians = (max(len(row[column]) for row in rows) for column in (0, 1))
        lines = [f"{name.replace('_', ' '):{names}}  {median:>{medians}}  {spread}" for name, median, spread in rows]
        return "\n".join([line.rstrip() for line in lines] + [format_machine(self.machine)])


def _short(value: float | int) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def flops_per_update(agent: Agent, lengths: Sequence[int]) -> int:
    """Return the FLOPs of the matrix products of one update on windows of these lengths, for discrete actions.

    Counted: every weight times every token, forward (2 FLOPs a weight) and backward (4, or 2 in the first layer,
    whose input needs no gradient), the target networks forward; and of attention the pairs of tokens that attend to
    each other (4 D FLOPs a pair forward, 8 D backward, in each layer). Not counted: padding, recomputation, elementwise
    operations, normalization, power iteration and the optimizer.
    """
    tokens = sum(length + 1 for length in lengths)
    pairs = sum((length + 1) * (length + 2) // 2 for length in lengths)
    online = (agent.timestep_encoder, agent.trajectory_encoder, agent.actor, agent.critic)
    trained = sum(_weights(part) for part in online)
    first = agent.timestep_encoder.get_parameter("mlp.hidden.0.weight").numel()
    target = _weights(agent.target_actor) + _weights(agent.target_critic)
    encoder = agent.trajectory_encoder
    attention = 12 * encoder.config.num_layers * encoder.config.d_model if isinstance(encoder, Transformer) else 0
    return tokens * (6 * trained - 2 * first + 2 * target) + pairs * attention


def _weights(module: nn.Module) -> int:
    """Return the number of weights in matrices that multiply tokens."""
    return sum(
        parameter.numel()
        for name, parameter in module.named_parameters()
        if "weight" in name.rpartition(".")[2] and parameter.dim() > 1
    )
