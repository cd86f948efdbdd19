"""A program of its own: prints what a replay database holds, though its pages may be damaged.

A damaged page can kill the process that reads it. So forks of this process read, and where one dies the next goes on
behind the place. Nothing but `lmdb` is imported, and no thread runs: so forking is quick and safe.

What is printed are frames: kind 1, bytes of the key 4, bytes of the value 4, key, value.
"""

import mmap
import os
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from functools import partial

import lmdb

FRAME = struct.Struct(">BII")
_ID = struct.Struct(">Q")
_MAX_IDS = 1 << 32
"""Larger ones are damage."""


class Kind(IntEnum):
    """What a frame tells."""

    RECORD = 0
    MARK = 1
    REASON = 2
    """Why a record was set aside."""
    PROBLEM = 3
    """Why the record of a key, or with an empty key any record, cannot be read."""
    NEXT_ID = 4
    """The id that comes next, as far as can be known; without a key."""


def main(directory: str) -> None:
    """Print marks, the reasons of what was set aside, the next id, and records."""
    _in_a_fork(lambda: _print_marks(directory))
    _in_a_fork(lambda: _print_reasons(directory))
    keys, whole = _listed(directory)
    next_id = _next_id(directory, keys)
    _print(Kind.NEXT_ID, b"", _ID.pack(next_id))
    if not whole:
        keys = sorted({*keys, *map(_ID.pack, range(next_id))})
        if not keys:
            _print(Kind.PROBLEM, b"", b"the table of records cannot be read")
    place = mmap.mmap(-1, _ID.size)
    place[:] = _ID.pack(0)
    while keys and not _in_a_fork(partial(_print_records, directory, keys, place)):
        died_at = _ID.unpack(place[:])[0]
        _print(Kind.PROBLEM, keys[died_at], b"a damaged page")
        keys = keys[died_at + 1 :]
        place[:] = _ID.pack(0)


def _print_records(directory: str, keys: list[bytes], place: mmap.mmap) -> None:
    with _opened(directory) as environment:
        table = environment.open_db(b"records", create=False)
        for number, key in enumerate(keys):
            place[:] = _ID.pack(number)
            try:
                with environment.begin() as transaction:
                    record = transaction.get(key, db=table)
            except lmdb.Error as error:
                _print(Kind.PROBLEM, key, str(error).encode())
                continue
            if record is not None:
                _print(Kind.RECORD, key, record)


def _print_marks(directory: str) -> None:
    with _opened(directory) as environment, environment.begin() as transaction:
        for key, mark in _items(environment, transaction, b"marks"):
            _print(Kind.MARK, key, mark)


def _print_reasons(directory: str) -> None:
    with _opened(directory) as environment, environment.begin() as transaction:
        reasons = dict(_items(environment, transaction, b"reasons"))
        for key, _ in _items(environment, transaction, b"damaged"):
            _print(Kind.REASON, key, reasons.get(key, b""))


def _items(environment: lmdb.Environment, transaction: lmdb.Transaction, name: bytes) -> list[tuple[bytes, bytes]]:
    """What a table holds, nothing where an older version made none."""
    try:
        table = environment.open_db(name, transaction, create=False)
        return [(bytes(key), bytes(value)) for key, value in transaction.cursor(table)]
    except lmdb.NotFoundError:
        return []


def _listed(directory: str) -> tuple[list[bytes], bool]:
    """The keys of the records as far as they can be listed, and whether these are all."""

    def work() -> None:
        with _opened(directory) as environment, suppress(lmdb.NotFoundError):
            table = environment.open_db(b"records", create=False)
            with environment.begin(table) as transaction:
                for key in transaction.cursor().iternext(values=False):
                    _print(Kind.RECORD, key, b"")

    answer, whole = _answer(work)
    keys: list[bytes] = []
    place = 0
    while place < len(answer):
        _, length, _ = FRAME.unpack_from(answer, place)
        keys.append(answer[place + FRAME.size : place + FRAME.size + length])
        place += FRAME.size + length
    return keys, whole


def _next_id(directory: str, keys: list[bytes]) -> int:
    """An id that is above all others, as far as can be known."""

    def work() -> None:
        with _opened(directory) as environment, suppress(lmdb.NotFoundError):
            table = environment.open_db(b"counters", create=False)
            with environment.begin(table) as transaction:
                os.write(sys.stdout.fileno(), transaction.get(b"next_id", default=b""))

    ids = [_ID.unpack(key)[0] for key in keys if len(key) == _ID.size]
    counted = _answer(work)[0]
    count = _ID.unpack(counted)[0] if len(counted) == _ID.size else 0
    return max([number + 1 for number in [*ids, count - 1] if number < _MAX_IDS], default=0)


def _opened(directory: str) -> lmdb.Environment:
    return lmdb.open(directory, readonly=True, create=False, max_dbs=3)


def _answer(work: Callable[[], None]) -> tuple[bytes, bool]:
    """What work prints in a fork, and whether it came to its end."""
    read_end, write_end = os.pipe()
    process = os.fork()
    if not process:
        os.close(read_end)
        os.dup2(write_end, sys.stdout.fileno())
        _work_and_exit(work)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        answer = pipe.read()
    return answer, os.waitpid(process, 0)[1] == 0


def _in_a_fork(work: Callable[[], None]) -> bool:
    """Whether work came to its end in a fork."""
    process = os.fork()
    if not process:
        _work_and_exit(work)
    return os.waitpid(process, 0)[1] == 0


def _work_and_exit(work: Callable[[], None]) -> None:
    try:
        work()
        os._exit(0)
    finally:
        os._exit(1)


def _print(kind: Kind, key: bytes, value: bytes) -> None:
    frame = memoryview(FRAME.pack(kind, len(key), len(value)) + key + value)
    while frame:
        frame = frame[os.write(sys.stdout.fileno(), frame) :]


if __name__ == "__main__":
    main(sys.argv[1])
