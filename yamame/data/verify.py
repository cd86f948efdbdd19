"""Verification and repair of replay stores, whatever state their files are in."""

import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import lmdb

from yamame.data.codec import MAX_DECODED_BYTES, CorruptedRecordError, decode
from yamame.data.database import (
    DATABASE_FILE,
    DELETED_BEFORE,
    LOST,
    NEXT_ID,
    Database,
    RecordTag,
    id_of,
    parse_lost,
)
from yamame.data.page_check import check_pages_in_subprocess
from yamame.data.record_reader import EntryKind, StoredEntry, read_records_in_subprocess
from yamame.data.schema import TrajectorySchema, consistency_error
from yamame.data.trajectory import Trajectory
from yamame.errors import UserError
from yamame.runs.durable_files import sync_folder


@dataclass(frozen=True, kw_only=True)
class CorruptedRecord:
    """A record that cannot be learned from."""

    record_id: str
    """Its id, or its key if that is no id; empty if the reason is about several records."""
    reason: str

    def __str__(self) -> str:
        return f"trajectory {self.record_id}: {self.reason}" if self.record_id else self.reason


@dataclass(kw_only=True)
class VerifyReport:
    """Result of `verify_store`."""

    num_valid: int = 0
    corrupted: list[CorruptedRecord] = field(default_factory=list)
    """Still sampled from: the next reader will quarantine them."""
    quarantined: list[CorruptedRecord] = field(default_factory=list)
    """Moved aside by an earlier reader."""
    missing: list[int] = field(default_factory=list)
    """Ids that the latest checkpoint needs and that nothing accounts for."""
    lost: list[int] = field(default_factory=list)
    """Ids that the latest checkpoint needs and that a repair could not recover."""


def require_store(directory: Path) -> Path:
    """Return the path if it is a replay store; otherwise raise `UserError`."""
    if not (directory / DATABASE_FILE).is_file():
        raise UserError(f"{directory} holds no replay store (it has no {DATABASE_FILE})")
    return directory


def verify_store(directory: Path, schema: TrajectorySchema | None, *, needed_ids: Collection[int] = ()) -> VerifyReport:
    """Check every page and every record; modifies nothing, and other processes may write meanwhile.

    Args:
        directory: Of the store.
        schema: That trajectories must match; None: they must only be consistent.
        needed_ids: Trajectories that the latest checkpoint needs.
    """
    report = VerifyReport()
    if problem := check_pages_in_subprocess(require_store(directory)):
        report.corrupted.append(CorruptedRecord(record_id="", reason=problem))
    found = _Ids()
    for entry in read_records_in_subprocess(directory):
        found.add(entry)
        if entry.kind is EntryKind.REASON:
            reason = entry.value.decode(errors="replace")
            report.quarantined.append(CorruptedRecord(record_id=format_key(entry.key), reason=reason))
        elif bad := check_record(entry, schema):
            report.corrupted.append(bad)
        elif entry.kind is EntryKind.RECORD:
            report.num_valid += 1
    report.missing, report.lost = found.missing(needed_ids)
    return report


class _Ids:
    """Ids in a store."""

    def __init__(self) -> None:
        self._present: set[int | None] = set()
        self._lost: set[int] = set()
        self.deleted_before = 0

    def add(self, entry: StoredEntry) -> None:
        """Take the ids of an entry into account."""
        if entry.kind in (EntryKind.RECORD, EntryKind.REASON):
            self._present.add(id_of(entry.key))
        elif entry.kind is EntryKind.COUNTER and entry.key == LOST:
            self._lost = parse_lost(entry.value)
        elif entry.kind is EntryKind.COUNTER and entry.key == DELETED_BEFORE:
            self.deleted_before = id_of(entry.value) or 0

    def missing(self, ids: Collection[int]) -> tuple[list[int], list[int]]:
        """Return which ids nothing accounts for, and which are known as lost."""
        absent = sorted({record_id for record_id in ids if record_id >= self.deleted_before} - self._present)
        return [each for each in absent if each not in self._lost], [each for each in absent if each in self._lost]


def check_record(entry: StoredEntry, schema: TrajectorySchema | None) -> CorruptedRecord | None:
    """Return what is wrong with an entry; None if it is valid, or neither a record nor a problem."""
    record_id = format_key(entry.key)
    if entry.kind is EntryKind.PROBLEM:
        return CorruptedRecord(record_id=record_id, reason=entry.value.decode(errors="replace"))
    if entry.kind is not EntryKind.RECORD:
        return None
    if id_of(entry.key) is None:
        return CorruptedRecord(record_id=record_id, reason="its key is no id")
    try:
        trajectory = decode(entry.value, max_bytes=MAX_DECODED_BYTES if schema is None else schema.max_bytes)
    except CorruptedRecordError as error:
        return CorruptedRecord(record_id=record_id, reason=str(error))
    problem = consistency_error(trajectory) if schema is None else schema.validation_error(trajectory)
    return CorruptedRecord(record_id=record_id, reason=problem) if problem else None


