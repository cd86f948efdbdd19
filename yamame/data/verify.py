"""Looking at every record of a store, whatever state its file is in."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import lmdb

from yamame.data.codec import CorruptedRecordError, decode
from yamame.data.database import TABLES, Database, RecordTag, Tables, id_of
from yamame.data.salvage import Found, read_all
from yamame.data.salvage_process import Kind
from yamame.data.schema import TrajectorySchema, consistency_error
from yamame.data.trajectory import Trajectory
from yamame.errors import UserError

_DATA = "data.mdb"


@dataclass(frozen=True, kw_only=True)
class CorruptedRecord:
    """A record that cannot be learned from."""

    record_id: str
    """Its id, or the key that it has instead; empty where the reason is about all records."""
    reason: str

    def __str__(self) -> str:
        return f"trajectory {self.record_id}: {self.reason}" if self.record_id else self.reason


@dataclass(kw_only=True)
class VerifyReport:
    """What was found in a store."""

    num_valid: int = 0
    corrupted: list[CorruptedRecord] = field(default_factory=list)
    """Among those that are sampled from: who reads them next will set them aside."""
    quarantined: list[CorruptedRecord] = field(default_factory=list)
    """By those who met them before."""


def require_store(directory: Path) -> Path:
    """The path itself if a database lies there; otherwise `UserError`."""
    if not (directory / _DATA).is_file():
        raise UserError(f"{directory} holds no replay store (it has no {_DATA})")
    return directory


def verify_store(directory: Path, form: TrajectorySchema | None) -> VerifyReport:
    """Read every record and change nothing; processes that write may go on meanwhile."""
    examination = VerifyReport()
    for found in read_all(require_store(directory)):
        if found.kind is Kind.REASON:
            reason = found.value.decode(errors="replace") or "set aside by an older version"
            examination.quarantined.append(CorruptedRecord(record_id=format_key(found.key), reason=reason))
        elif bad := check_record(found, form):
            examination.corrupted.append(bad)
        elif found.kind is Kind.RECORD:
            examination.num_valid += 1
    return examination


def check_record(found: Found, form: TrajectorySchema | None) -> CorruptedRecord | None:
    """What is wrong with a record, if it is one and something is."""
    if found.kind is Kind.PROBLEM:
        return CorruptedRecord(record_id=format_key(found.key), reason=found.value.decode(errors="replace"))
    if found.kind is not Kind.RECORD:
        return None
    if id_of(found.key) is None:
        return CorruptedRecord(record_id=format_key(found.key), reason="its key is no id")
    try:
        trajectory = decode(found.value)
    except CorruptedRecordError as error:
        return CorruptedRecord(record_id=format_key(found.key), reason=str(error))
    misfit = consistency_error(trajectory) if form is None else form.validation_error(trajectory)
    return CorruptedRecord(record_id=format_key(found.key), reason=misfit) if misfit else None


def format_key(key: bytes) -> str:
    """A key as people read it."""
    number = id_of(key)
    return key.hex() if number is None else str(number)


def iter_valid_trajectories(directory: Path, form: TrajectorySchema | None) -> Iterator[Trajectory]:
    """All that can be learned from, oldest first; processes that write may go on meanwhile."""
    for found in read_all(require_store(directory)):
        if found.kind is Kind.RECORD and check_record(found, form) is None:
            yield decode(found.value)


_MAX_BYTES = 1 << 40
_RECORDS_A_TRANSACTION = 64


@dataclass(frozen=True, kw_only=True)
class RepairReport:
    """What became of a store."""

    num_recovered: int
    lost: list[CorruptedRecord]
    backup_path: Path
    """Where the old store is now."""


def repair_store(directory: Path, form: TrajectorySchema | None) -> RepairReport:
    """Put a new store with all good records, under their ids, in the place of the old one, which is renamed.

    No other process may have it open. Whenever this one is killed, the old store is whole under one of the two names,
    and `finish_interrupted_repair` does what is left.
    """
    finish_interrupted_repair(directory)
    building, new = (directory.with_name(f"{directory.name}.{name}") for name in ("building", "repaired"))
    shutil.rmtree(building, ignore_errors=True)
    saved, lost = _rebuild(require_store(directory), building, form)
    building.rename(new)
    old = next(path for n in count(1) if not (path := directory.with_name(f"{directory.name}.damaged-{n}")).exists())
    directory.rename(old)
    new.rename(directory)
    return RepairReport(num_recovered=saved, lost=lost, backup_path=old)


def finish_interrupted_repair(directory: Path) -> None:
    """Put a repaired store in its place, where a killed repair has taken the old one away but not got further."""
    new = directory.with_name(f"{directory.name}.repaired")
    if new.exists() and not directory.exists():
        new.rename(directory)
    shutil.rmtree(new, ignore_errors=True)


def _rebuild(old: Path, new: Path, form: TrajectorySchema | None) -> tuple[int, list[CorruptedRecord]]:
    """Write what is good to a new store; how many records that were, and what was bad."""
    saved, next_id = 0, 0
    lost: list[CorruptedRecord] = []
    marks: dict[bytes, RecordTag | None] = {}
    good: list[Found] = []
    database = Database(new, tables=TABLES, max_bytes=_MAX_BYTES)
    tables = Tables(database.tables)

    def write() -> None:
        def put(transaction: lmdb.Transaction) -> None:
            for record in good:
                tables.put_with_id(transaction, id_of(record.key) or 0, record.value, marks.get(record.key))
            tables.set_next_id(transaction, next_id)

        database.write(put)
        good.clear()

    for found in read_all(old):
        if found.kind is Kind.MARK:
            marks[found.key] = RecordTag.from_value(found.value)
        elif found.kind is Kind.NEXT_ID:
            next_id = id_of(found.value) or 0
        elif bad := check_record(found, form):
            lost.append(bad)
        elif found.kind is Kind.RECORD:
            good.append(found)
            saved += 1
            if len(good) == _RECORDS_A_TRANSACTION:
                write()
    write()
    database.close()
    return saved, lost
