"""Rules of access, from the headers of a request: host name, origin, token."""

import hmac
import secrets
from collections.abc import Mapping
from urllib.parse import urlsplit

from yamame.tools.web.address import LOOPBACK

RESPONSE_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""Added to every response."""


def names_loopback(headers: Mapping[str, str]) -> bool:
    """Whether the Host header is a loopback name; after DNS rebinding it is that of another site."""
    host = headers.get("host", "")
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0].lower()
    return name in LOOPBACK


def is_cross_site(headers: Mapping[str, str]) -> bool:
    """Whether a browser sent the request for a page of another site; following a link to here is none."""
    return headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate"


def has_own_origin(headers: Mapping[str, str]) -> bool:
    """Whether the Origin header names the host that the request is sent to. False without the header."""
    try:
        return urlsplit(headers.get("origin", "")).netloc == headers.get("host")
    except ValueError:  # no URL
        return False


def new_token() -> str:
    """Return a random token."""
    return secrets.token_urlsafe(24)


def is_token(given: str, token: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(given.encode(errors="replace"), token.encode(errors="replace"))
