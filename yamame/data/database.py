"""`Database`: the SQLite file of a replay store, for the threads of a process and for several processes.

    records       the trajectories
    quarantined   ids that must not be sampled, with the reason: of records that are corrupted, or were lost in a repair
    counters      `next_id`; `deleted_before`: smaller ids were evicted and deleted, the protected ones excepted

A commit is on the disk when `write` returns. SQLite finds what is wrong with its pages; the contents of records have
checksums of their own (`codec`), and each id is stored twice, since a flipped bit would make it another valid id.
"""

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

from yamame.errors import UserError, wrap_os_errors
from yamame.runs.directory import REPLAY_FILE
from yamame.runs.durable_files import sync_folder

Row = tuple[int, bytes, "RecordTag | None"]
"""Id, record and tag."""

_SCHEMA = {
    "records": (
        "CREATE TABLE records (id INTEGER PRIMARY KEY, id_copy INTEGER NOT NULL CHECK (id_copy = id), "
        "tag INTEGER CHECK (tag IN (1, 2)), record BLOB NOT NULL)"
    ),
    "quarantined": "CREATE TABLE quarantined (id INTEGER PRIMARY KEY, reason TEXT NOT NULL)",
    "counters": "CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
}
_PAGE_BYTES = 8192
_LOG_PAGES = 4096
"""Pages of the write-ahead log at which SQLite copies them to the file."""
_BUSY_SECONDS = 60.0
MAX_ID = 1 << 62
"""Larger ids are taken for corrupted ones."""
_CORRUPTION = (
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_FORMAT,
)
_READ_ERRORS = (sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS)
_OLD_FILE = "data.mdb"


class RecordTag(Enum):
    """Marks records that are not the run's own experience: `rollback` never drops them."""

    PROTECTED = 1
    """Never evicted."""
    IMPORTED = 2
    """Evicted as the run's own records are: the oldest first."""

    @staticmethod
    def from_value(value: object) -> "RecordTag | None":
        """Return the tag stored as `value`; None if there is none."""
        return next((tag for tag in RecordTag if tag.value == value), None)


class CorruptedDatabaseError(UserError):
    """The database file itself is corrupted, as opposed to the contents of a record."""

    def __init__(self, directory: Path, problem: object) -> None:
        super().__init__(
            f"{directory} is corrupted ({problem}): yamame data repair {directory} recovers readable records"
        )
        self.problem = str(problem)


def is_store(directory: Path) -> bool:
    """Whether a directory has a replay store. Raises `UserError` if it is one of an earlier version."""
    if (directory / REPLAY_FILE).is_file():
        return True
    if (directory / _OLD_FILE).is_file():
        raise UserError(
            f"{directory} has a replay store in LMDB ({_OLD_FILE}), which versions of Yamame before 28 November 2026 "
            "read: use one of them, or start a new run"
        )
    return False


class Database:
    """The tables of a store in one file, which is created if it does not exist.

    A thread that reads has a connection of its own meanwhile, so that it does not wait for one that writes.

    Raises:
        UserError: If the directory cannot be opened or is corrupted, or if the disk is full.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = threading.RLock()
        self._idle_readers: list[sqlite3.Connection] = []
        self._closed = False
        with wrap_os_errors(directory):
            directory.mkdir(parents=True, exist_ok=True)
            is_new = not is_store(directory)
            if not (is_new or _is_writable(directory)):
                raise UserError(f"cannot open {directory} to train: make the folder and its files writable")
            with translated_errors(directory):
                self._writer = _connect(directory, "mode=rwc")
                try:
                    _set_up(self._writer, directory)
                    self._last_seen = self._version()
                except BaseException:
                    self._writer.close()
                    raise
            if is_new:
                sync_folder(directory)
                sync_folder(directory.parent)

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection to read with, to one thread at a time."""
        with translated_errors(self.directory):
            try:
                reader = self._idle_readers.pop()
            except IndexError:
                reader = _connect(self.directory, "mode=rw")
            try:
                yield reader
            finally:
                if self._closed:
                    reader.close()
                else:
                    self._idle_readers.append(reader)

    @contextmanager
    def write(self) -> Iterator["Transaction"]:
        """Yield a transaction, which commits all of its changes at the end of the block or, if it raises, none."""
        with self._lock, translated_errors(self.directory):
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield Transaction(self._writer)
                self._writer.execute("COMMIT")
            finally:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")

    def changed_externally(self) -> bool:
        """Whether another process has written since the last call."""
        with self._lock, translated_errors(self.directory):
            before, self._last_seen = self._last_seen, self._version()
            return before != self._last_seen

    def empty_log(self) -> None:
        """Copy the write-ahead log to the file and truncate it, unless another process is reading from it."""
        with self._lock, translated_errors(self.directory):
            self._writer.execute("PRAGMA busy_timeout = 0")
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._writer.execute(f"PRAGMA busy_timeout = {int(1000 * _BUSY_SECONDS)}")

    def close(self) -> None:
        """Close. Idempotent."""
        with self._lock:
            self._closed = True
            while self._idle_readers:
                self._idle_readers.pop().close()
            self._writer.close()

    def _version(self) -> int:
        return int(self._writer.execute("PRAGMA data_version").fetchone()[0])


