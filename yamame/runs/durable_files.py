"""Files that survive a power failure: their content is on the disk before they get their name."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from yamame.errors import wrap_os_errors

PARTIAL_PREFIX = ".partial-"
"""Start of the name of a file that is being written, and that a killed process leaves."""


@contextlib.contextmanager
def replace_atomically(path: Path) -> Iterator[Path]:
    """Yield a file to write beside `path`, which it replaces at the end of the block. Removed if the block raises."""
    partial = path.with_name(f"{PARTIAL_PREFIX}{path.name}")
    partial.unlink(missing_ok=True)  # it may be a link to another file
    try:
        yield partial
        sync_file(partial)
        partial.replace(path)
        sync_folder(path.parent)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file atomically. Raises `UserError` if it cannot be written."""
    with wrap_os_errors(path), replace_atomically(path) as partial:
        partial.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def write_synced(path: Path, content: bytes) -> None:
    """Write a file and wait until its content is on the disk."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_file(path: Path) -> None:
    """Wait until the content of a file is on the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    if os.name == "nt":  # Windows cannot open folders
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
