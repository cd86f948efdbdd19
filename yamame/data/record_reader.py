"""Reads a replay database in a child process, since a corrupted LMDB page can kill the process that reads it.

This file is also the program of the child process, which imports nothing but `lmdb`. Its output are frames: kind 1,
bytes of the key 4, bytes of the value 4, key, value.
"""

import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import lmdb

_FRAME = struct.Struct(">BII")
_ID = struct.Struct(">Q")
_MAX_TABLES = 5


class EntryKind(IntEnum):
    """Kind of a `StoredEntry`."""

    RECORD = 0
    TAG = 1
    """Value of a `RecordTag`; tags come before all records."""
    REASON = 2
    """Why a record was quarantined."""
    PROBLEM = 3
    """Why records cannot be read."""
    COUNTER = 4
    """A value of the table of counters."""


@dataclass(frozen=True, kw_only=True)
class StoredEntry:
    """One entry of a database."""

    kind: EntryKind
    key: bytes
    value: bytes


def read_records_in_subprocess(directory: Path) -> Iterator[StoredEntry]:
    """Yield all readable entries, and a `PROBLEM` for what is unreadable; other processes may write meanwhile."""
    command = [sys.executable, "-I", __file__, str(directory)]
    num_records = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        try:
            while len(header := child.stdout.read(_FRAME.size)) == _FRAME.size:
                kind, key_bytes, value_bytes = _FRAME.unpack(header)
                key, value = child.stdout.read(key_bytes), child.stdout.read(value_bytes)
                if len(value) < value_bytes:
                    break
                num_records += kind == EntryKind.RECORD
                yield StoredEntry(kind=EntryKind(kind), key=key, value=value)
        except GeneratorExit:
            child.kill()
            raise
    if child.returncode:
        code = child.returncode
        ended = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        problem = f"a corrupted page: its reader {ended} after {num_records} records"
        yield StoredEntry(kind=EntryKind.PROBLEM, key=b"", value=problem.encode())


def _main(directory: str) -> None:
    try:
        environment = lmdb.open(directory, readonly=True, create=False, max_dbs=_MAX_TABLES)
    except lmdb.Error as error:
        _write(EntryKind.PROBLEM, b"", f"no readable database ({error})".encode())
        return
    with environment:
        _write_table(environment, "tags", EntryKind.TAG)
        _write_table(environment, "reasons", EntryKind.REASON)
        _write_table(environment, "counters", EntryKind.COUNTER)
        _write_records(environment)


def _write_table(environment: lmdb.Environment, name: str, kind: EntryKind) -> None:
    try:
        with suppress(lmdb.NotFoundError):  # its creation was interrupted
            table = environment.open_db(name.encode(), create=False)
            with environment.begin() as transaction:
                for key, value in transaction.cursor(table):
                    _write(kind, key, value)
    except lmdb.Error as error:
        _write(EntryKind.PROBLEM, b"", f"the table {name!r} cannot be read ({error})".encode())


def _write_records(environment: lmdb.Environment) -> None:
    """Write records in ascending order of keys, each read in a transaction of its own.

    After an unreadable page the search continues at the next id, then 2, 4, 8, ... ids further.
    """
    try:
        table = environment.open_db(b"records", create=False)
    except lmdb.NotFoundError:
        return
    except lmdb.Error as error:
        _write(EntryKind.PROBLEM, b"", f"the table 'records' cannot be read ({error})".encode())
        return
    start, step = b"", 1
    while True:
        try:
            with environment.begin() as transaction:
                cursor = transaction.cursor(table)
                if not cursor.set_range(start):
                    return
                key, value = cursor.item()
            if key < start:
                raise lmdb.CorruptedError("keys are out of order")
        except lmdb.Error as error:
            first = int.from_bytes(start[: _ID.size].ljust(_ID.size, b"\0"), "big") + (len(start) > _ID.size)
            problem = f"records {first} to {first + step - 1} cannot be read ({error})"
            _write(EntryKind.PROBLEM, b"", problem.encode())
            if first + step >= 1 << 63:
                return
            start, step = _ID.pack(first + step), 2 * step
            continue
        _write(EntryKind.RECORD, key, value)
        start, step = key + b"\0", 1


def _write(kind: EntryKind, key: bytes, value: bytes) -> None:
    sys.stdout.buffer.write(_FRAME.pack(kind, len(key), len(value)) + key + value)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    _main(sys.argv[1])
