"""Medians come from repeats; memory and the machine's limit are numbers of this machine."""

import pytest
import torch

from yamame.tools.bench import measure
from yamame.tools.bench.measure import (
    BenchResult,
    PeakMemory,
    describe_machine,
    format_machine,
    matmul_peak,
    seconds_per_call,
)

CPU = torch.device("cpu")


class Clock:
    """Work that takes as long as it says, on a clock that nothing else moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *seconds: float) -> None:
        self.now, self.calls, self.seconds = 0.0, 0, seconds
        monkeypatch.setattr(measure.time, "perf_counter", lambda: self.now)

    def work(self) -> None:
        self.now += self.seconds[min(self.calls, len(self.seconds) - 1)]
        self.calls += 1


def test_slow_work_is_called_once_a_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 3.0, 1.0, 2.0, 4.0)
    assert seconds_per_call(clock.work, repeats=3, device=CPU) == [1.0, 2.0, 4.0]


def test_quick_work_is_called_often_enough_for_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 0.0625)
    assert seconds_per_call(clock.work, repeats=2, device=CPU) == [0.0625, 0.0625]
    assert clock.calls == 1 + 2 * 4


def test_a_peak_is_of_the_time_inside_alone() -> None:
    if not measure._CLEAR_PEAK.exists():
        pytest.skip("only Linux resets the peak of memory")
    size = 200 << 20
    before = bytearray(size)
    before[:: 1 << 12] = bytes(len(before[:: 1 << 12]))
    held = PeakMemory(CPU)
    with held:
        pass
    del before
    outside, inside = PeakMemory(CPU), PeakMemory(CPU)
    with outside:
        pass
    with inside:
        taken = bytearray(size)
        taken[:: 1 << 12] = b"1" * len(taken[:: 1 << 12])
    assert inside.num_bytes - outside.num_bytes > 0.9 * size
    assert held.num_bytes - outside.num_bytes > 0.9 * size


def test_the_peak_is_of_the_fastest_shape_before_one_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {(4, 4, 4): 4.0, (2, 2, 2): 1.0, (1, 2, 3): 3.0, (9, 9, 9): 1e-9}
    monkeypatch.setattr(measure, "PEAK_SECONDS", 3.5)
    monkeypatch.setattr(measure, "_product_seconds", lambda device, dtype, *shape: seconds[shape])
    assert matmul_peak(CPU, torch.float32, list(seconds)) == 2 * 4**3 / 4.0


def test_a_result_gives_medians_and_the_spread() -> None:
    machine = describe_machine(CPU)
    result = BenchResult(
        bench="some",
        samples={"speed": [1.0, 9.0, 2.0], "fraction": [0.5, 0.25, 0.75]},
        scalars={"peak_memory_bytes": 123456},
        config={"a": 1},
        machine=machine,
    )
    said = result.to_json()
    assert (said["bench"], said["speed"], said["fraction"], said["repeats"]) == ("some", 2.0, 0.5, 3)
    assert said["spread"] == {"speed": [1.0, 9.0], "fraction": [0.25, 0.75]}
    assert said["peak_memory_bytes"] == 123456 and said["config"] == {"a": 1}
    lines = result.to_text().splitlines()
    assert lines[0].split() == ["speed", "2", "1", "to", "9"]
    assert lines[1].split() == ["fraction", "0.5", "0.25", "to", "0.75"]
    assert "123,456" in lines[2]
    assert lines[-1] == format_machine(machine) and torch.__version__ in lines[-1]
