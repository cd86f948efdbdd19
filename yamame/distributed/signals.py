"""Stop a run by SIGINT or SIGTERM: the first signal requests a stop, the second one exits at once."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from yamame.distributed_context import DistributedContext


class StopSignal:
    """Context manager that records a first SIGINT or SIGTERM.

    Only the main thread can handle signals; in other threads none is recorded.
    """

    def __init__(self) -> None:
        self.requested = ""
        """Name of the signal that was received; "": none."""
        self._received = False
        self._interruptible = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "StopSignal":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        for number, previous in self._previous.items():
            signal.signal(number, previous)

    def is_requested(self) -> bool:
        """Return whether a signal has arrived. Replaces handlers that an environment has installed meanwhile."""
        if self._previous and threading.current_thread() is threading.main_thread():
            for number in self._previous:
                if signal.getsignal(number) != self._handle:
                    signal.signal(number, self._handle)
        return bool(self.requested)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Leave the body at once when the first signal arrives. For work that can be repeated from its start."""
        self._interruptible = True
        try:
            yield
        except _InterruptedError:
            pass
        finally:
            self._interruptible = False

    def sync(self, distributed: DistributedContext) -> bool:
        """Return whether any rank has received a signal; set `requested` on all ranks. All must call this together."""
        number = distributed.all_reduce_max(signal.Signals[self.requested] if self.requested else 0)
        if number:
            self.requested = signal.Signals(number).name
        return bool(number)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._received:
            os._exit(128 + number)
        self._received = True
        self.requested = signal.Signals(number).name
        if self._interruptible:
            raise _InterruptedError


class _InterruptedError(BaseException):
    """Not an `Exception`, so that no handler of failures catches it."""
