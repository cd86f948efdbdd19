"""An LMDB environment whose file starts small and grows to a limit, and whose errors a user can read."""

import errno
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import lmdb

from yamame.data.salvage import is_whole
from yamame.errors import UserError

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


TABLES = ("records", "damaged", "reasons", "marks", "counters")
_ID = struct.Struct(">Q")
_NEXT_ID = b"next_id"
_MAX_ID = (1 << 63) - 1


class RecordTag(Enum):
    """What can be special about a record."""

    PROTECTED = b"protected"
    """Never evicted, and no matter of the run that it was put beside."""
    IMPORTED = b"imported"
    """Evicted in its turn, but no matter of the run that it was put beside."""

    @staticmethod
    def from_value(value: bytes) -> "RecordTag | None":
        """The mark of a value in the table."""
        return next((mark for mark in RecordTag if mark.value == value), None)


@dataclass(frozen=True, kw_only=True)
class TableContents:
    """What a database holds."""

    sizes: Mapping[int, int]
    """Id -> bytes of its record, oldest first."""
    marks: Mapping[int, RecordTag]
    bad_keys: Sequence[bytes]
    """Keys of records that are no ids."""

    @property
    def protected(self) -> set[int]:
        """Ids of what is never evicted."""
        return {number for number, mark in self.marks.items() if mark is RecordTag.PROTECTED}


def key_of(number: int) -> bytes:
    """The key of an id."""
    return _ID.pack(number)


def id_of(key: bytes) -> int | None:
    """The id of a key; None where it is none."""
    if len(key) != _ID.size:
        return None
    number = _ID.unpack(key)[0]
    return number if number <= _MAX_ID else None


class Tables:
    """The tables of an open database, by `TABLES`; a method takes the transaction that it works in."""

    def __init__(self, handles: Mapping[str, Any]) -> None:
        self.records, self.damaged, self.reasons, self.marks, self.counters = (handles[name] for name in TABLES)

    def contents(self, transaction: lmdb.Transaction) -> TableContents:
        """Ids, sizes and marks; no record is read."""
        sizes: dict[int, int] = {}
        bad_keys: list[bytes] = []
        for key, record in transaction.cursor(self.records):
            number = id_of(bytes(key))
            if number is None:
                bad_keys.append(bytes(key))
            else:
                sizes[number] = len(record)
        named = ((id_of(bytes(key)), RecordTag.from_value(bytes(mark))) for key, mark in transaction.cursor(self.marks))
        marks = {number: mark for number, mark in named if number in sizes and mark is not None}
        return TableContents(sizes=sizes, marks=marks, bad_keys=bad_keys)

    def next_id(self, transaction: lmdb.Transaction) -> int:
        """The counter, or where that is missing or behind, what comes after the newest record."""
        counted = id_of(bytes(transaction.get(_NEXT_ID, default=b"", db=self.counters)))
        cursor = transaction.cursor(self.records)
        newest = id_of(bytes(cursor.key())) if cursor.last() else None
        return max(0 if counted is None else counted, 0 if newest is None else newest + 1)

    def set_next_id(self, transaction: lmdb.Transaction, next_id: int) -> None:
        """Set the counter."""
        transaction.put(_NEXT_ID, key_of(next_id), db=self.counters)

    def put(self, transaction: lmdb.Transaction, records: Iterable[bytes], mark: RecordTag | None) -> list[int]:
        """Store new records; their ids."""
        first = number = self.next_id(transaction)
        for record in records:
            self.put_with_id(transaction, number, record, mark)
            number += 1
        self.set_next_id(transaction, number)
        return list(range(first, number))

    def put_with_id(self, transaction: lmdb.Transaction, number: int, record: bytes, mark: RecordTag | None) -> None:
        """Store a record under an id of its own."""
        transaction.put(key_of(number), record, db=self.records)
        if mark is not None:
            transaction.put(key_of(number), mark.value, db=self.marks)

    def delete(self, transaction: lmdb.Transaction, ids: Iterable[int]) -> None:
        """Remove records for good; harmless where they are gone."""
        for number in ids:
            transaction.delete(key_of(number), db=self.records)
            transaction.delete(key_of(number), db=self.marks)

    def quarantine(self, transaction: lmdb.Transaction, key: bytes, reason: str, *, keep_bytes: bool) -> None:
        """Move a record to the damaged ones, or only its key and the reason."""
        record = transaction.get(key, db=self.records)
        if record is not None:
            transaction.put(key, bytes(record) if keep_bytes else b"", db=self.damaged)
            transaction.put(key, reason.encode(), db=self.reasons)
        transaction.delete(key, db=self.records)
        transaction.delete(key, db=self.marks)
