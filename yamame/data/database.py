"""An LMDB environment whose file grows up to a limit, and the tables of a replay store in it."""

import errno
import json
import struct
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeVar

import lmdb

from yamame.data.page_check import CorruptedPageError, check_pages
from yamame.errors import UserError
from yamame.runs.durable_files import sync_folder

DATABASE_FILE = "data.mdb"
_INITIAL_MAP_BYTES = 1 << 24
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # a partial write appears as EIO
_CORRUPTION_ERRORS = (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError, lmdb.PanicError, lmdb.BadTxnError)
_Result = TypeVar("_Result")


class DatabaseFullError(UserError):
    """The database has reached its maximum size; nothing was written."""


class CorruptedDatabaseError(UserError):
    """The database file itself is corrupted, as opposed to the contents of a record."""

    def __init__(self, directory: Path, problem: object) -> None:
        super().__init__(
            f"{directory} is corrupted ({problem}): yamame data repair {directory} recovers readable records"
        )


class Database:
    """A store's tables in one directory. Commits survive a killed process and a power failure.

    The LMDB map doubles when it is full, up to `max_bytes`; the file takes the disk space of what was written. 1/64 of
    `max_bytes` is reserved, since freeing space takes space. Several processes may have a directory open, each once.

    Raises:
        UserError: If the directory cannot be opened, is already open in this process (which LMDB forbids), is
            corrupted, or if the disk is full.
    """

    def __init__(self, directory: Path, *, max_bytes: int) -> None:
        self.directory = directory
        self.max_bytes = max_bytes
        self.usable_bytes = max_bytes - max(1 << 16, max_bytes >> 6) & ~0xFFF
        """Limit of ordinary writes."""
        self._environment, self.tables = _open(directory, map_size=min(_INITIAL_MAP_BYTES, self.usable_bytes))
        self._closed = False
        self._lock = threading.RLock()  # LMDB forbids open transactions while the map is resized
        self._last_seen = -1

    @property
    def changed_externally(self) -> bool:
        """Whether another process has written since this one last wrote or called `read` with `refresh`."""
        with self._lock:
            return not self._closed and self._environment.info()["last_txnid"] != self._last_seen

    def read(self, fn: Callable[[lmdb.Transaction], _Result], *, refresh: bool = False) -> _Result:
        """Return `fn` of a transaction, a snapshot of the database from which it gets buffers.

        With `refresh`, `changed_externally` is relative to this snapshot.
        """
        with self._lock, self._wrap_errors(), self._begin(write=False) as transaction:
            if refresh:
                self._last_seen = transaction.id()
            return fn(transaction)

    def write(self, fn: Callable[[lmdb.Transaction], _Result], *, allow_reserve: bool = False) -> _Result:
        """Return `fn` of a transaction, which commits all of its changes or, if it raises, none.

        `fn` must change something, and may be called several times. Raises `DatabaseFullError` at the size limit;
        writes that free space may use the reserve.
        """
        with self._lock, self._wrap_errors():
            while True:
                try:
                    with self._begin(write=True) as transaction:
                        result, transaction_id = fn(transaction), transaction.id()
                    break
                except lmdb.MapFullError:
                    self._grow(self.max_bytes if allow_reserve else self.usable_bytes)
            if allow_reserve:
                self._environment.set_mapsize(min(self._environment.info()["map_size"], self.usable_bytes))
            self._last_seen = transaction_id if transaction_id == self._last_seen + 1 else self._last_seen
            return result

    def close(self) -> None:
        """Close. Idempotent."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._environment.close()

    def _begin(self, *, write: bool) -> lmdb.Transaction:
        try:
            return self._environment.begin(write=write, buffers=True)
        except lmdb.MapResizedError:  # another process has grown the file
            self._environment.set_mapsize(0)
            return self._environment.begin(write=write, buffers=True)

    @contextmanager
    def _wrap_errors(self) -> Iterator[None]:
        try:
            yield
        except _CORRUPTION_ERRORS as error:
            raise CorruptedDatabaseError(self.directory, error) from error
        except lmdb.Error as error:
            if error.code not in _DISK_ERRORS:
                raise
            raise UserError(f"cannot write to {self.directory} ({error}): free disk space and resume") from error

    def _grow(self, limit: int) -> None:
        map_bytes = self._environment.info()["map_size"]
        if map_bytes >= limit:
            self._environment.reader_check()  # pages that a killed reader holds cannot be reused
            raise DatabaseFullError(f"{self.directory} has reached its limit of {self.max_bytes} bytes")
        self._environment.set_mapsize(min(2 * map_bytes, limit))


def _open(directory: Path, *, map_size: int) -> "tuple[lmdb.Environment, Tables]":
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if is_new := not (directory / DATABASE_FILE).exists():
            sync_folder(directory.parent)
        else:
            check_pages(directory)  # LMDB would abort this process
        environment = lmdb.open(str(directory), map_size=map_size, max_dbs=len(TABLES))
        if is_new:
            sync_folder(directory)
        environment.reader_check()
        return environment, Tables(environment)
    except CorruptedPageError as error:
        raise CorruptedDatabaseError(directory, error) from error
    except (lmdb.Error, OSError) as error:
        if "already open" in str(error):
            raise UserError(f"{directory} is already open in this process: close the other store first") from error
        if isinstance(error, _CORRUPTION_ERRORS):
            raise CorruptedDatabaseError(directory, error) from error
        remedy = ": free disk space" if getattr(error, "code", None) in _DISK_ERRORS else ""
        raise UserError(f"cannot open the database in {directory} ({error}){remedy}") from error


TABLES = ("records", "quarantined", "reasons", "tags", "counters")
_ID = struct.Struct(">Q")
NEXT_ID, DELETED_BEFORE, LOST = b"next_id", b"deleted_before", b"lost"
"""Keys of the table of counters."""
_MAX_ID = (1 << 63) - 1
_MAX_IDS = 1 << 28


class RecordTag(Enum):
    """Marks records that are not the run's own experience: `rollback` never drops them."""

    PROTECTED = b"protected"
    """Never evicted."""
    IMPORTED = b"imported"
    """Evicted in turn."""

    @staticmethod
    def from_value(value: bytes) -> "RecordTag | None":
        """Return the tag stored as `value`; None if there is none."""
        return next((tag for tag in RecordTag if tag.value == value), None)


