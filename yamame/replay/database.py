"""An LMDB environment whose file starts small and grows to a limit, and whose errors a user can read."""

import errno
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import lmdb

from yamame.records.errors import UserError
from yamame.replay.careful import is_whole

_FIRST_MAP_BYTES = 1 << 24
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # a write that fits only in part shows as EIO
_DAMAGE = (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError, lmdb.PanicError, lmdb.BadTxnError)
_Result = TypeVar("_Result")


class DatabaseFullError(UserError):
    """The database has reached its largest size; nothing was written."""


class CorruptedDatabaseError(UserError):
    """The file of the database itself is damaged, not just what a record says."""

    def __init__(self, directory: Path, problem: object) -> None:
        super().__init__(f"{directory} is damaged ({problem}): yamame data repair {directory} saves what can be read")


class Database:
    """A few named tables in one directory. Commits survive a killed process; `sync` makes them survive a power cut.

    The address space reserved for the file doubles when it is used up, at most to `max_bytes`; the file itself takes
    the disk space of what was written. A sixty-fourth of `max_bytes` is held back, for freeing space takes space.
    Several processes may have a directory open, each once. `UserError` where it cannot be opened, is already open in
    this process (LMDB forbids that), is damaged, or there is no more space.
    """

    def __init__(self, directory: Path, *, tables: Sequence[str], max_bytes: int) -> None:
        self.directory = directory
        self.max_bytes = max_bytes
        self.usable_bytes = max_bytes - max(1 << 16, max_bytes >> 6) & ~0xFFF
        """Up to where ordinary writes may fill the file."""
        self._environment, self.tables = _open(directory, tables, map_size=min(_FIRST_MAP_BYTES, self.usable_bytes))
        self._closed = False
        self._lock = threading.RLock()  # no transaction may be under way while the map is resized
        self._seen = -1

    @property
    def changed_externally(self) -> bool:
        """Whether another process has written since this one last wrote, or took notice by `read`ing anew."""
        with self._lock:
            return not self._closed and self._environment.info()["last_txnid"] != self._seen

    def read(self, work: Callable[[lmdb.Transaction], _Result], *, refresh: bool = False) -> _Result:
        """What `work` returns, given a transaction that sees one state of the database; what it gets are buffers.

        With `anew` this state is the one that others' changes count from.
        """
        with self._lock, self._explained(), self._begin(write=False) as transaction:
            if refresh:
                self._seen = transaction.id()
            return work(transaction)

    def write(self, work: Callable[[lmdb.Transaction], _Result], *, allow_reserve: bool = False) -> _Result:
        """What `work` returns, all its changes made at once or, if it raises, none. It may be called several times.

        It has to change something. `DatabaseFullError` at the limit; `freeing` work, which makes room, may go beyond.
        """
        with self._lock, self._explained():
            while True:
                try:
                    with self._begin(write=True) as transaction:
                        result, number = work(transaction), transaction.id()
                    break
                except lmdb.MapFullError:
                    self._grow(self.max_bytes if allow_reserve else self.usable_bytes)
            if allow_reserve:
                self._environment.set_mapsize(min(self._environment.info()["map_size"], self.usable_bytes))
            self._seen = number if number == self._seen + 1 else self._seen
            return result

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

    def _begin(self, *, write: bool) -> lmdb.Transaction:
        try:
            return self._environment.begin(write=write, buffers=True)
        except lmdb.MapResizedError:  # another process has grown the file
            self._environment.set_mapsize(0)
            return self._environment.begin(write=write, buffers=True)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except _DAMAGE as error:
            raise CorruptedDatabaseError(self.directory, error) from error
        except lmdb.Error as error:
            if error.code not in _DISK_ERRORS:
                raise
            raise UserError(f"cannot write to {self.directory} ({error}): free disk space and resume") from error

    def _grow(self, limit: int) -> None:
        map_bytes = self._environment.info()["map_size"]
        if map_bytes >= limit:
            self._environment.reader_check()  # what a killed reader still claims to be reading cannot be used again
            raise DatabaseFullError(f"{self.directory} has reached its limit of {self.max_bytes} bytes")
        self._environment.set_mapsize(min(2 * map_bytes, limit))


def _open(directory: Path, tables: Sequence[str], *, map_size: int) -> tuple[lmdb.Environment, dict[str, Any]]:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        environment = lmdb.open(str(directory), map_size=map_size, max_dbs=len(tables), sync=False, metasync=False)
        environment.reader_check()
        if _is_short(environment, directory) and not is_whole(directory):
            environment.close()
            raise CorruptedDatabaseError(directory, "its file is cut short")
        return environment, {name: environment.open_db(name.encode()) for name in tables}
    except (lmdb.Error, OSError) as error:
        if "already open" in str(error):
            raise UserError(f"{directory} is already open in this process: close the other store first") from error
        if isinstance(error, _DAMAGE):
            raise CorruptedDatabaseError(directory, error) from error
        full = getattr(error, "code", None) in _DISK_ERRORS
        remedy = ": free disk space" if full else ""
        raise UserError(f"cannot open the database in {directory} ({error}){remedy}") from error


def _is_short(environment: lmdb.Environment, directory: Path) -> bool:
    """Whether the file ends before its last page; the pages behind the end may be unused ones, and often are."""
    pages = environment.info()["last_pgno"] + 1
    return (directory / "data.mdb").stat().st_size < pages * environment.stat()["psize"]
