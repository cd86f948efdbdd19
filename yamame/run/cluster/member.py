"""`Member`: one place in a fleet, and the actor that fills it now."""

import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from yamame.run.cluster.orders import CollectRequest

Phase = Literal["away", "placing", "preparing", "ready"]
"""No actor; one that waits for room in the cluster; one that builds its environments; one that works."""

_LONGEST_PAUSE = 30.0


@dataclass(frozen=True)
class Call:
    """What was asked of an actor, and the reference to its answer to come."""

    answer: Any
    order: CollectRequest | None = None


class CollectorHandle:
    """A collector, or the place of one. An actor answers its calls one after the other, in their order."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.phase: Phase = "away"
        self.actor: Any = None
        self.location = ""
        """Host and process, once it has said so."""
        self.calls: deque[Call] = deque()
        self.waiting_since = time.monotonic()
        """Since when the first of the calls could have been answered."""
        self._losses_in_a_row = 0
        self._away_until = 0.0

    @property
    def name(self) -> str:
        """What to call it before users."""
        return f"collector {self.index}" + (f" ({self.location})" if self.location else "")

    @property
    def pending_requests(self) -> list[CollectRequest]:
        """Those that it has not answered."""
        return [call.order for call in self.calls if call.order]

    @property
    def should_start(self) -> bool:
        """Whether it is time for an actor where there is none."""
        return self.phase == "away" and time.monotonic() >= self._away_until

    @property
    def waited(self) -> float:
        """Seconds that the first of the calls has waited for its answer."""
        return time.monotonic() - self.waiting_since if self.calls else 0.0

    def attach(self, actor: Any) -> None:
        """Fill the place; the actor's place in the cluster shows when it says hello."""
        self.actor, self.phase, self.location = actor, "placing", ""
        self.push_call(Call(actor.hello.remote()))

    def push_call(self, call: Call) -> None:
        """Note what was asked of the actor."""
        if not self.calls:
            self.waiting_since = time.monotonic()
        self.calls.append(call)

    def pop_call(self) -> Call:
        """The first of the calls, which has its answer."""
        self.waiting_since = time.monotonic()
        return self.calls.popleft()

    def mark_healthy(self) -> None:
        """It has done what it is for."""
        self._losses_in_a_row = 0

    def fail(self, ray: Any) -> None:
        """End the actor, if it has not ended; whatever it had still to answer is forgotten. A next one comes later, the
        more of them were lost since one has worked."""
        self.kill(ray)
        pause = 2.0**self._losses_in_a_row - 1.0
        self._losses_in_a_row = min(self._losses_in_a_row + 1, 10)
        self._away_until = time.monotonic() + min(pause, _LONGEST_PAUSE)

    def kill(self, ray: Any) -> None:
        """Leave the place empty."""
        if self.actor is not None:
            with suppress(Exception):  # it may be gone, or the cluster
                ray.kill(self.actor)
        self.actor, self.phase = None, "away"
        self.calls.clear()
