"""The folder that all runs of one command lie in."""

from collections.abc import Sequence
from pathlib import Path

from yamame.errors import UserError


def make_folder(directory: Path) -> None:
    """Make it unless it is there; `UserError` where it cannot be made."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UserError(f"cannot make {directory} ({problem.strerror}): choose another --output-dir") from problem


def require_folder(directory: Path, flags: Sequence[str], made_by: str) -> None:
    """What `--report-only` needs: the folder, and no flags of a recipe. Raises `UserError`; `made_by` is a command."""
    if flags:
        raise UserError(f"{flags[0]} is of no use with --report-only: leave it out")
    if not directory.is_dir():
        raise UserError(f"{directory} does not exist: {made_by} makes it, or name another --output-dir")
