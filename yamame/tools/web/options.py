"""What the commands that start a web server share."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from yamame.errors import UserError


def add_address_flags(parser: argparse.ArgumentParser, *, port: int, port_help: str) -> None:
    """Add `--host`, `--port` and `--token`; `port` is the default."""
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="bind address (default 127.0.0.1; with any other, a token is required)",
    )
    parser.add_argument("--port", type=int, default=port, metavar="N", help=port_help)
    parser.add_argument("--token", action="store_true", help="require a token on 127.0.0.1 too, against other users")


def check_port(port: int) -> None:
    """Raise `UserError` for a number that is no port."""
    if not 0 <= port <= 65535:
        raise UserError(f"--port {port} is not a port: give one from 1 to 65535, or 0 for any free port")


@contextmanager
def libraries_of(command: str, extra: str, *libraries: str) -> Iterator[None]:
    """Raise `UserError` with the `pip install` line if an import in the body misses one of the libraries."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if missing.name not in libraries:
            raise
        needed = " and ".join(libraries)
        distribution = "yamame-act" if extra == "serve" and find_spec("torch") is None else "yamame"
        raise UserError(f"yamame {command} needs {needed}: pip install '{distribution}[{extra}]'") from missing
