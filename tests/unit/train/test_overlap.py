"""Two threads at once: who has which cores, who hears of whose failure."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from yamame.collect.background import BackgroundThread, ShouldStop


@pytest.fixture
def beside() -> Iterator[BackgroundThread]:
    thread = BackgroundThread()
    yield thread
    thread.close()


@pytest.fixture(autouse=True)
def four_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def never() -> bool:
    return False


def threads_in_use(stopped: ShouldStop) -> int:
    """Those that a computation takes: the number is settled by a thread's first one."""
    torch.ones(1 << 20).mul_(2.0)
    return torch.get_num_threads()


def until_stopped(stopped: ShouldStop) -> str:
    while not stopped():
        time.sleep(0.001)
    return "stopped"


def test_the_cores_are_divided_and_given_back(beside: BackgroundThread) -> None:
    for _ in range(2):
        with beside.run(threads_in_use, never) as (result, _stopped):
            assert threads_in_use(never) == 3
        assert result.result() == 1
        assert threads_in_use(never) == 4
    with pytest.raises(KeyError), beside.run(threads_in_use, never):
        raise KeyError
    assert threads_in_use(never) == 4


def test_all_work_has_the_same_thread_which_is_not_the_main_one(beside: BackgroundThread) -> None:
    names = set()
    for _ in range(3):
        with beside.run(lambda stopped: threading.current_thread().name, never) as (result, _):
            pass
        names.add(result.result())
    assert len(names) == 1
    assert threading.main_thread().name not in names


def test_failed_work_stops_the_main_thread_and_raises_there(beside: BackgroundThread) -> None:
    def fail(stopped: ShouldStop) -> None:
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"), beside.run(fail, never) as (_, stopped):
        assert until_stopped(stopped) == "stopped"


def test_a_failure_of_the_main_thread_stops_the_work(beside: BackgroundThread) -> None:
    with pytest.raises(LookupError, match="here"), beside.run(until_stopped, never) as (result, _):
        raise LookupError("here")
    assert result.result() == "stopped"


def test_both_stop_on_a_stop_signal(beside: BackgroundThread) -> None:
    requested = threading.Event()
    with beside.run(until_stopped, requested.is_set) as (result, stopped):
        assert not stopped()
        requested.set()
        assert until_stopped(stopped) == "stopped"
    assert result.result() == "stopped"


class RecordedStream:
    """Stands for a stream of a GPU."""

    def __init__(self, device: torch.device, priority: int) -> None:
        self.device, self.priority = device, priority
        self.waited_for: list[object] = []

    def wait_stream(self, stream: object) -> None:
        self.waited_for.append(stream)


def test_on_a_gpu_the_thread_has_a_stream_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream of high priority, which first waits for what the main thread has queued."""
    used: list[tuple[object, str]] = []

    @contextmanager
    def stream(chosen: object) -> Iterator[None]:
        used.append((chosen, threading.current_thread().name))
        yield

    monkeypatch.setattr(torch.cuda, "Stream", RecordedStream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"main stream of {device}")
    monkeypatch.setattr(torch.cuda, "stream", stream)
    thread = BackgroundThread(device=torch.device("cuda:1"))
    with thread.run(lambda stopped: len(used), never) as (result, _):
        pass
    thread.close()
    ((chosen, name),) = used
    assert isinstance(chosen, RecordedStream) and chosen.priority < 0
    assert chosen.waited_for == ["main stream of cuda:1"] and name.startswith("background")
    assert result.result() == 1, "the work began before its stream was chosen"
