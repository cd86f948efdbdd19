"""Collectors that outlive their learner must know that it lives, also where it gives no orders for minutes."""

import threading
from contextlib import suppress
from typing import Any

_TIMES = 4
"""So often in `keep_seconds` each is greeted."""


class Heartbeat:
    """A thread that says hello to actors."""

    def __init__(self, keep_seconds: float) -> None:
        self._actors: list[Any] = []
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._greet, args=(keep_seconds / _TIMES,), daemon=True)
        self._thread.start()

    def add(self, actor: Any) -> None:
        """Greet one more."""
        self._actors = [*self._actors, actor]

    def remove(self, actor: Any) -> None:
        """Greet one less."""
        self._actors = [other for other in self._actors if other is not actor]

    def close(self) -> None:
        """Greet nobody any more."""
        self._closed.set()
        self._thread.join()

    def _greet(self, seconds: float) -> None:
        while not self._closed.wait(seconds):
            for actor in self._actors:
                with suppress(Exception):  # it may be gone; the fleet finds out
                    actor.hello.remote()