def format_key(key: bytes) -> str:
    """Format a key as its id, or in hexadecimal if it is no id."""
    record_id = id_of(key)
    return key.hex() if record_id is None else str(record_id)


def iter_valid_trajectories(directory: Path, schema: TrajectorySchema | None) -> Iterator[Trajectory]:
    """Yield all valid trajectories, oldest first; other processes may write meanwhile."""
    for entry in read_records_in_subprocess(require_store(directory)):
        if entry.kind is EntryKind.RECORD and check_record(entry, schema) is None:
            yield decode(entry.value)


_MAX_BYTES = 1 << 40
_MAX_NEXT_ID = 1 << 32
"""A larger counter is taken for corrupted."""
_RECORDS_PER_TRANSACTION = 64


@dataclass(frozen=True, kw_only=True)
class RepairReport:
    """Result of `repair_store`."""

    num_recovered: int
    lost: list[CorruptedRecord]
    backup_path: Path
    """New path of the old store."""


def repair_store(directory: Path, schema: TrajectorySchema | None, *, needed_ids: Collection[int] = ()) -> RepairReport:
    """Replace a store by a new one with its valid records, under the same ids; the old store is renamed.

    Records that are lost, and `needed_ids` that are missing, are known as lost from then on: the run can be resumed.
    No other process may have it open. If this process is killed, the old store is intact under one of the two names,
    and `finish_interrupted_repair` does the rest.
    """
    finish_interrupted_repair(directory)
    building, repaired = (directory.with_name(f"{directory.name}.{name}") for name in ("building", "repaired"))
    shutil.rmtree(building, ignore_errors=True)
    num_recovered, lost = _copy_valid_records(require_store(directory), building, schema, needed_ids)
    building.rename(repaired)
    backups = (directory.with_name(f"{directory.name}.backup-{number}") for number in count(1))
    backup = next(path for path in backups if not path.exists())
    directory.rename(backup)
    repaired.rename(directory)
    sync_folder(directory.parent)
    return RepairReport(num_recovered=num_recovered, lost=lost, backup_path=backup)


def finish_interrupted_repair(directory: Path) -> None:
    """Move a repaired store into place if a killed repair had renamed the old one; otherwise delete it."""
    repaired = directory.with_name(f"{directory.name}.repaired")
    if repaired.exists() and not directory.exists():
        repaired.rename(directory)
    shutil.rmtree(repaired, ignore_errors=True)


def _copy_valid_records(
    source: Path, target: Path, schema: TrajectorySchema | None, needed_ids: Collection[int]
) -> tuple[int, list[CorruptedRecord]]:
    """Return the number of copied records, and the corrupted ones."""
    num_copied, next_id = 0, 0
    lost: list[CorruptedRecord] = []
    tags: dict[bytes, RecordTag | None] = {}
    pending: list[StoredEntry] = []
    found = _Ids()
    database = Database(target, max_bytes=_MAX_BYTES)

    def write() -> None:
        def put(transaction: lmdb.Transaction) -> None:
            for entry in pending:
                database.tables.put_with_id(transaction, id_of(entry.key) or 0, entry.value, tags.get(entry.key))
            database.tables.set_next_id(transaction, next_id)

        database.write(put)
        pending.clear()

    for entry in read_records_in_subprocess(source):
        next_id = max(next_id, _next_id_from(entry))
        bad = check_record(entry, schema)
        if not bad and entry.kind is not EntryKind.REASON:  # quarantined records are not copied
            found.add(entry)
        if entry.kind is EntryKind.TAG:
            tags[entry.key] = RecordTag.from_value(entry.value)
        elif bad:
            lost.append(bad)
        elif entry.kind is EntryKind.RECORD:
            pending.append(entry)
            num_copied += 1
            if len(pending) == _RECORDS_PER_TRANSACTION:
                write()
    write()
    named = {int(bad.record_id) for bad in lost if bad.record_id.isdecimal()}
    missing, known = found.missing(needed_ids)
    lost += [CorruptedRecord(record_id=str(each), reason="it is missing") for each in missing if each not in named]

    def write_losses(transaction: lmdb.Transaction) -> None:
        database.tables.set_deleted_before(transaction, found.deleted_before)
        database.tables.add_lost(transaction, {*named, *missing, *known})

    database.write(write_losses)
    database.close()
    return num_copied, lost


def _next_id_from(entry: StoredEntry) -> int:
    """Lower bound of the next id that follows from an entry."""
    next_id = 0
    if entry.kind is EntryKind.COUNTER and entry.key == NEXT_ID:
        next_id = id_of(entry.value) or 0
    elif entry.kind is EntryKind.RECORD and (record_id := id_of(entry.key)) is not None:
        next_id = record_id + 1
    return next_id if next_id < _MAX_NEXT_ID else 0
