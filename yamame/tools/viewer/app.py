"""The web server of `yamame view`: a page, its static files, the JSON API, and access control.

A view is a module with `routes(index)`, and the cache of summaries besides if it shows any. Everything under `/api/` is
JSON, but for exported tables and files of a run. A view raises `UserError` or `UnreadableError` for what cannot be
shown and `UnknownRunError` for a missing run; the page shows the message.
"""

import multiprocessing
import threading
import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from yamame.errors import UserError
from yamame.tools.viewer import configs, curves, notes, rollouts, run_page, runs
from yamame.tools.viewer.run_index import RunIndex, UnknownRunError, UnreadableError
from yamame.tools.viewer.runs import SummaryCache
from yamame.tools.web.access import (
    RESPONSE_HEADERS,
    has_own_origin,
    is_cross_site,
    is_token,
    names_loopback,
    new_token,
)
from yamame.tools.web.address import LOOPBACK, listen, url_of
from yamame.tools.web.uvicorn_server import run_until_signal

STATIC = Path(__file__).parent / "static"
TOKEN = "token"
WRITE_HEADER = "x-yamame-view"
"""Header of requests that write."""

HEADERS = RESPONSE_HEADERS | {
    "content-security-policy": (
        "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
}
"""Added to every response. Pages show the content of run files as text only; the first one is a second barrier."""


@dataclass(frozen=True, kw_only=True)
class Access:
    """Access control: by host name on this machine, by token from elsewhere."""

    token: str = ""
    """Empty: no token is required, and the Host header must be one of `LOOPBACK`."""
    cookie: str = "yamame-view"
    """Cookie with the token after the first request."""
    read_only: bool = False
    """Refuse every request that writes."""


class ViewerAccessMiddleware:
    """ASGI middleware that refuses requests without access and adds `HEADERS` to every response.

    Without a token the Host header must be a loopback name, which prevents DNS rebinding. Cross-site requests are
    refused. A request that writes must besides come from this server's own page: its Origin header must name the host
    that it is sent to, and it must have `WRITE_HEADER`, which other sites cannot send without permission.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond with a refusal, or forward to the application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await (self._refuse(scope) or self._app)(scope, receive, send_with_headers)

    def _refuse(self, scope: Scope) -> ASGIApp | None:
        request = HTTPConnection(scope)
        headers, query = request.headers, request.query_params
        if is_cross_site(headers):
            return _refusal("cross-site requests are not allowed")
        if scope["method"] not in ("GET", "HEAD"):
            if self._access.read_only:
                return _refusal("the viewer was started with --read-only")
            if WRITE_HEADER not in headers or not has_own_origin(headers):
                return _refusal("only the page of this server may write")
        if not self._access.token:
            if names_loopback(headers):
                return None
            return _refusal("open this page as 127.0.0.1 or localhost")
        if any(is_token(given, self._access.token) for given in query.getlist(TOKEN)):
            rest = urlencode([(name, value) for name, value in query.multi_items() if name != TOKEN])
            response = RedirectResponse(
                "/" + scope["path"].lstrip("/\\") + (f"?{rest}" if rest else ""), status_code=303
            )
            response.set_cookie(self._access.cookie, self._access.token, httponly=True, samesite="lax")
            return response
        if is_token(request.cookies.get(self._access.cookie, ""), self._access.token):
            return None
        return _refusal("a token is required: open the address that `yamame view` printed")


def _refusal(reason: str) -> ASGIApp:
    return PlainTextResponse(f"403: {reason}\n", status_code=403)


def build_viewer_app(index: RunIndex, access: Access, *, env: str | None = None) -> Starlette:
    """Return the ASGI application. `env` is that of `rollouts.routes`."""
    summaries = SummaryCache(index)
    api = [
        *runs.routes(index, summaries),
        *configs.routes(index),
        *notes.routes(index),
        *curves.routes(index, summaries),
        *rollouts.routes(index, env),
        *run_page.routes(index, summaries, read_only=access.read_only),
    ]
    return Starlette(
        routes=[Route("/", _page), *api, Mount("/static", StaticFiles(directory=STATIC))],
        middleware=[Middleware(ViewerAccessMiddleware, access=access)],
        exception_handlers=dict.fromkeys((UserError, UnreadableError, UnknownRunError), _error),
    )


async def _page(request: Request) -> Response:
    return FileResponse(STATIC / "index.html")


async def _error(request: Request, problem: Exception) -> Response:
    status_code = 404 if isinstance(problem, UnknownRunError) else 422
    return JSONResponse({"error": " ".join(str(problem).split())}, status_code=status_code)


def serve_viewer(
    roots: Sequence[Path],
    *,
    host: str,
    port: int,
    open_browser: bool,
    require_token: bool = False,
    read_only: bool = False,
    env: str | None = None,
) -> None:
    """Print the address on stdout and serve until SIGINT. Raises `UserError` if the address cannot be bound.

    A token is required if `require_token`, and always if `host` is not a loopback address.
    """
    listener = listen(host, port)
    port = listener.getsockname()[1]
    token = new_token() if require_token or host not in LOOPBACK else ""
    access = Access(token=token, cookie=f"yamame-view-{port}", read_only=read_only)
    app = build_viewer_app(RunIndex(roots), access, env=env)
    url = url_of(host, port) + (f"?token={access.token}" if access.token else "")
    print(f"yamame view: {url}  (Ctrl-C to stop)", flush=True)
    if open_browser:
        threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
    try:
        run_until_signal(app, listener, drain_seconds=1)
    finally:
        for process in multiprocessing.active_children():  # in which environments play
            process.kill()
