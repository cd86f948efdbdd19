"""HTTP connections that slow clients cannot keep open."""

import asyncio
from typing import Any

from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

REQUEST_SECONDS = 20.0
"""Maximum time until a request has arrived, from the connection or from the response before."""
RESPONSE_SECONDS = 300.0
"""Maximum time until a response has been computed and received."""


class TimeoutProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 with time limits for requests and responses: uvicorn itself limits idle connections only."""

    _timer: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._start_timer()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    @override
    def handle_websocket_upgrade(self, event: Any) -> None:
        if self._timer is not None:  # the connection is the WebSocket's from here on
            self._timer.cancel()
        super().handle_websocket_upgrade(event)

    def _start_timer(self) -> None:
        seconds = RESPONSE_SECONDS if self._is_responding() else REQUEST_SECONDS
        self._timer = self.loop.call_later(seconds, self._expire, self.cycle, self._is_responding())

    def _expire(self, cycle: RequestResponseCycle | None, was_responding: bool) -> None:
        """Close the connection if neither a request nor the end of a response has come since the timer was started."""
        if self.cycle is cycle and self._is_responding() == was_responding:
            self.transport.abort()
        else:
            self._start_timer()

    def _is_responding(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete
