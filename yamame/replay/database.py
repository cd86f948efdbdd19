"""An LMDB environment whose file starts small and grows, and whose errors a user can read."""

import errno
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import lmdb

from yamame.records.errors import UserError

_FIRST_MAP_BYTES = 1 << 24
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # a write that fits only in part shows as EIO
_Result = TypeVar("_Result")


class Database:
    """A few named tables in one directory. Commits survive a killed process; `sync` makes them survive a power cut.

    The address space reserved for the file doubles when it is used up, at most to `max_bytes`; the file itself takes
    the disk space of what was written. `UserError` where the directory cannot be opened, is already open in this
    process (LMDB forbids that), or there is no more space.
    """

    def __init__(self, directory: Path, *, tables: Sequence[str], max_bytes: int) -> None:
        self.directory = directory
        self.max_bytes = max_bytes
        self._environment, self.tables = _open(directory, tables, map_size=min(_FIRST_MAP_BYTES, max_bytes))
        self._closed = False
        self._lock = threading.RLock()  # no transaction may be under way while the map is resized

    def read(self, work: Callable[[lmdb.Transaction], _Result]) -> _Result:
        """What `work` returns, given a transaction that sees one state of the database."""
        with self._lock, self._environment.begin() as transaction:
            return work(transaction)

    def write(self, work: Callable[[lmdb.Transaction], _Result]) -> _Result:
        """What `work` returns, all its changes made at once or, if it raises, none. It may be called several times."""
        with self._lock, self._explained():
            while True:
                try:
                    with self._environment.begin(write=True) as transaction:
                        return work(transaction)
                except lmdb.MapFullError:
                    self._grow()

    def sync(self) -> None:
        """Wait until all that was committed is on the disk."""
        with self._explained():
            self._environment.sync(True)

    def close(self) -> None:
        """Sync and close; harmless when already closed."""
        with self._lock:
            if not self._closed:
                self.sync()
                self._closed = True
                self._environment.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except lmdb.Error as error:
            if error.code not in _DISK_ERRORS:
                raise
            raise UserError(f"cannot write to {self.directory} ({error}): free disk space and resume") from error

    def _grow(self) -> None:
        map_bytes = self._environment.info()["map_size"]
        if map_bytes >= self.max_bytes:
            raise UserError(
                f"{self.directory} has reached its limit of {self.max_bytes} bytes: keep fewer trajectories"
            )
        self._environment.set_mapsize(min(2 * map_bytes, self.max_bytes))


def _open(directory: Path, tables: Sequence[str], *, map_size: int) -> tuple[lmdb.Environment, dict[str, Any]]:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        environment = lmdb.open(str(directory), map_size=map_size, max_dbs=len(tables), sync=False, metasync=False)
        return environment, {name: environment.open_db(name.encode()) for name in tables}
    except (lmdb.Error, OSError) as error:
        if "already open" in str(error):
            raise UserError(f"{directory} is already open in this process: close the other store first") from error
        raise UserError(f"cannot open the database in {directory}: {error}") from error
