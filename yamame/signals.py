"""A first SIGINT or SIGTERM asks a run to stop; a second one ends the process at once."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

from yamame.distributed_context import DistributedContext


class StopSignal:
    """Context manager: while inside, `requested` names the signal that asked to stop, or is empty.

    Outside the main thread, where Python allows no handlers, it never asks.
    """

    def __init__(self) -> None:
        self.requested = ""
        self._received = False
        self._cuts_short = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "StopSignal":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, previous in self._previous.items():
            signal.signal(number, previous)

    def is_requested(self) -> bool:
        """Return whether a signal has arrived."""
        return bool(self.requested)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Inside, a first signal leaves the block at once: for work that can be done again from its beginning."""
        self._cuts_short = True
        try:
            yield
        except _CutShortError:
            pass
        finally:
            self._cuts_short = False

    def sync(self, distributed: DistributedContext) -> bool:
        """Whether any rank was asked to stop, of which `requested` tells then on all; they ask this together."""
        number = distributed.all_reduce_max(signal.Signals[self.requested] if self.requested else 0)
        if number:
            self.requested = signal.Signals(number).name
        return bool(number)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._received:
            os._exit(128 + number)
        self._received = True
        self.requested = signal.Signals(number).name
        if self._cuts_short:
            raise _CutShortError


class _CutShortError(BaseException):
    """Not an `Exception`, so that nothing on its way takes it for a failure."""
