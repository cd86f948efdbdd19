"""Command line of `yamame serve`."""

import argparse
from dataclasses import fields
from pathlib import Path
from typing import Any

from yamame.errors import UserError
from yamame.runs.directory import LATEST
from yamame.runs.locate import locate_run
from yamame.tools.options import RUN_HELP, add_command, add_flags, reject_unknown
from yamame.tools.serve.limits import Limits
from yamame.tools.web.access import new_token
from yamame.tools.web.address import LOOPBACK
from yamame.tools.web.options import add_address_flags, check_port, libraries_of

DEFAULT_PORT = 8000


def register(subparsers: Any) -> None:
    """Add `yamame serve`."""
    serve = add_command(
        subparsers,
        "serve",
        _serve,
        help="serve a trained policy over HTTP and WebSockets",
        description="An HTTP and WebSocket service for one policy. Each session has a memory of its own; requests that "
        "arrive together are acted on in one batch. SIGTERM finishes the requests that have arrived.",
    )
    serve.add_argument("run", type=locate_run, metavar="RUN", help=f"{RUN_HELP}, or an .onnx file")
    serve.add_argument("--checkpoint", metavar="WHICH", default=LATEST, help="latest (default), best, or a path")
    add_address_flags(serve, port=DEFAULT_PORT, port_help=f"port (default {DEFAULT_PORT}; 0: any free port)")
    serve.add_argument(
        "--token-file", type=Path, metavar="FILE", help="require the token in FILE instead of a new random one"
    )
    default = Limits()
    for flag, kind, metavar, about in (
        ("--max-sessions", int, "N", "sessions at a time"),
        ("--session-seconds", float, "S", "close a session that is unused for S seconds"),
        ("--max-body-bytes", int, "N", "largest request, in bytes"),
        ("--request-seconds", float, "S", "longest time that a request waits for its batch"),
    ):
        value = getattr(default, flag.removeprefix("--").replace("-", "_"))
        serve.add_argument(flag, type=kind, metavar=metavar, default=value, help=f"{about} (default {value})")
    add_flags(serve, "--import")


def _serve(options: argparse.Namespace, rest: list[str]) -> int:
    reject_unknown(rest)
    check_port(options.port)
    if options.run.suffix == ".onnx" and options.checkpoint != LATEST:
        raise UserError(f"--checkpoint {options.checkpoint} has no effect with an .onnx file: leave it out")
    with libraries_of("serve", "serve", "starlette", "uvicorn", "websockets"):
        import websockets  # noqa: F401  # by uvicorn, once a client connects

        from yamame.tools.serve.app import Service, serve_policy
    token = _token(options)
    limits = Limits(**{field.name: getattr(options, field.name) for field in fields(Limits)})
    shown = token if options.token_file is None else str(options.token_file)
    service = Service(options.run, options.checkpoint, limits)
    serve_policy(service, host=options.host, port=options.port, token=token, shown_token=shown)
    return 0


def _token(options: argparse.Namespace) -> str:
    """Return the token; "" if none is required."""
    if options.token_file is not None:
        try:
            token: str = options.token_file.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise UserError(f"cannot read the token in {options.token_file} ({error})") from error
        if len(token) < 16 or not token.isascii() or " " in token:
            raise UserError(f"{options.token_file} has no token: expected at least 16 characters without spaces")
        return token
    return new_token() if options.token or options.host not in LOOPBACK else ""
