"""The tables of a replay store, and what is done with them inside a transaction.

    records    id -> a trajectory as bytes               damaged    what was set aside, under the key that it had
    marks      id -> what is special about a record      reasons    the same key -> why, in words
    counters   "next_id" -> the id that comes next

Ids are 8 bytes, big-endian, so that their order is that of the keys. What other programs or failing disks put there is
no reason to fail: a key that is no id is set aside, and a counter that cannot be right is counted anew.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import lmdb

TABLES = ("records", "damaged", "reasons", "marks", "counters")
_ID = struct.Struct(">Q")
_NEXT_ID = b"next_id"
_LARGEST_ID = (1 << 63) - 1


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
    return number if number <= _LARGEST_ID else None


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
