"""Seconds, memory and the machine's own limit, measured in this process."""

import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from yamame.algorithms.amago.agent import Agent
from yamame.envs.vector.autotune import available_cores
from yamame.nets.sequence.transformer import Transformer

MIN_REPEAT_SECONDS = 0.25
"""Quicker work is called several times a repeat, so that the clock and the scheduler weigh little."""
PEAK_SECONDS = 0.5
"""How long each shape of a matrix product is tried."""
_CLEAR_PEAK, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
"""Where Linux forgets the peak of the resident set, and where it tells it."""


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has done what it was told; nothing to wait for elsewhere."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds_per_call(work: Callable[[], object], *, repeats: int, device: torch.device) -> list[float]:
    """One number for each repeat. Warm up before: the first calls ever may be slow."""
    calls = max(1, math.ceil(MIN_REPEAT_SECONDS / _seconds(work, 1, device)))
    return [_seconds(work, calls, device) / calls for _ in range(repeats)]


def _seconds(work: Callable[[], object], calls: int, device: torch.device) -> float:
    synchronize(device)
    began = time.perf_counter()
    for _ in range(calls):
        work()
    synchronize(device)
    return time.perf_counter() - began


class PeakMemory:
    """The most memory in use while measuring.

    On a CPU: the resident set of the whole process, PyTorch's libraries (some 0.3 GB) included, from entering to
    leaving. On a GPU: what PyTorch's allocator gave out since this object was made, which belongs before the warm-up:
    a recorded update takes its memory when it is recorded, none when it is replayed.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.num_bytes = 0
        self.means = "peak resident set of the process while measuring"
        """What was measured, in words."""
        if device.type == "cuda":
            self.means = "torch.cuda.max_memory_allocated, warm-up included"
            torch.cuda.reset_peak_memory_stats(device)

    def __enter__(self) -> "PeakMemory":
        if self._device.type != "cuda":
            try:
                _CLEAR_PEAK.write_text("5", encoding="ascii")
            except OSError:
                self.means = "peak resident set of the process since it began"
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
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if platform.system() == "Darwin" else peak * 1024


def matmul_peak(device: torch.device, dtype: torch.dtype, shapes: Sequence[tuple[int, int, int]]) -> float:
    """FLOP/s of the fastest of some products `[m, k] @ [n, k].T` (2 m k n FLOPs each), at its fastest call.

    From the smallest on; none after one that takes too long, as bfloat16 does where the machine has no units for it.
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
        torch.mm(left, right.T, out=out)  # as a linear layer: in bfloat16 the only layout that is fast everywhere

    spent, best = _seconds(multiply, 1, device), math.inf
    while spent < PEAK_SECONDS or math.isinf(best):
        took = _seconds(multiply, 1, device)
        spent, best = spent + took, min(best, took)
    return best


_ISA = ("avx2", "avx512_f", "avx512_bf16", "amx_tile", "amx_bf16", "amx_fp16", "neon", "sve", "bf16")
"""The capabilities of a CPU that decide how fast products are."""


def describe_machine(device: torch.device) -> dict[str, Any]:
    """CPU, cores, instruction sets, memory, versions, threads of PyTorch, and the GPU if that is what computes."""
    capabilities = torch.cpu.get_capabilities()
    return {
        "cpu": _cpu_model(),
        "cores": available_cores(),
        "isa": [name for name in _ISA if capabilities.get(name)],
        "memory_gib": round(_memory_bytes() / 2**30, 1),
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def format_machine(machine: Mapping[str, Any]) -> str:
    """One line of it."""
    isa, gpu = " ".join(machine["isa"]) or "no vector units known", f"{machine['gpu']}, " if machine["gpu"] else ""
    return (
        f"{gpu}{machine['cpu']}, {machine['cores']} cores ({isa}), {machine['memory_gib']} GiB, "
        f"{machine['threads']} threads, PyTorch {machine['torch']}, Python {machine['python']}, {machine['system']}"
    )


def _memory_bytes() -> int:
    if not hasattr(os, "sysconf"):  # Windows
        return 0
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _cpu_model() -> str:
    try:
        about = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    models = [line.partition(":")[2].strip() for line in about.splitlines() if line.startswith("model name")]
    return models[0] if models else platform.processor()


@dataclass(frozen=True, kw_only=True)
class BenchResult:
    """Figures by name, with what they were measured on."""

    bench: str
    samples: Mapping[str, Sequence[float]]
    """One number for each repeat."""
    scalars: Mapping[str, float | int | str]
    """What is known once."""
    config: Mapping[str, Any]
    machine: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Medians and facts by name; `spread` has the least and the greatest of the repeats."""
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
        """A line for each figure, for people."""
        rows = [
            (name, _short(statistics.median(values)), f"{_short(min(values))} to {_short(max(values))}")
            for name, values in self.samples.items()
        ]
        rows += [(name, _short(value), "") for name, value in self.scalars.items() if not isinstance(value, str)]
        rows += [(name, "", value) for name, value in self.scalars.items() if isinstance(value, str)]
        names, medians = (max(len(row[column]) for row in rows) for column in (0, 1))
        lines = [f"{name.replace('_', ' '):{names}}  {median:>{medians}}  {spread}" for name, median, spread in rows]
        return "\n".join([line.rstrip() for line in lines] + [format_machine(self.machine)])


def _short(value: float | int) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def update_flops(agent: Agent, lengths: Sequence[int]) -> int:
    """FLOPs of the matrix products of one update on windows of so many transitions, for discrete actions.

    Counted: every weight times every real token, forward (2 FLOPs a weight) and backward (4, or 2 in the first layer,
    whose input needs no gradient), the slow heads forward; and of attention the pairs of tokens that see each other
    (4 D FLOPs a pair forward, 8 D backward, in each layer). Not counted: padding, what is computed twice, everything
    elementwise, normalisation, power iteration and the optimizer.
    """
    tokens = sum(length + 1 for length in lengths)
    pairs = sum((length + 1) * (length + 2) // 2 for length in lengths)
    online = (agent.timestep_encoder, agent.trajectory_encoder, agent.actor, agent.critic)
    learned = sum(_weights(part) for part in online)
    first = agent.timestep_encoder.get_parameter("mlp.hidden.0.weight").numel()
    slow = _weights(agent.target_actor) + _weights(agent.target_critic)
    encoder = agent.trajectory_encoder
    attention = 12 * encoder.config.num_layers * encoder.config.d_model if isinstance(encoder, Transformer) else 0
    return tokens * (6 * learned - 2 * first + 2 * slow) + pairs * attention


def _weights(module: nn.Module) -> int:
    """Numbers in the matrices that multiply tokens."""
    return sum(weight.numel() for name, weight in module.named_parameters() if _is_matrix(name, weight))


def _is_matrix(name: str, parameter: Tensor) -> bool:
    return "weight" in name.rpartition(".")[2] and parameter.dim() > 1
