"""Serve the viewer until Ctrl-C."""

import contextlib
import secrets
import socket
import threading
import webbrowser
from collections.abc import Sequence
from pathlib import Path

import uvicorn

from yamame.records.errors import UserError
from yamame.viewer.app import build_app
from yamame.viewer.catalogue import RunIndex
from yamame.viewer.security import LOOPBACK, Access


def serve(roots: Sequence[Path], *, host: str, port: int, open_browser: bool) -> None:
    """Listen, print the address on stdout, and answer until SIGINT. `UserError` where nothing can listen there."""
    listener = _listen(host, port)
    port = listener.getsockname()[1]
    access = Access(token="" if host in LOOPBACK else secrets.token_urlsafe(24), cookie=f"yamame-view-{port}")
    app = build_app(RunIndex(roots), access)
    config = uvicorn.Config(
        app, log_level="error", access_log=False, lifespan="off", server_header=False, timeout_graceful_shutdown=1
    )
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
    url = address + (f"?token={access.token}" if access.token else "")
    print(f"yamame view: {url}  (Ctrl-C ends it)", flush=True)
    if open_browser:
        threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
    with listener, contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listener])


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(128)
        except OSError:
            listener.close()
            raise
    except OSError as problem:
        raise UserError(
            f"cannot listen at {host} port {port} ({problem.strerror}): give another --port (0: any that is free)"
        ) from problem
    return listener
