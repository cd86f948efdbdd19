import pytest
import torch

from yamame.errors import ConfigFieldError
from yamame.nets import compute
from yamame.nets.compute import MIN_COMPILED_UPDATES, ComputeConfig, compiler_works, resolve_compute

LONG, SHORT = MIN_COMPILED_UPDATES, MIN_COMPILED_UPDATES - 1


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
