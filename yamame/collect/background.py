"""Work in a second thread while the main one goes on, the cores divided between the two."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from typing import TypeVar

import torch

ShouldStop = Callable[[], bool]
"""Whether to leave off: asked after every vector step or update."""

_Result = TypeVar("_Result")


class BackgroundThread:
    """A thread, the same for all its work, that computes on one core; while it works, the main thread has the others.

    PyTorch gives each thread that computes helpers of its own, one for every core: two such crews on the same cores
    are slower than one by far. A thread that only waits for others `computes` nothing, and the main thread keeps all.
    """

    def __init__(self, *, computes: bool = True) -> None:
        self._computes = computes
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="beside", initializer=_take_one_core)

    @contextmanager
    def run(
        self, work: Callable[[ShouldStop], _Result], stopped: ShouldStop
    ) -> Iterator[tuple[Future[_Result], ShouldStop]]:
        """Inside, `work` goes on in the thread; leaving waits for its end, and raises what it raised.

        Gives its result to come, and when the main thread is to leave off: when `stopped`, or when the work has
        failed. The work is to leave off when `stopped`, or when the main thread has failed.
        """
        main_failed = threading.Event()
        with _cores_left() if self._computes else nullcontext():
            future = self._thread.submit(work, lambda: stopped() or main_failed.is_set())
            try:
                yield future, lambda: stopped() or (future.done() and future.exception() is not None)
            except BaseException:
                main_failed.set()
                wait([future])
                raise
            future.result()

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()


def _take_one_core() -> None:
    torch.get_num_threads()  # or its first computation would take over the main thread's number
    torch.set_num_threads(1)


@contextmanager
def _cores_left() -> Iterator[None]:
    num_threads = torch.get_num_threads()
    torch.set_num_threads(max(1, num_threads - 1))
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)
