"""Limits of the service."""

from dataclasses import dataclass

from yamame.errors import check_range


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a service."""

    max_sessions: int = 64
    """Sessions at a time. A batch takes as long as one of this size."""
    session_seconds: float = 600.0
    """A session that is unused for this time is closed."""
    max_body_bytes: int = 4 * 2**20
    """Largest body of a request, and largest message of a WebSocket."""
    request_seconds: float = 10.0
    """Longest time that a request waits for its batch; also the longest time of draining."""

    def __post_init__(self) -> None:
        check_range(self, "max_sessions", "max_body_bytes", "request_seconds", ge=1)
        check_range(self, "session_seconds", gt=0)
