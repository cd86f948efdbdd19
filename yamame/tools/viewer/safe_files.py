"""Reading the files of a run that somebody else may be writing, or may have put there to do harm."""

import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

MAX_JSON = 4 << 20
"""Bytes; a larger file is not read."""

READ_ONLY = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_BINARY", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"))
"""Flags to open a file that somebody else may have replaced by a link or a pipe, as far as the system has them."""

Signature = tuple[int, int, int]
"""Inode, size and time of the last change: another one where a file may have changed."""


class UnreadableError(Exception):
    """A file cannot be shown; the message says why, in words for the page."""


def open_regular_file(path: Path) -> BinaryIO:
    """A plain file, for reading. FileNotFoundError where there is none; `UnreadableError` for links, pipes and so on.

    A link is refused because it may lead out of the run's folder; a pipe, because opening it would wait for ever.
    """
    if path.is_symlink():
        raise UnreadableError(f"{path.name} is a link: not followed")
    try:
        handle = os.open(path, READ_ONLY)
    except FileNotFoundError:
        raise
    except OSError as problem:
        raise UnreadableError(f"{path.name} cannot be opened ({problem.strerror})") from problem
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UnreadableError(f"{path.name} is no plain file")
    return os.fdopen(handle, "rb", buffering=0)


def file_signature(path: Path | str) -> Signature | None:
    """The signature of what lies at a path, links not followed; None where nothing does."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None where there is no file. `UnreadableError` for anything that is not one."""
    try:
        with open_regular_file(path) as file:
            content = file.read(MAX_JSON + 1)
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise UnreadableError(f"{path.name} cannot be read ({problem.strerror})") from problem
    if len(content) > MAX_JSON:
        raise UnreadableError(f"{path.name} is larger than {MAX_JSON >> 20} MiB: not read")
    try:
        found = json.loads(content)
    except RecursionError as problem:
        raise UnreadableError(f"{path.name} is nested too deeply: not read") from problem
    except ValueError as problem:
        raise UnreadableError(f"{path.name} holds no JSON") from problem
    if not isinstance(found, dict):
        raise UnreadableError(f"{path.name} holds no JSON object")
    return found


def printable(text: str) -> str:
    """The text as JSON and pages can hold it: no lone surrogates, no control characters."""
    sound = text.encode(errors="replace").decode()
    return (
        sound
        if sound.isprintable()
        else "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in sound)
    )
