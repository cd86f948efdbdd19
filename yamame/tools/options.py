"""Options that commands share."""

import argparse
from collections.abc import Sequence

from yamame.errors import UserError


def add_output_flags(parser: argparse.ArgumentParser) -> None:
    """Add `--json` and `--quiet`."""
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    parser.add_argument("--quiet", action="store_true", help="hide progress on stderr")


def add_import_flag(parser: argparse.ArgumentParser) -> None:
    """`--import MODULE`, for every command that reads a run."""
    parser.add_argument(
        "--import",
        dest="modules",
        action="append",
        default=[],
        metavar="MODULE",
        help="import your MODULE, whose classes and functions the run's config names; may be repeated",
    )


def reject_unknown(rest: Sequence[str]) -> None:
    """Raise `UserError` if there are arguments that the command does not take."""
    if rest:
        raise UserError(f"unknown argument {rest[0]!r}: --help lists the options of this command")
