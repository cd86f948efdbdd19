"""`yamame view`: what follows these words, and what comes of it."""

import argparse
from pathlib import Path
from typing import Any

from yamame.errors import UserError
from yamame.tools.options import add_import, refuse

DEFAULT_ROOTS = (Path("runs"), Path("sweeps"))
"""Default directories of `train` and `sweep`."""


def add_view(commands: Any) -> None:
    """Add the command to a parser's."""
    view = commands.add_parser(
        "view",
        help="look at runs in a browser: states, curves, rollouts",
        description="A local web page over runs, while they go on and after. It reads, and changes nothing.",
        allow_abbrev=False,
    )
    view.add_argument(
        "runs",
        nargs="*",
        type=Path,
        metavar="RUNS",
        help="run directories, or folders that hold some (default: those of runs and sweeps that exist)",
    )
    view.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="where to listen (default 127.0.0.1: this machine alone; with any other, the page asks for a token)",
    )
    view.add_argument("--port", type=int, default=0, metavar="N", help="where to listen (default 0: one that is free)")
    view.add_argument("--no-browser", action="store_true", help="only print the address")
    add_import(view)
    view.set_defaults(command=_view)


def _view(options: argparse.Namespace, rest: list[str]) -> int:
    refuse(rest)
    roots = _roots(options.runs)
    if not 0 <= options.port <= 65535:
        raise UserError(f"--port {options.port} is no port: give one from 1 to 65535, or 0 for one that is free")
    try:
        from yamame.tools.viewer.app import serve
    except ModuleNotFoundError as missing:
        if missing.name not in ("starlette", "uvicorn"):
            raise
        raise UserError("yamame view needs starlette and uvicorn: pip install 'yamame[view]'") from missing
    serve(roots, host=options.host, port=options.port, open_browser=not options.no_browser)
    return 0


def _roots(given: list[Path]) -> list[Path]:
    for path in given:
        if not path.is_dir():
            problem = "is no folder" if path.exists() else "does not exist"
            raise UserError(f"{path} {problem}: name run directories, or folders that hold some")
    roots = given or [path for path in DEFAULT_ROOTS if path.is_dir()]
    if not roots:
        raise UserError("there is no folder runs here: name run directories, or folders that hold some")
    return roots
