"""Connections of slow clients are closed; those of others stay open."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from yamame.tools.web import http_timeouts
from yamame.tools.web.http_timeouts import TimeoutProtocol

GET = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"


class App:
    """Answers `/` at once, `/late` after a second and `/large` with more than a socket takes."""

    def __init__(self) -> None:
        self.left: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        try:
            if path == "/late":
                await asyncio.sleep(1.0)
            await send(
                {
                    "type": "http.response.start",
                    "status": 200,
                    "headers": [(b"content-length", b"2")][path == "/large" :],
                }
            )
            for _ in range(200 if path == "/large" else 0):
                await send({"type": "http.response.body", "body": b"x" * 2**20, "more_body": True})
            await send({"type": "http.response.body", "body": b"ok"})
        finally:
            self.left.append(path)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[App, int]]:
    monkeypatch.setattr(http_timeouts, "REQUEST_SECONDS", 0.6)
    monkeypatch.setattr(http_timeouts, "RESPONSE_SECONDS", 1.8)
    app, listener = App(), socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(app, http=TimeoutProtocol, lifespan="off", log_level="error", timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield app, listener.getsockname()[1]
    server.should_exit = True
    thread.join()
    listener.close()


def seconds_until_closed(port: int, first: bytes, trickle: bytes) -> float:
    """Send `first`, then a byte of `trickle` every 50 ms; return when the server closed the connection."""
    start = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        try:
            connection.sendall(first)
            for byte in trickle:
                connection.sendall(bytes([byte]))
                time.sleep(0.05)
            while connection.recv(4096):
                pass
        except (BrokenPipeError, ConnectionResetError):
            pass
    return time.monotonic() - start


@pytest.mark.parametrize(
    ("first", "trickle"),
    [
        (b"", b""),
        (b"", GET + b"X-Padding: " + b"x" * 200),
        (GET + b"\r\n", GET + b"X-Padding: " + b"x" * 200),
        (GET.replace(b"GET", b"POST") + b"Content-Length: 100000\r\n\r\n", b"x" * 200),
    ],
    ids=["nothing", "slow header", "slow second request", "slow body"],
)
def test_slow_requests_time_out(served: tuple[App, int], first: bytes, trickle: bytes) -> None:
    assert 0.5 < seconds_until_closed(served[1], first, trickle) < 4.0


def test_a_response_that_nobody_reads_times_out(served: tuple[App, int]) -> None:
    app, port = served
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(GET.replace(b"/ ", b"/large ") + b"\r\n")
        end = time.monotonic() + 8.0
        while "/large" not in app.left and time.monotonic() < end:
            time.sleep(0.05)
        assert app.left == ["/large"]


def test_others_are_served(served: tuple[App, int]) -> None:
    """A response may take longer than a request, and one connection may carry requests for longer than either."""
    with socket.create_connection(("127.0.0.1", served[1]), timeout=10) as connection:
        for path in (b"/late", b"/", b"/late", b"/"):
            connection.sendall(GET.replace(b"/ ", path + b" ") + b"\r\n")
            answer = b""
            while not answer.endswith(b"ok"):
                received = connection.recv(4096)
                assert received
                answer += received
            time.sleep(0.3)
