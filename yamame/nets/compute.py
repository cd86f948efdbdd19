"""Device, precision and compiler of a run, and CUDA graphs."""

import os
import sys
import threading
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from yamame.data.batch import Batch
from yamame.errors import ConfigFieldError, check_range
from yamame.nets.attention import attend_flash, select_backend

_T = TypeVar("_T")
_CAPTURE = threading.Lock()
"""CUDA allows one capture at a time in a process; the acting thread may start one while the learner makes its own."""

MIN_COMPILED_UPDATES = {"cpu": 3000, "cuda": 30_000}
"""Shortest run that is compiled. Compiling takes 12-60 s; it saves up to a third of an update (popgym size), which on a
GPU is 1.6 ms."""
MIN_BFLOAT16_WIDTH = 128
"""Narrowest network that uses bfloat16 on a CPU: in narrower ones the casts cost more than the products save."""

GPU_CHUNK_TOKENS = 32_768
"""Tokens per chunk on a GPU: about 1 GB in the heads of the paper. Chunks of 8,192 make an update 7 % slower."""
WARMUP_CALLS = 3
"""Eager calls for each shape before its capture, in which libraries tune and the compiler compiles."""
MAX_QUEUED_UPDATES = 4
"""Most updates that the host queues on a GPU. More would delay acting and signals, and keep their batches in memory."""
MAX_GRAPHS = 16
"""Most captured CUDA graphs, since each keeps its memory; batches of further shapes run eagerly."""


@dataclass(frozen=True, kw_only=True)
class ComputeConfig:
    """How the learner computes. `auto` depends on the machine and the config only, not on timings."""

    device: str = "auto"
    """Device of the learner: cpu, cuda, cuda:1, … or auto (cuda if available)."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Type of matrix products and activations. Weights, norms, values, losses and statistics are always float32.
    auto: bfloat16 if the hardware supports it (GPU, AMX, AVX512-BF16)."""
    compile: Literal["auto", "on", "off"] = "auto"
    """Compile the network. auto: on a GPU or with bfloat16, if the run is long enough."""
    cuda_graph: bool = True
    """On a GPU, capture the update for each batch shape and the step of the policy as CUDA graphs and replay them."""
    deterministic: bool = False
    """On a GPU, use deterministic algorithms only, which are slower, so that the same seed gives the same bits and a
    resume is exact; operations that have none warn. A CPU is deterministic without it."""
    chunk_tokens: int = 0
    """Tokens per chunk of heads and losses, which bounds their memory; 0: 8,192, on a GPU 32,768."""

    def __post_init__(self) -> None:
        check_range(self, "chunk_tokens", ge=0)
        try:
            kind = "auto" if self.device == "auto" else torch.device(self.device).type
        except RuntimeError:
            kind = ""
        if kind not in ("auto", "cpu", "cuda"):
            raise ConfigFieldError(self, "device", f"must be auto, cpu, cuda or cuda:N, got {self.device!r}")


@dataclass(frozen=True, kw_only=True)
class Compute:
    """A `ComputeConfig` resolved for a machine. The default is float32 on the CPU, not compiled."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    dtype: torch.dtype = torch.float32
    compile: bool = False
    cuda_graph: bool = False
    deterministic: bool = False
    chunk_tokens: int = 8192

    def __str__(self) -> str:
        parts = [str(self.device), str(self.dtype).removeprefix("torch.")]
        parts += ["compiled"] if self.compile else []
        if self.device.type == "cuda":
            parts += ["CUDA graphs"] if self.cuda_graph else []
            backend = select_backend(self.device, self.dtype, 8, deterministic=self.deterministic)
            parts += ["flash attention" if backend is attend_flash else "padded attention"]
            parts += ["deterministic"] if self.deterministic else []
        return ", ".join(parts)

    def autocast(self) -> AbstractContextManager[object]:
        """Return an autocast context for `dtype`. Casts are not cached, since an update uses each weight once."""
        if self.dtype is torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, self.dtype, cache_enabled=False)


CPU_FLOAT32 = Compute()
"""float32 on the CPU, not compiled."""


def resolve_compute(config: ComputeConfig, *, width: int, updates: int) -> Compute:
    """Resolve `auto` for this machine. A compiler that does not work is reported in one line on stderr.

    Args:
        config: Config to resolve.
        width: Width of the states.
        updates: Number of updates of the run.

    Raises:
        ConfigFieldError: If the device does not exist.
    """
    device = _device(config)
    narrow = device.type == "cpu" and width < MIN_BFLOAT16_WIDTH
    wants_bfloat16 = config.dtype == "bfloat16" or (
        config.dtype == "auto" and supports_fast_bfloat16(device) and not narrow
    )
    pays = updates >= MIN_COMPILED_UPDATES[device.type] and (device.type == "cuda" or wants_bfloat16)
    return Compute(
        device=device,
        dtype=torch.bfloat16 if wants_bfloat16 else torch.float32,
        compile=(config.compile == "on" or (config.compile == "auto" and pays)) and compiler_works(device),
        cuda_graph=config.cuda_graph and device.type == "cuda",
        deterministic=config.deterministic and device.type == "cuda",
        chunk_tokens=config.chunk_tokens or (GPU_CHUNK_TOKENS if device.type == "cuda" else Compute.chunk_tokens),
    )


def supports_fast_bfloat16(device: torch.device) -> bool:
    """Return whether bfloat16 products are faster than float32 ones on a device."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    here = torch.cpu.get_capabilities()
    return any(here.get(units, False) for units in ("amx_bf16", "avx512_bf16"))


