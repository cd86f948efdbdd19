"""Seconds, memory and the machine's own limit, measured in this process."""

import math
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

import torch

SHORTEST_REPEAT_SECONDS = 0.25
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
    calls = max(1, math.ceil(SHORTEST_REPEAT_SECONDS / _seconds(work, 1, device)))
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
            self.num_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


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
