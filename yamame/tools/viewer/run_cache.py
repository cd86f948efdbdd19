"""Content of runs in memory, read again only when their files change."""

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from yamame.tools.viewer.run_index import RunEntry, RunIndex, Signature, file_signature

Signatures = tuple[Signature | None, ...]
"""One for each file of a run that is read; None for a file that is missing."""

_Content = TypeVar("_Content")


class RunCache(Generic[_Content]):
    """What was read from some files of each run. Thread-safe.

    The files of a run are read again if the signature of one of them changed. Runs that are not in the index any more
    are dropped.

    Args:
        index: All runs.
        names: Names of the files in a run directory.
        read: Reads the files of a run, which have these signatures.
    """

    def __init__(self, index: RunIndex, names: Sequence[str], read: Callable[[RunEntry, Signatures], _Content]) -> None:
        self._index, self._names, self._read = index, names, read
        self._lock = threading.Lock()
        self._known: dict[str, tuple[Signatures, _Content]] = {}

    def get(self, entries: Sequence[RunEntry]) -> list[_Content]:
        """Return the up-to-date content of each run."""
        with self._lock:
            indexed = self._index.found().entries
            self._known = {run_id: known for run_id, known in self._known.items() if run_id in indexed}
            return [self._refresh(entry) for entry in entries]

    def _refresh(self, entry: RunEntry) -> _Content:
        now = tuple(file_signature(f"{entry.path}/{name}") for name in self._names)
        known = self._known.get(entry.run_id)
        if known is None or known[0] != now:
            known = self._known[entry.run_id] = now, self._read(entry, now)
        return known[1]
