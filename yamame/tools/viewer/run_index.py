"""Which runs there are: a safe name for each, and where it lies."""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from yamame.run_dir import CONFIG, METRICS
from yamame.tools.viewer.safe_files import printable

MAX_DEPTH = 4
"""Folders between a root and a run in it."""
MAX_FOLDERS = 20_000
"""Looked into at once; what lies beyond is not found, and the page says so."""
FRESH_SECONDS = 2.5
"""So long the same list is given again."""


class UnknownRunError(Exception):
    """No run has this name, or it has gone."""


@dataclass(frozen=True, kw_only=True)
class RunEntry:
    """One run that was found."""

    run_id: str
    """12 hexadecimal digits that stand for the path, the same ones whenever it is found again."""
    path: Path
    name: str
    """Where it lies below its root, for people: whatever characters its folders' names are made of."""


@dataclass(frozen=True, kw_only=True)
class IndexSnapshot:
    """What lies in the roots at one time."""

    entries: dict[str, RunEntry]
    """By `run_id`, in the order of their paths."""
    warnings: list[str]
    """What was not looked into, and why; a sentence each."""


class RunIndex:
    """The runs in some folders, found afresh as they come and go. Safe to use from several threads.

    A run is a folder with a `config.json` or a `metrics.jsonl`. A client names runs by `run_id` alone, so no path that
    comes from outside is ever opened; links that lead out of their root are not followed, and are told of.
    """

    def __init__(self, roots: Sequence[Path], clock: Callable[[], float] = time.monotonic) -> None:
        self.roots = [root.resolve() for root in roots]
        self._clock = clock
        self._lock = threading.Lock()
        self._found = IndexSnapshot(entries={}, warnings=[])
        self._looked_at = float("-inf")

    def found(self) -> IndexSnapshot:
        """What there is now, or was a moment ago."""
        with self._lock:
            if self._clock() - self._looked_at >= FRESH_SECONDS:
                self._found = self._look()
                self._looked_at = self._clock()
            return self._found

    def entry(self, run_id: str) -> RunEntry:
        """The run of this name. Raises `UnknownRunError`, also where its folder has gone or has become a link."""
        entry = self.found().entries.get(run_id)
        if entry is None:
            raise UnknownRunError("there is no such run: was its folder moved or removed?")
        try:
            is_there = entry.path.resolve(strict=True) == entry.path and entry.path.is_dir()
        except OSError:
            is_there = False
        if not is_there:
            raise UnknownRunError(f"{entry.name} has vanished: was its folder moved or removed?")
        return entry

    def path(self, run_id: str) -> Path:
        """The run's folder; raises what `entry` does."""
        return self.entry(run_id).path

    def _look(self) -> IndexSnapshot:
        entries: dict[str, RunEntry] = {}
        warnings: list[str] = []
        for root in self.roots:
            for path in _runs_below(root, warnings):
                run_id = _id_of(path)
                name = root.name if path == root else path.relative_to(root).as_posix()
                entries.setdefault(run_id, RunEntry(run_id=run_id, path=path, name=printable(name)))
        return IndexSnapshot(entries=entries, warnings=warnings)


def _runs_below(root: Path, warnings: list[str]) -> Iterator[Path]:
    """Every run in a folder, or the folder itself where it is one; inside a run is none."""
    if not root.is_dir():
        warnings.append(f"{printable(root.name)} is not there any more")
        return
    waiting, looked_into = [(root, 0)], 0
    while waiting:
        folder, depth = waiting.pop()
        looked_into += 1
        if looked_into > MAX_FOLDERS:
            warnings.append(f"{printable(root.name)} has more than {MAX_FOLDERS:,} folders: the rest is not shown")
            return
        try:
            with os.scandir(folder) as listing:
                inside = sorted(listing, key=lambda entry: entry.name)
        except OSError as problem:
            warnings.append(f"{printable(folder.name)} cannot be looked into ({problem.strerror})")
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
                        f"{printable(entry.name)} is a link that leads out of {printable(root.name)}: "
                        "not followed (name the folder it leads to on the command line)"
                    )
            elif entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                folders.append((Path(entry.path), depth + 1))
        waiting += reversed(folders)


def _id_of(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