@dataclass(frozen=True, kw_only=True)
class TableContents:
    """Ids, sizes and tags of all records."""

    sizes: Mapping[int, int]
    """Id -> bytes of its record, oldest first."""
    tags: Mapping[int, RecordTag]
    bad_keys: Sequence[bytes]
    """Keys of records that are no ids."""


def key_of(record_id: int) -> bytes:
    """Return the key of an id."""
    return _ID.pack(record_id)


def id_of(key: bytes) -> int | None:
    """Return the id of a key; None if it is no id."""
    if len(key) != _ID.size:
        return None
    record_id = _ID.unpack(key)[0]
    return record_id if record_id <= _MAX_ID else None


def ids_to_ranges(ids: Iterable[int]) -> list[list[int]]:
    """Return ids as JSON: [first, last] of each run of successive ones."""
    ranges: list[list[int]] = []
    for record_id in sorted(ids):
        if ranges and ranges[-1][1] == record_id - 1:
            ranges[-1][1] = record_id
        else:
            ranges.append([record_id, record_id])
    return ranges


def ids_from_ranges(ranges: Collection[Sequence[int]]) -> list[int]:
    """Return the ids of `ids_to_ranges`. Raises `ValueError` for more than a store can hold."""
    if sum(last + 1 - first for first, last in ranges) > _MAX_IDS:
        raise ValueError(f"more than {_MAX_IDS} ids")
    return [record_id for first, last in ranges for record_id in range(first, last + 1)]


def parse_lost(content: bytes) -> set[int]:
    """Return the ids in the counter `LOST`; none if it is corrupted."""
    try:
        return set(ids_from_ranges(json.loads(content)))
    except (ValueError, TypeError):
        return set()


