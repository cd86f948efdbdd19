"""uvicorn with the limits of this package."""

import contextlib
import signal
import socket
from typing import Any, Literal

import uvicorn
from starlette.types import ASGIApp

MAX_CONNECTIONS = 256
"""Requests over more connections get the status 503."""


def run_until_signal(
    app: ASGIApp,
    listener: socket.socket,
    *,
    drain_seconds: int,
    ws: Literal["none", "websockets-sansio"] = "none",
    **limits: Any,
) -> None:
    """Serve until SIGINT or SIGTERM, then finish the requests that have arrived, and close the socket.

    Args:
        app: ASGI application.
        listener: Listening socket.
        drain_seconds: Longest time for the requests that have arrived.
        ws: Implementation of WebSockets.
        limits: Further settings of `uvicorn.Config`.
    """
    config = uvicorn.Config(
        app,
        http="h11",  # limits the size of headers
        ws=ws,
        log_level="error",
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=drain_seconds,
        **{"limit_concurrency": MAX_CONNECTIONS, **limits},
    )
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # uvicorn raises the signal again at its end
    try:
        with listener, contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listener])
    finally:
        signal.signal(signal.SIGTERM, before)
