import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_agents import random_windows

from yamame.data.batch import Batch, pack
from yamame.data.sampler import prefetch
from yamame.errors import ConfigFieldError
from yamame.nets import attention, compute
from yamame.nets.attention import attend_padded, select_backend
from yamame.nets.compute import MIN_COMPILED_UPDATES, ComputeConfig, compiler_works, resolve_compute
from yamame.training import components

LONG, SHORT = MIN_COMPILED_UPDATES["cpu"], MIN_COMPILED_UPDATES["cpu"] - 1


@pytest.fixture
def working_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute, "compiler_works", lambda device: True)


def with_units(monkeypatch: pytest.MonkeyPatch, *, present: bool) -> None:
    monkeypatch.setattr(compute, "supports_fast_bfloat16", lambda device: present)


@pytest.mark.parametrize(("units", "fast"), [("amx_bf16", True), ("avx512_bf16", True), ("avx512_f", False)])
def test_units_of_a_cpu(monkeypatch: pytest.MonkeyPatch, units: str, fast: bool) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": False, units: True})
    assert compute.supports_fast_bfloat16(torch.device("cpu")) is fast


@pytest.mark.usefixtures("working_compiler")
@pytest.mark.parametrize(
    ("units", "width", "updates", "dtype", "compiled"),
    [
        (False, 256, LONG, torch.float32, False),
        (True, 256, LONG, torch.bfloat16, True),
        (True, 256, SHORT, torch.bfloat16, False),
        (True, 64, LONG, torch.float32, False),
    ],
    ids=["no units", "units, long run", "units, short run", "narrow network"],
)
def test_auto_follows_machine_width_and_length(
    monkeypatch: pytest.MonkeyPatch, units: bool, width: int, updates: int, dtype: torch.dtype, compiled: bool
) -> None:
    with_units(monkeypatch, present=units)
    chosen = resolve_compute(ComputeConfig(device="cpu"), width=width, updates=updates)
    assert (chosen.device.type, chosen.dtype, chosen.compile, chosen.cuda_graph) == ("cpu", dtype, compiled, False)


@pytest.mark.usefixtures("working_compiler")
def test_settings_are_resolved_as_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with_units(monkeypatch, present=True)
    plain = resolve_compute(
        ComputeConfig(device="cpu", dtype="float32", compile="off", chunk_tokens=7), width=256, updates=LONG
    )
    assert (plain.dtype, plain.compile, plain.chunk_tokens) == (torch.float32, False, 7)
    with_units(monkeypatch, present=False)
    forced = resolve_compute(ComputeConfig(device="cpu", dtype="bfloat16", compile="on"), width=16, updates=1)
    assert (forced.dtype, forced.compile) == (torch.bfloat16, True)


def test_without_a_compiler_a_warning_is_printed_and_nothing_compiled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(function: object) -> object:
        raise RuntimeError("No working C++ compiler found\na page of details")

    monkeypatch.setattr(torch, "compile", broken)
    assert not resolve_compute(ComputeConfig(device="cpu", compile="on"), width=64, updates=1).compile
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "No working C++ compiler found" in said and "not compiling" in said


@pytest.mark.slow
def test_a_compiler_that_works_is_found() -> None:
    assert compiler_works(torch.device("cpu"))


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "meta"])
def test_a_misspelt_device_is_refused(device: str) -> None:
    with pytest.raises(ConfigFieldError, match="must be auto, cpu, cuda"):
        ComputeConfig(device=device)


def test_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigFieldError, match="PyTorch sees"):
        resolve_compute(ComputeConfig(device="cuda:99"), width=64, updates=1)


@pytest.mark.parametrize("flag", ["auto", "cuda", "cuda:1"])
def test_a_gpu_has_its_index(monkeypatch: pytest.MonkeyPatch, flag: str) -> None:
    """`cuda` differs from the `cuda:0` of its tensors, so that batches on it would be copied again and again."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    resolved = resolve_compute(ComputeConfig(device=flag, compile="off"), width=64, updates=1)
    assert resolved.device == torch.device("cuda", 1 if flag.endswith("1") else 0)
    assert resolved.chunk_tokens == 32_768, "fewer, as on a CPU, are slower on a GPU"


@pytest.mark.usefixtures("working_compiler")
@pytest.mark.parametrize(("updates", "compiled"), [(29_999, False), (30_000, True)])
def test_only_long_runs_are_compiled_on_a_gpu(monkeypatch: pytest.MonkeyPatch, updates: int, compiled: bool) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert resolve_compute(ComputeConfig(device="cuda"), width=64, updates=updates).compile is compiled


class RecordedEvent:
    waited_for: list[int] = []  # noqa: RUF012
    recorded = 0

    def record(self) -> None:
        RecordedEvent.recorded += 1
        self.number = RecordedEvent.recorded

    def synchronize(self) -> None:
        RecordedEvent.waited_for.append(self.number)


def test_the_host_runs_ahead_of_a_gpu_by_few_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", RecordedEvent)
    run_ahead = compute.BoundedRunAhead(torch.device("cuda:0"), limit=3)
    for _ in range(5):
        run_ahead.wait()
    assert RecordedEvent.waited_for == [1, 2, 3]
    compute.BoundedRunAhead(torch.device("cpu")).wait()
    assert RecordedEvent.recorded == 5


def test_the_thread_that_pins_batches_has_the_learners_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread has a current device of its own; pinned memory belongs to it."""
    current = threading.local()
    pinned_on: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: setattr(current, "device", device))
    monkeypatch.setattr(Batch, "pin_memory", lambda batch: pinned_on.append(current.device) or batch)
    batch = pack(random_windows(0, (5, 9)))
    pin = partial(components._pin_memory, device=torch.device("cuda:1"))
    assert list(prefetch(map(pin, [batch]), depth=1)) == [batch]
    assert pinned_on == [torch.device("cuda:1")]
    compute.use_device(torch.device("cpu"))
    assert not hasattr(current, "device"), "this thread's device was changed"


