"""Command line of `yamame view`."""

import argparse
from pathlib import Path
from typing import Any

from yamame.config.named_code import caller_modules
from yamame.errors import UserError
from yamame.runs.locate import locate_run
from yamame.tools.options import add_command, add_flags, reject_unknown
from yamame.tools.viewer.player_process import RESTART_ADVICE
from yamame.tools.web.options import add_address_flags, check_port, libraries_of

DEFAULT_ROOTS = (Path("runs"), Path("sweeps"))
"""Default directories of `train` and `sweep`."""


def register(subparsers: Any) -> None:
    """Add `yamame view`."""
    view = add_command(
        subparsers,
        "view",
        _view,
        help="open a local dashboard of runs",
        description="A local web page of runs: states, configs, curves, rollouts. Shows running runs live. It writes "
        "nothing but the notes and tags that you give to runs.",
    )
    view.add_argument(
        "runs",
        nargs="*",
        type=locate_run,
        metavar="RUNS",
        help="run directories, folders that contain some, zoo:NAME or hf://user/repo (default: runs and sweeps, "
        "if they exist)",
    )
    add_address_flags(view, port=0, port_help="port (default 0: any free port)")
    view.add_argument("--read-only", action="store_true", help="write no notes and tags either")
    view.add_argument("--no-browser", action="store_true", help="print the URL only")
    add_flags(view, "--env", "--import")


def _view(options: argparse.Namespace, rest: list[str]) -> int:
    reject_unknown(rest)
    roots = _roots(options.runs)
    check_port(options.port)
    with libraries_of("view", "view", "starlette", "uvicorn"):
        from yamame.tools.viewer.app import serve_viewer
    with caller_modules((), advice=RESTART_ADVICE):
        serve_viewer(
            roots,
            host=options.host,
            port=options.port,
            open_browser=not options.no_browser,
            require_token=options.token,
            read_only=options.read_only,
            env=options.env,
        )
    return 0


def _roots(given: list[Path]) -> list[Path]:
    for path in given:
        if not path.is_dir():
            problem = "is not a directory" if path.exists() else "does not exist"
            raise UserError(f"{path} {problem}: give run directories, or folders that contain some")
    roots = given or [path for path in DEFAULT_ROOTS if path.is_dir()]
    if not roots:
        raise UserError("there is no directory runs here: give run directories, or folders that contain some")
    return roots
