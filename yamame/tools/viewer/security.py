"""Who may ask, and what a page of ours may do: nothing but show what this server gives it."""

import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from http.cookies import SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("127.0.0.1", "localhost", "::1")
TOKEN = "token"

HEADERS = {
    "content-security-policy": (
        "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""Of every answer. What a run's files say is shown as text by the page's own scripts; should some of it ever be taken
for a script, the first line keeps the browser from running it."""


@dataclass(frozen=True, kw_only=True)
class Access:
    """Who may ask: on this machine everyone who calls it by its own name; from elsewhere, who knows the token."""

    token: str = ""
    """Empty: none is asked for, and the server must be asked for as one of `LOOPBACK`."""
    cookie: str = "yamame-view"
    """Where a browser keeps the token after its first visit."""


class AccessMiddleware:
    """ASGI middleware that turns away whom `Access` does not let in, and puts `HEADERS` on every answer.

    Without a token the Host header must be one of this machine's own names, so that no web site can reach the server
    through a name that it lets point here (DNS rebinding). What another site's page sends is turned away.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or let the application answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await (self._turned_away(scope) or self._app)(scope, receive, send_guarded)

    def _turned_away(self, scope: Scope) -> ASGIApp | None:
        headers = Headers(scope=scope)
        if headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
            return _refusal("another site's page may not ask here")
        if not self._access.token:
            if _host_of(headers.get("host", "")) in LOOPBACK:
                return None
            return _refusal("ask for this page as 127.0.0.1 or localhost")
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if self._is_token(value for name, value in query if name == TOKEN):
            rest = urlencode([(name, value) for name, value in query if name != TOKEN])
            answer = RedirectResponse("/" + scope["path"].lstrip("/\\") + (f"?{rest}" if rest else ""), status_code=303)
            answer.set_cookie(self._access.cookie, self._access.token, httponly=True, samesite="lax")
            return answer
        if self._is_token(_cookies(headers, self._access.cookie)):
            return None
        return _refusal("this page needs its token: open the address that `yamame view` has printed")

    def _is_token(self, given: Iterable[str]) -> bool:
        expected = self._access.token.encode()
        return any(hmac.compare_digest(value.encode(errors="replace"), expected) for value in given)


def _cookies(headers: Headers, name: str) -> list[str]:
    found = []
    for part in headers.getlist("cookie"):
        cookie: SimpleCookie = SimpleCookie()
        cookie.load(part)
        found += [morsel.value for key, morsel in cookie.items() if key == name]
    return found


def _host_of(header: str) -> str:
    """The name in a Host header, without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0].lower()


def _refusal(reason: str) -> ASGIApp:
    return PlainTextResponse(f"403: {reason}\n", status_code=403)