@pytest.fixture
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))


@pytest.mark.usefixtures("one_gpu")
@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({}, "cuda:0, bfloat16, CUDA graphs, flash attention"),
        ({"dtype": "float32", "cuda_graph": False}, "cuda:0, float32, padded attention"),
        ({"deterministic": True}, "cuda:0, bfloat16, CUDA graphs, padded attention, deterministic"),
    ],
)
def test_the_line_of_a_gpu_names_the_attention(settings: dict[str, Any], line: str) -> None:
    assert str(resolve_compute(ComputeConfig(compile="off", **settings), width=64, updates=1)) == line


@pytest.fixture
def default_algorithms() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("default_algorithms")
def test_deterministic_algorithms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flash attention has none for its backward pass; cuBLAS has some with a workspace of fixed size."""
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    compute.use_deterministic_algorithms()
    assert torch.are_deterministic_algorithms_enabled() and os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    chosen: list[bool] = []
    monkeypatch.setattr(
        attention, "select_backend", lambda *_, deterministic: chosen.append(deterministic) or attend_padded
    )
    attention.attend(torch.zeros(64, 3, 2, 8), pack(random_windows(0, (5, 3))), 8)
    assert chosen == [True]
    assert select_backend(torch.device("cuda"), torch.bfloat16, 32, deterministic=True) is attend_padded


class ImaginedGraph(torch.cuda.CUDAGraph):
    """Made without a GPU."""

    def __new__(cls, register: Callable[[object], None]) -> "ImaginedGraph":
        return object.__new__(cls)

    def __init__(self, register: Callable[[object], None]) -> None:
        self.register_generator_state = register  # type: ignore[method-assign]


class ImaginedCuda(torch.Generator):
    """Stands for the graphs of `torch.cuda`, and for a generator. Only one capture at a time is allowed."""

    device = torch.device("cuda:1")

    def __new__(cls, monkeypatch: pytest.MonkeyPatch) -> "ImaginedCuda":
        return super().__new__(cls)

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stream, self.state = "acting", torch.tensor([1])
        self.capturing = threading.Lock()
        self.settings: list[tuple[Any, str]] = []
        monkeypatch.setattr(torch.cuda, "CUDAGraph", partial(ImaginedGraph, self.register))
        monkeypatch.setattr(torch.cuda, "graph", self.graph)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: self.stream)
        monkeypatch.setattr(torch.cuda, "set_stream", lambda stream: setattr(self, "stream", stream))
        monkeypatch.setattr(torch, "Generator", lambda device: SimpleNamespace(set_state=self.restored.append))
        self.restored: list[torch.Tensor] = []

    def register(self, generator: object) -> None:
        assert generator is self
        self.state = torch.tensor([2])

    def get_state(self) -> torch.Tensor:
        return self.state

    def graphsafe_set_state(self, state: torch.Generator) -> torch.Generator:
        (self.state,) = self.restored
        return self

    @contextmanager
    def graph(self, graph: object, *, pool: object, capture_error_mode: str) -> Iterator[None]:
        """As PyTorch's: after a failure the stream stays that of the capture."""
        assert self.capturing.acquire(blocking=False), "two captures at a time"
        self.settings.append((pool, capture_error_mode))
        self.stream = "capture"
        try:
            yield
            self.stream = "acting"
        finally:
            self.capturing.release()


def test_captures_of_two_threads_exclude_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The acting thread may capture its step while the learner captures an update."""
    cuda = ImaginedCuda(monkeypatch)
    with ThreadPoolExecutor(4) as threads:
        captures = [threads.submit(compute.capture_graph, partial(time.sleep, 0.002), cuda) for _ in range(12)]
    assert len([capture.result() for capture in captures]) == 12
    assert cuda.settings == [(None, "thread_local")] * 12


def test_after_a_failed_capture_stream_and_generator_are_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = ImaginedCuda(monkeypatch)

    def fail() -> None:
        assert (cuda.stream, int(cuda.state)) == ("capture", 2)
        raise RuntimeError("operation not permitted when stream is capturing")

    with pytest.raises(RuntimeError, match="not permitted"):
        compute.capture_graph(fail, cuda)
    assert (cuda.stream, int(cuda.state)) == ("acting", 1)
    assert compute.capture_graph(lambda: "captured", cuda)[1] == "captured"
