"""Addresses of web servers: sockets and URLs."""

import socket

from yamame.errors import UserError, describe_error

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Hosts of this machine, which need no token."""


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises `UserError` if the address cannot be bound."""
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
    except UnicodeError as problem:  # such as an empty label in a name
        raise UserError(f"{host} is no host: {describe_error(problem)}") from problem
    except OSError as problem:
        raise UserError(
            f"cannot listen on {host} port {port} ({problem.strerror}): choose another --port (0: any free port)"
        ) from problem
    return listener


def url_of(host: str, port: int) -> str:
    """Return `http://HOST:PORT/`, with IPv6 addresses in brackets."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"
