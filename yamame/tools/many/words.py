"""What every command that makes many runs reads from its words, and what it refuses in them."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from yamame.errors import UserError
from yamame.tools.options import add_output


def add_many(parser: argparse.ArgumentParser, one: str, default_directory: str) -> None:
    """The flags that commands share which make many runs, each with seeds of `one`."""
    parser.add_argument("--seeds", metavar="0,1,2", default="0", help=f"seeds of each {one} (default 0)")
    parser.add_argument("--output-dir", type=Path, metavar="DIR", help=f"where all goes (default {default_directory})")
    parser.add_argument("--report-only", action="store_true", help="train nothing: report what the directory holds")
    parser.add_argument("--size", metavar="SIZE", help="of the network, as for train")
    add_output(parser)


def of_many(options: argparse.Namespace, rest: list[str]) -> dict[str, Any]:
    """The values of `add_many`, and the flags of the recipe."""
    names = ("seeds", "output_dir", "report_only", "size", "quiet")
    return {"flags": rest, **{name: getattr(options, name) for name in names}}


def chosen_seeds(seeds: str) -> list[int]:
    """`0,1,2` -> those numbers; `UserError` for anything else."""
    parts = [part.strip() for part in seeds.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise UserError(f"--seeds: {seeds!r} is not a list of numbers such as 0,1,2")
    return list(dict.fromkeys(map(int, parts)))


def refuse_own_flags(flags: Sequence[str], instead: Mapping[str, str], owner: str) -> None:
    """Raise `UserError` for a flag of the recipe in whose place the command has one of its own: `--seed`, `--seeds`."""
    for flag in (flag.partition("=")[0] for flag in flags):
        if flag in instead:
            raise UserError(f"{flag} belongs to the {owner}: use {instead[flag]}")
