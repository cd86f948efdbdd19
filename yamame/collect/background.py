"""A background thread that shares the cores with the main thread."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from typing import TypeVar

import torch

ShouldStop = Callable[[], bool]
"""Whether to stop, checked after every vector step or update."""

_Result = TypeVar("_Result")


def never() -> bool:
    """Return False: a `ShouldStop` for work that is not interrupted."""
    return False


class BackgroundThread:
    """A reused thread with one PyTorch thread; while it runs, the main thread has the other cores.

    PyTorch starts a thread pool of one thread per core for each thread that computes, and two pools on the same cores
    are much slower than one.

    On a GPU the thread has a stream of high priority: on the main thread's stream, each copy to the host would wait for
    all updates queued before it.

    Args:
        computes: Set to False if the thread only waits, so that the main thread keeps all cores.
        device: Device on which the thread computes.
    """

    def __init__(self, *, computes: bool = True, device: torch.device | None = None) -> None:
        self._computes = computes
        self._stream = torch.cuda.Stream(device, priority=-1) if device and device.type == "cuda" else None
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="background", initializer=_use_one_core)

    @contextmanager
    def run(
        self, fn: Callable[[ShouldStop], _Result], should_stop: ShouldStop
    ) -> Iterator[tuple[Future[_Result], ShouldStop]]:
        """Run `fn` in the thread while the context is open; closing it waits for `fn` and raises its exception.

        Yields the future result, and when the main thread should stop: if `should_stop`, or if `fn` has failed. `fn`
        gets when it should stop: if `should_stop`, or if the main thread has failed.
        """
        main_failed = threading.Event()
        if self._stream is not None:
            # after what the main thread has queued: weights that were copied for acting
            self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        with _leave_one_core() if self._computes else nullcontext():
            future = self._executor.submit(self._run_on_stream, fn, lambda: should_stop() or main_failed.is_set())
            try:
                yield future, lambda: should_stop() or (future.done() and future.exception() is not None)
            except BaseException:
                main_failed.set()
                wait([future])
                raise
            future.result()

    def _run_on_stream(self, fn: Callable[[ShouldStop], _Result], should_stop: ShouldStop) -> _Result:
        with torch.cuda.stream(self._stream) if self._stream is not None else nullcontext():
            return fn(should_stop)

    def close(self) -> None:
        """End the thread."""
        self._executor.shutdown()


def _use_one_core() -> None:
    torch.get_num_threads()  # otherwise the first computation would copy the number of the main thread
    torch.set_num_threads(1)


@contextmanager
def _leave_one_core() -> Iterator[None]:
    num_threads = torch.get_num_threads()
    torch.set_num_threads(max(1, num_threads - 1))
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)