class Tables:
    """The tables `TABLES` of an open database, created if missing. Methods work in the given transaction."""

    def __init__(self, environment: lmdb.Environment) -> None:
        handles = [environment.open_db(name.encode()) for name in TABLES]
        self.records, self.quarantined, self.reasons, self.tags, self.counters = handles

    def contents(self, transaction: lmdb.Transaction) -> TableContents:
        """Return ids, sizes and tags without reading any record."""
        sizes: dict[int, int] = {}
        bad_keys: list[bytes] = []
        for key, record in transaction.cursor(self.records):
            record_id = id_of(bytes(key))
            if record_id is None:
                bad_keys.append(bytes(key))
            else:
                sizes[record_id] = len(record)
        stored = ((id_of(bytes(key)), RecordTag.from_value(bytes(tag))) for key, tag in transaction.cursor(self.tags))
        tags = {record_id: tag for record_id, tag in stored if record_id in sizes and tag is not None}
        return TableContents(sizes=sizes, tags=tags, bad_keys=bad_keys)

    def next_id(self, transaction: lmdb.Transaction) -> int:
        """Return the counter or, if it is missing or too small, the successor of the newest record's id."""
        counted = id_of(bytes(transaction.get(NEXT_ID, default=b"", db=self.counters)))
        cursor = transaction.cursor(self.records)
        newest = id_of(bytes(cursor.key())) if cursor.last() else None
        return max(0 if counted is None else counted, 0 if newest is None else newest + 1)

    def set_next_id(self, transaction: lmdb.Transaction, next_id: int) -> None:
        """Set the counter."""
        transaction.put(NEXT_ID, key_of(next_id), db=self.counters)

    def put(self, transaction: lmdb.Transaction, records: Iterable[bytes], tag: RecordTag | None) -> list[int]:
        """Store new records; return their ids."""
        first = record_id = self.next_id(transaction)
        for record in records:
            self.put_with_id(transaction, record_id, record, tag)
            record_id += 1
        self.set_next_id(transaction, record_id)
        return list(range(first, record_id))

    def put_with_id(self, transaction: lmdb.Transaction, record_id: int, record: bytes, tag: RecordTag | None) -> None:
        """Store a record under a given id."""
        transaction.put(key_of(record_id), record, db=self.records)
        if tag is not None:
            transaction.put(key_of(record_id), tag.value, db=self.tags)

    def delete(self, transaction: lmdb.Transaction, ids: Iterable[int]) -> None:
        """Delete records and their tags, if they exist."""
        for record_id in ids:
            transaction.delete(key_of(record_id), db=self.records)
            transaction.delete(key_of(record_id), db=self.tags)

    def set_deleted_before(self, transaction: lmdb.Transaction, record_id: int) -> None:
        """Record that older ids, the protected ones excepted, were deleted in turn. The record never moves back."""
        known = id_of(bytes(transaction.get(DELETED_BEFORE, default=b"", db=self.counters))) or 0
        transaction.put(DELETED_BEFORE, key_of(max(known, record_id)), db=self.counters)

    def add_lost(self, transaction: lmdb.Transaction, ids: Iterable[int]) -> None:
        """Record ids whose loss is known."""
        known = parse_lost(bytes(transaction.get(LOST, default=b"", db=self.counters)))
        transaction.put(LOST, json.dumps(ids_to_ranges({*known, *ids})).encode(), db=self.counters)

    def unaccounted(self, transaction: lmdb.Transaction, ids: Iterable[int]) -> list[int]:
        """Return the ids that are neither stored nor quarantined, were not deleted in turn and not known as lost."""
        deleted_before = id_of(bytes(transaction.get(DELETED_BEFORE, default=b"", db=self.counters))) or 0
        lost = parse_lost(bytes(transaction.get(LOST, default=b"", db=self.counters)))
        records, quarantined = transaction.cursor(self.records), transaction.cursor(self.reasons)
        return [
            record_id
            for record_id in ids
            if record_id >= deleted_before
            and record_id not in lost
            and not records.set_key(key_of(record_id))
            and not quarantined.set_key(key_of(record_id))
        ]

    def quarantine(self, transaction: lmdb.Transaction, key: bytes, reason: str, *, keep_bytes: bool) -> None:
        """Move a record to the quarantined ones, with its bytes or only its key and the reason."""
        record = transaction.get(key, db=self.records)
        if record is not None:
            transaction.put(key, bytes(record) if keep_bytes else b"", db=self.quarantined)
            transaction.put(key, reason.encode(), db=self.reasons)
        transaction.delete(key, db=self.records)
        transaction.delete(key, db=self.tags)
