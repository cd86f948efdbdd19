"""The application: a page, its files, and what the topics answer, behind one guard.

A topic is a module with `routes(catalogue)`. Everything under `/api/` is JSON; a topic raises `UserError` or
`UnreadableError` for what cannot be shown and `UnknownRunError` for a run that has gone, and the page says why.
"""

import contextlib
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from yamame.errors import UserError
from yamame.tools.viewer import curves, rollouts, runs
from yamame.tools.viewer.run_index import RunIndex, UnknownRunError
from yamame.tools.viewer.safe_files import UnreadableError
from yamame.tools.viewer.security import LOOPBACK, Access, AccessMiddleware

Topic = Callable[[RunIndex], Sequence[Route]]

TOPICS: Sequence[Topic] = (runs.routes, curves.routes, rollouts.routes)
STATIC = Path(__file__).parent / "static"


def build_app(catalogue: RunIndex, access: Access) -> Starlette:
    """The whole server, without the network."""
    topics = [route for topic in TOPICS for route in topic(catalogue)]
    return Starlette(
        routes=[Route("/", _page), *topics, Mount("/static", StaticFiles(directory=STATIC))],
        middleware=[Middleware(AccessMiddleware, access=access)],
        exception_handlers={UserError: _cannot, UnreadableError: _cannot, UnknownRunError: _gone},
    )


async def _page(request: Request) -> Response:
    return FileResponse(STATIC / "index.html")


async def _cannot(request: Request, problem: Exception) -> Response:
    return JSONResponse({"error": " ".join(str(problem).split())}, status_code=422)


async def _gone(request: Request, problem: Exception) -> Response:
    return JSONResponse({"error": str(problem)}, status_code=404)


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
