"""The runs in the viewer's directories, and safe reads of their files."""

import hashlib
import json
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from yamame.runs.directory import CONFIG, METRICS

MAX_JSON_BYTES = 4 << 20
"""Larger JSON files are not read."""
MAX_DEPTH = 4
"""Folders between a root and a run."""
MAX_FOLDERS = 20_000
"""Folders scanned per root; the page says so if there are more."""
CACHE_SECONDS = 2.5
"""Lifetime of a scan."""
_READ_ONLY = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_BINARY", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"))
"""Flags that do not follow links and do not block on pipes, as far as the system has them."""

Signature = tuple[int, int, int]
"""Inode, size and modification time of a file."""


class UnknownRunError(Exception):
    """There is no run with this id, or not any more."""


class UnreadableError(Exception):
    """A file cannot be shown; the message is for the page."""


@dataclass(frozen=True, kw_only=True)
class RunEntry:
    """What the table of runs shows of a run."""

    run_id: str
    """12 hexadecimal digits of a hash of the path."""
    path: Path
    name: str
    """Path below its root, printable."""


@dataclass(frozen=True, kw_only=True)
class IndexSnapshot:
    """Result of a scan."""

    entries: dict[str, RunEntry]
    """By `run_id`, sorted by path."""
    warnings: list[str]
    """What was not scanned, and why."""


class RunIndex:
    """The runs in some directories. Thread-safe.

    A run is a folder with a `config.json` or a `metrics.jsonl`. Clients refer to runs by `run_id` only, so no path from
    outside is ever opened. Links that lead out of their root are not followed but reported.
    """

    def __init__(self, roots: Sequence[Path], clock: Callable[[], float] = time.monotonic) -> None:
        self.roots = [root.resolve() for root in roots]
        self._clock = clock
        self._lock = threading.Lock()
        self._found = IndexSnapshot(entries={}, warnings=[])
        self._scanned_at = float("-inf")

    def found(self) -> IndexSnapshot:
        """Return the runs, at most `CACHE_SECONDS` old."""
        with self._lock:
            if self._clock() - self._scanned_at >= CACHE_SECONDS:
                self._found = self._scan()
                self._scanned_at = self._clock()
            return self._found

    def entry(self, run_id: str) -> RunEntry:
        """Return a run. Raises `UnknownRunError`, also if its folder was removed or replaced by a link."""
        entry = self.found().entries.get(run_id)
        if entry is None:
            raise UnknownRunError("there is no such run: its folder may have been moved or removed")
        try:
            is_there = entry.path.resolve(strict=True) == entry.path and entry.path.is_dir()
        except OSError:
            is_there = False
        if not is_there:
            raise UnknownRunError(f"{entry.name} does not exist any more: its folder may have been moved or removed")
        return entry

    def _scan(self) -> IndexSnapshot:
        entries: dict[str, RunEntry] = {}
        warnings: list[str] = []
        for root in self.roots:
            for path in _runs_below(root, warnings):
                run_id = hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
                name = root.name if path == root else path.relative_to(root).as_posix()
                entries.setdefault(run_id, RunEntry(run_id=run_id, path=path, name=printable(name)))
        return IndexSnapshot(entries=entries, warnings=warnings)


def _runs_below(root: Path, warnings: list[str]) -> Iterator[Path]:
    """Yield the runs in a folder, or the folder itself if it is a run."""
    if not root.is_dir():
        warnings.append(f"{printable(root.name)} does not exist any more")
        return
    pending, scanned = [(root, 0)], 0
    while pending:
        folder, depth = pending.pop()
        scanned += 1
        if scanned > MAX_FOLDERS:
            warnings.append(f"{printable(root.name)} has more than {MAX_FOLDERS:,} folders: the rest is not shown")
            return
        try:
            with os.scandir(folder) as listing:
                inside = sorted(listing, key=lambda entry: entry.name)
        except OSError as problem:
            warnings.append(f"{printable(folder.name)} cannot be read ({problem.strerror})")
            continue
        if any(entry.name in (CONFIG, METRICS) for entry in inside):
            yield folder
            continue
        if depth == MAX_DEPTH:
            continue
        folders = []
        for entry in inside:
            if entry.is_symlink():
                target = Path(entry.path).resolve()
                if target.is_dir() and not target.is_relative_to(root):
                    warnings.append(
                        f"{printable(entry.name)} is a link out of {printable(root.name)} and was not followed: "
                        "pass its target on the command line"
                    )
            elif entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                folders.append((Path(entry.path), depth + 1))
        pending += reversed(folders)


def open_regular_file(path: Path) -> BinaryIO:
    """Open a regular file for reading.

    Raises:
        FileNotFoundError: If there is no file.
        UnreadableError: If it is a link, which may lead out of the run, or a pipe, which may block, or not readable.
    """
    if path.is_symlink():
        raise UnreadableError(f"{path.name} is a link and was not followed")
    try:
        handle = os.open(path, _READ_ONLY)
    except FileNotFoundError:
        raise
    except OSError as problem:
        raise UnreadableError(f"{path.name} cannot be opened ({problem.strerror})") from problem
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UnreadableError(f"{path.name} is not a regular file")
    return os.fdopen(handle, "rb", buffering=0)


def file_signature(path: Path | str) -> Signature | None:
    """Return the signature of a file without following links; None if there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file; None without a file. Raises `UnreadableError` for anything else."""
    try:
        with open_regular_file(path) as file:
            content = file.read(MAX_JSON_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise UnreadableError(f"{path.name} cannot be read ({problem.strerror})") from problem
    if len(content) > MAX_JSON_BYTES:
        raise UnreadableError(f"{path.name} is larger than {MAX_JSON_BYTES >> 20} MiB and was not read")
    try:
        found = json.loads(content)
    except RecursionError as problem:
        raise UnreadableError(f"{path.name} is nested too deeply and was not read") from problem
    except ValueError as problem:
        raise UnreadableError(f"{path.name} is not valid JSON") from problem
    if not isinstance(found, dict):
        raise UnreadableError(f"{path.name} is not a JSON object")
    return found


def leaves(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the path and the value of all that is no object, and of empty objects, in the order of the file."""
    pending: list[tuple[str, Any]] = [("", content)]
    while pending:
        path, value = pending.pop()
        if isinstance(value, dict) and (value or not path):
            pending += reversed([(f"{path}.{key}".lstrip("."), part) for key, part in value.items()])
        else:
            yield path, value


def printable(text: str) -> str:
    """Replace lone surrogates and control characters."""
    encodable = text.encode(errors="replace").decode()
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in encodable)