def compiler_works(device: torch.device) -> bool:
    """Return whether `torch.compile` works for a tiny function. If not, print one line on stderr."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # raised by the compiler itself
            torch.compile(torch.neg)(torch.zeros(2, device=device))
    except Exception as error:  # a missing or broken compiler may raise anything
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        print(f"not compiling: no working compiler ({reason})", file=sys.stderr)
        return False
    return True


def _device(config: ComputeConfig) -> torch.device:
    if config.device == "auto":
        return _with_index(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    device = torch.device(config.device)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigFieldError(
            config, "device", f"is {config.device}, but PyTorch sees {torch.cuda.device_count()} GPUs"
        )
    return _with_index(device)


def _with_index(device: torch.device) -> torch.device:
    """Return `cuda:0` for `cuda`, since tensors are on devices with an index and are compared with this one."""
    return torch.device("cuda", device.index or 0) if device.type == "cuda" else device


def use_device(device: torch.device) -> None:
    """Make a GPU the current one of this thread: captures, streams and pinned memory belong to the current device."""
    if device.type == "cuda":
        torch.cuda.set_device(device)


def use_deterministic_algorithms() -> None:
    """Make PyTorch choose deterministic algorithms in this process, before its first computation on a GPU."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)


class BoundedRunAhead:
    """Limits how many updates the host queues on a GPU before it waits for the device. Does nothing on a CPU."""

    def __init__(self, device: torch.device, limit: int = MAX_QUEUED_UPDATES) -> None:
        self._device, self._limit = device, limit
        self._queued: deque[torch.cuda.Event] = deque()

    def wait(self) -> None:
        """Mark the end of an update; wait until fewer than `limit` marked updates are unfinished."""
        if self._device.type != "cuda":
            return
        event = torch.cuda.Event()
        event.record()
        self._queued.append(event)
        if len(self._queued) >= self._limit:
            self._queued.popleft().synchronize()


def capture_graph(
    function: Callable[[], _T], generator: torch.Generator, *, pool: Any = None
) -> tuple[torch.cuda.CUDAGraph, _T]:
    """Capture a function as a CUDA graph, without running its kernels. Return the graph and the function's result.

    The function must have run on this thread before, so that libraries are initialized. If the capture fails, the
    current stream and the state of the generator are those from before.

    Args:
        function: Changes persistent tensors in place. Each replay overwrites its result.
        generator: Its random numbers are those that the function would have drawn, call by call.
        pool: Memory pool to share with other graphs, which are never replayed at the same time.

    Raises:
        RuntimeError: If the function cannot be captured, for example because it waits for the device.
    """
    graph, stream, state = torch.cuda.CUDAGraph(), torch.cuda.current_stream(generator.device), generator.get_state()
    graph.register_generator_state(generator)
    try:
        # thread-local: other threads may pin batches, act or update during the capture
        with _CAPTURE, torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            result = function()
    except BaseException:
        torch.cuda.set_stream(stream)
        before = torch.Generator(generator.device)
        before.set_state(state)
        generator.graphsafe_set_state(before)  # the present state stays in the mode of a capture
        raise
    return graph, result


class CudaGraphUpdate:
    """Capture and replay an update that does not synchronize with the host. Results equal those of the update.

    Everything that changes between updates must be in persistent tensors: parameters, statistics, the learning rate,
    and the state of `generator`, which is registered with each graph.
    """

    def __init__(self, update: Callable[[Batch], dict[str, Tensor]], generator: torch.Generator) -> None:
        self._update = update
        self._generator = generator
        self._stream = torch.cuda.Stream(generator.device)
        self._memory = torch.cuda.graph_pool_handle()
        self._num_calls: Counter[Any] = Counter()
        self._graphs: dict[Any, _CapturedUpdate] = {}

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        """Run one update and return its metrics."""
        shape = shape_key(batch)
        self._num_calls[shape] += 1
        if shape not in self._graphs:
            if self._num_calls[shape] <= WARMUP_CALLS or len(self._graphs) == MAX_GRAPHS:
                return self._run_eagerly(batch)
            self._graphs[shape] = _CapturedUpdate(self._update, batch, self._generator, self._memory)
        return self._graphs[shape].replay(batch)

    def _run_eagerly(self, batch: Batch) -> dict[str, Tensor]:
        """Run on a side stream, as the later capture does."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            metrics = self._update(batch)
        torch.cuda.current_stream().wait_stream(self._stream)
        return metrics


class _CapturedUpdate:
    def __init__(
        self, update: Callable[[Batch], dict[str, Tensor]], batch: Batch, generator: torch.Generator, memory: Any
    ) -> None:
        self._input = batch.apply(lambda value: value.to(generator.device, copy=True))

        def run() -> tuple[tuple[str, ...], Tensor]:
            metrics = update(self._input)
            return tuple(metrics), torch.stack([value.float() for value in metrics.values()])

        self._graph, (self._names, self._metrics) = capture_graph(run, generator, pool=memory)

    def replay(self, batch: Batch) -> dict[str, Tensor]:
        for captured, new in zip(batch_tensors(self._input), batch_tensors(batch), strict=True):
            captured.copy_(new, non_blocking=True)
        self._graph.replay()
        return dict(zip(self._names, self._metrics.clone().unbind(), strict=True))


def shape_key(batch: Batch) -> Any:
    """Return a key that is equal for batches which share a graph."""
    values = [getattr(batch, each.name) for each in fields(batch)]
    numbers = tuple(value for value in values if isinstance(value, int))
    return numbers, tuple((tensor.shape, tensor.dtype) for tensor in batch_tensors(batch))


def batch_tensors(batch: Batch) -> Iterator[Tensor]:
    """Iterate over all tensors of a batch in a fixed order."""
    for each in fields(batch):
        value = getattr(batch, each.name)
        if isinstance(value, Tensor):
            yield value
    for leaves in (batch.observation, batch.extras):
        yield from (leaves[name] for name in sorted(leaves))