class Transaction:
    """Changes of the tables."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def append(self, records: Iterable[bytes], tag: RecordTag | None) -> dict[int, int]:
        """Store new records; return their sizes by id."""
        first = next_id(self._connection)
        sizes: dict[int, int] = {}
        for record_id, record in enumerate(records, first):
            self.insert([(record_id, record, tag)])
            sizes[record_id] = len(record)
        self.set_counter("next_id", first + len(sizes))
        return sizes

    def insert(self, rows: Iterable[Row]) -> None:
        """Store records under given ids."""
        self._connection.executemany(
            "INSERT INTO records VALUES (?1, ?1, ?2, ?3)",
            ((record_id, tag and tag.value, record) for record_id, record, tag in rows),
        )

    def delete(self, ids: Iterable[int]) -> None:
        """Delete records, if they exist."""
        self.set_counter("next_id", next_id(self._connection))
        self._connection.executemany("DELETE FROM records WHERE id = ?", ((record_id,) for record_id in ids))

    def quarantine(self, reasons: Iterable[tuple[int, str]]) -> None:
        """Record ids that must not be sampled. Their records stay: deleting a corrupted one could free other pages."""
        self._connection.executemany("INSERT OR REPLACE INTO quarantined VALUES (?, ?)", reasons)

    def set_counter(self, name: str, value: int) -> None:
        """Set a counter, which never decreases."""
        value = max(value, counter(self._connection, name))
        self._connection.execute("INSERT OR REPLACE INTO counters VALUES (?, ?)", (name, value))


def counter(connection: sqlite3.Connection, name: str) -> int:
    """Return a counter; 0 if it was never set or is no valid id."""
    row = connection.execute("SELECT value FROM counters WHERE name = ?", (name,)).fetchone()
    return row[0] if row and isinstance(row[0], int) and 0 <= row[0] <= MAX_ID else 0


def next_id(connection: sqlite3.Connection) -> int:
    """Return the counter or, if it is missing or too small, the successor of the newest record's id."""
    newest = connection.execute("SELECT max(id) FROM records WHERE id_copy = id").fetchone()[0]
    return max(counter(connection, "next_id"), 0 if newest is None else newest + 1)


@contextmanager
def open_read_only(directory: Path) -> Iterator[sqlite3.Connection]:
    """Open a store to read it, whatever state its pages are in, also in a folder in which nothing can be written.

    Other processes may write meanwhile: a query sees the last commit before it.

    Raises:
        UserError: If the file cannot be opened, or its tables are not those of a store.
    """
    log = directory / f"{REPLAY_FILE}-wal"
    if _is_writable(directory):
        options = "mode=rw"  # leaves no empty log behind, as mode=ro does
    else:
        options = "mode=ro" if log.exists() and log.stat().st_size else "immutable=1"
    with translated_errors(directory):
        connection = _connect(directory, options)
        try:
            connection.execute("PRAGMA query_only = ON")
            _require_schema(connection, directory)
            yield connection
        finally:
            connection.close()


@contextmanager
def translated_errors(directory: Path) -> Iterator[None]:
    """Raise `UserError` for an error of SQLite that a user can act on."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
        kind = code & 0xFF
        if kind in _CORRUPTION or code in _READ_ERRORS:
            raise CorruptedDatabaseError(directory, error) from error
        if kind in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            raise UserError(f"cannot write to {directory} ({error}): free disk space and resume") from error
        if kind in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
            raise UserError(f"cannot open {directory} ({error}): make the folder and its files writable") from error
        if kind in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise UserError(f"another process keeps {directory} locked: stop it, or wait for it") from error
        raise


def _is_writable(directory: Path) -> bool:
    return os.access(directory / REPLAY_FILE, os.W_OK) and os.access(directory, os.W_OK)


def _connect(directory: Path, options: str) -> sqlite3.Connection:
    path = directory / REPLAY_FILE
    if path.with_name(f"{REPLAY_FILE}-journal").exists():  # it can name other files, which SQLite deletes
        raise CorruptedDatabaseError(directory, "it has a rollback journal, which belongs to no replay store")
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{options}",
        uri=True,
        timeout=_BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    connection.text_factory = _decode_text
    for setting in ("synchronous = FULL", "secure_delete = OFF", "cell_size_check = ON", "trusted_schema = OFF"):
        connection.execute(f"PRAGMA {setting}")
    return connection


def _decode_text(text: bytes) -> str:
    return text.decode(errors="replace")


def _set_up(connection: sqlite3.Connection, directory: Path) -> None:
    """Set what the file and the writing connection keep; create the tables of a new store."""
    connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise UserError(f"the file system of {directory} cannot hold a replay store: use a local disk")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
    connection.execute("BEGIN IMMEDIATE")
    if not _schema_of(connection):
        for statement in _SCHEMA.values():
            connection.execute(statement)
    connection.execute("COMMIT")
    _require_schema(connection, directory)


def _schema_of(connection: sqlite3.Connection) -> dict[str, str]:
    return dict(connection.execute("SELECT name, sql FROM sqlite_master"))


def _require_schema(connection: sqlite3.Connection, directory: Path) -> None:
    """Raise `CorruptedDatabaseError` unless there are these tables and no triggers, views or others."""
    if _schema_of(connection) != _SCHEMA:
        raise CorruptedDatabaseError(directory, "its tables are not those of a replay store")
