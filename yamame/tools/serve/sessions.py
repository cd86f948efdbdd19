"""Sessions: each has a slot of the policy's memory, until it is closed or unused for too long."""

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from yamame.tools.serve.protocol import RequestError


@dataclass(kw_only=True)
class Session:
    """One client with a memory of its own."""

    id: str
    """Random, so that nobody else can continue the session."""
    slot: int
    """Row of the policy."""
    last_used: float
    time: int = 0
    """Steps of the present trial."""
    is_busy: bool = False
    """Whether a request is being answered."""


class Sessions:
    """The open sessions of a service.

    Args:
        max_sessions: Number of slots.
        idle_seconds: A session that is not used for this time is closed when its slot is needed, or when it is used.
        clock: Returns the time in seconds.
    """

    def __init__(self, *, max_sessions: int, idle_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.max_sessions = max_sessions
        self._idle_seconds, self._clock = idle_seconds, clock
        self._sessions: dict[str, Session] = {}
        self._free = list(reversed(range(max_sessions)))

    def __len__(self) -> int:
        self._close_expired()
        return len(self._sessions)

    def open(self) -> Session:
        """Return a new session. Raises `RequestError` (429) if all slots are in use."""
        self._close_expired()
        if not self._free:
            raise RequestError(429, f"all {self.max_sessions} sessions are in use: close one, or try again later")
        session = Session(id=secrets.token_urlsafe(16), slot=self._free.pop(), last_used=self._clock())
        self._sessions[session.id] = session
        return session

    def close(self, session: Session) -> None:
        """Free the slot of a session."""
        del self._sessions[session.id]
        self._free.append(session.slot)

    @contextmanager
    def use(self, session_id: str) -> Iterator[Session]:
        """Yield a session for one request, during which it does not expire.

        Raises:
            RequestError: 404 if there is no such session, 409 if it is answering another request.
        """
        self._close_expired()
        session = self._sessions.get(session_id)
        if session is None:
            raise RequestError(404, "no such session: it was closed or has expired; open another one")
        if session.is_busy:
            raise RequestError(409, "another request of this session is being answered: wait for it")
        session.is_busy = True
        try:
            yield session
        finally:
            session.is_busy = False
            session.last_used = self._clock()

    def _close_expired(self) -> None:
        oldest = self._clock() - self._idle_seconds
        for session in [each for each in self._sessions.values() if not each.is_busy and each.last_used < oldest]:
            self.close(session)
