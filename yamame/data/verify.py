"""Verification and repair of replay stores, whatever state their files are in."""

import shutil
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from yamame.data.codec import CorruptedRecordError
from yamame.data.database import (
    MAX_ID,
    CorruptedDatabaseError,
    Database,
    RecordTag,
    Row,
    counter,
    is_store,
    next_id,
    open_read_only,
    translated_errors,
)
from yamame.data.schema import TrajectorySchema, decode_valid
from yamame.data.trajectory import Trajectory
from yamame.errors import UserError
from yamame.runs.directory import REPLAY_FILE
from yamame.runs.durable_files import sync_folder

_MAX_PROBLEMS = 20
"""Of pages, that are named."""


@dataclass(frozen=True, kw_only=True)
class CorruptedRecord:
    """A record that cannot be learned from."""

    record_id: str
    """Its id; empty if the reason is about several records."""
    reason: str

    def __str__(self) -> str:
        return f"trajectory {self.record_id}: {self.reason}" if self.record_id else self.reason


@dataclass(frozen=True, kw_only=True)
class ValidRecord:
    """A record that can be learned from."""

    record_id: int
    tag: RecordTag | None
    content: bytes
    trajectory: Trajectory


@dataclass(kw_only=True)
class VerifyReport:
    """Result of `verify_store`."""

    num_valid: int = 0
    corrupted: list[CorruptedRecord] = field(default_factory=list)
    """Corrupted pages, and records that are still sampled from: the next reader will quarantine them."""
    quarantined: list[CorruptedRecord] = field(default_factory=list)
    """Set aside by an earlier reader."""
    missing: list[int] = field(default_factory=list)
    """Ids that the latest checkpoint needs and that nothing accounts for."""
    lost: list[int] = field(default_factory=list)
    """Ids that the latest checkpoint needs and that a repair could not recover."""


def require_store(directory: Path) -> Path:
    """Return the path if it is a replay store; otherwise raise `UserError`."""
    if not is_store(directory):
        raise UserError(f"{directory} holds no replay store (it has no {REPLAY_FILE})")
    return directory


def verify_store(directory: Path, schema: TrajectorySchema | None, *, needed_ids: Collection[int] = ()) -> VerifyReport:
    """Check every page and every record; changes none, and other processes may write meanwhile.

    Args:
        directory: Of the store.
        schema: That trajectories must match; None: they must only be consistent.
        needed_ids: Trajectories that the latest checkpoint needs.
    """
    report = VerifyReport()
    reader = StoreReader(directory, schema)
    report.corrupted += reader.page_problems()
    for record in reader.records():
        if isinstance(record, ValidRecord):
            report.num_valid += 1
        elif record not in report.corrupted:
            report.corrupted.append(record)
    report.quarantined = reader.quarantined
    report.missing, report.lost = reader.missing(needed_ids)
    return report


def iter_valid_trajectories(directory: Path, schema: TrajectorySchema | None) -> Iterator[Trajectory]:
    """Yield all valid trajectories, oldest first; other processes may write meanwhile."""
    for record in StoreReader(directory, schema).records():
        if isinstance(record, ValidRecord):
            yield record.trajectory


class StoreReader:
    """Reads a store in any state. Raises `UserError` if there is none, or its file cannot be opened.

    Each record is read by a query of its own, so that other processes can write meanwhile.
    """

    def __init__(self, directory: Path, schema: TrajectorySchema | None) -> None:
        self.directory = require_store(directory)
        self.schema = schema
        self.quarantined: list[CorruptedRecord] = []
        """Those that `records` has found."""
        self.next_id = self.deleted_before = 0
        """Counters, once `records` has read them."""
        self._reasons: dict[int, str] = {}
        """By quarantined id, without those that `records` has found: by the end, those that a repair has lost."""
        self._found: set[int] = set()

    def page_problems(self) -> Iterator[CorruptedRecord]:
        """Yield what SQLite finds wrong with the pages."""
        try:
            with open_read_only(self.directory) as connection:
                problems = [str(row[0]) for row in connection.execute(f"PRAGMA integrity_check({_MAX_PROBLEMS})")]
        except CorruptedDatabaseError as error:
            problems = [error.problem]
        for problem in problems:
            if problem != "ok":
                reason = " ".join(problem.removeprefix("*** in database main ***").split())
                yield CorruptedRecord(record_id="", reason=reason)

    def records(self) -> Iterator[ValidRecord | CorruptedRecord]:
        """Yield all records that are not quarantined, oldest first, and what cannot be read."""
        try:
            with open_read_only(self.directory) as connection:
                yield from self._read_other_tables(connection)
                yield from self._read_records(connection)
        except CorruptedDatabaseError as error:
            yield CorruptedRecord(record_id="", reason=error.problem)

    def missing(self, ids: Collection[int]) -> tuple[list[int], list[int]]:
        """Return which ids nothing accounts for, and which a repair has lost."""
        absent = {record_id for record_id in ids if record_id >= self.deleted_before} - self._found
        return sorted(absent - self._reasons.keys()), sorted(absent & self._reasons.keys())

    def _read_other_tables(self, connection: sqlite3.Connection) -> Iterator[CorruptedRecord]:
        try:
            with translated_errors(self.directory):
                self._reasons = dict(connection.execute("SELECT id, reason FROM quarantined"))
                self.deleted_before = counter(connection, "deleted_before")
                self.next_id = next_id(connection)
        except CorruptedDatabaseError as error:
            yield CorruptedRecord(record_id="", reason=f"counters and reasons cannot be read ({error.problem})")

    def _read_records(self, connection: sqlite3.Connection) -> Iterator[ValidRecord | CorruptedRecord]:
        """Yield records. After a page that cannot be read go on with the next id, then 2, 4, 8, ... ids further."""
        start, step = 0, 1
        query = "SELECT id, id_copy, tag FROM records WHERE id >= ? ORDER BY id LIMIT 1"
        while start < MAX_ID:
            try:
                with translated_errors(self.directory):
                    row = connection.execute(query, (start,)).fetchone()
            except CorruptedDatabaseError as error:
                problem = f"records {start} to {start + step - 1} cannot be read ({error.problem})"
                yield CorruptedRecord(record_id="", reason=problem)
                start, step = start + step, 2 * step
                continue
            if row is None:
                return
            record_id, id_copy, tag = row
            start, step = max(start, record_id) + 1, 1
            if id_copy != record_id:
                yield CorruptedRecord(record_id=str(record_id), reason="its id is corrupted")
                continue
            self._found.add(record_id)
            if (reason := self._reasons.pop(record_id, None)) is not None:
                self.quarantined.append(CorruptedRecord(record_id=str(record_id), reason=reason))
                continue
            yield from self._read_record(connection, record_id, RecordTag.from_value(tag))

    def _read_record(
        self, connection: sqlite3.Connection, record_id: int, tag: RecordTag | None
    ) -> Iterator[ValidRecord | CorruptedRecord]:
        """Yield a record, unless another process has deleted it meanwhile."""
        try:
            with translated_errors(self.directory):
                rows = connection.execute("SELECT record FROM records WHERE id = ?", (record_id,)).fetchall()
            for (content,) in rows:
                trajectory = decode_valid(content, self.schema)
                yield ValidRecord(record_id=record_id, tag=tag, content=content, trajectory=trajectory)
        except (CorruptedRecordError, CorruptedDatabaseError) as error:
            yield CorruptedRecord(record_id=str(record_id), reason=getattr(error, "problem", str(error)))


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
    num_recovered, lost = _copy_valid_records(StoreReader(directory, schema), building, needed_ids)
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
    source: StoreReader, target: Path, needed_ids: Collection[int]
) -> tuple[int, list[CorruptedRecord]]:
    """Return the number of copied records, and the lost ones."""
    num_copied = 0
    lost: list[CorruptedRecord] = []
    pending: list[Row] = []
    with closing(Database(target)) as database:
        for record in source.records():
            if isinstance(record, CorruptedRecord):
                lost.append(record)
                continue
            num_copied += 1
            pending.append((record.record_id, record.content, record.tag))
            if len(pending) == _RECORDS_PER_TRANSACTION:
                _write(database, pending)
        _write(database, pending)
        lost += source.quarantined
        missing, known = source.missing(needed_ids)
        named = {record.record_id for record in lost}
        absent = [str(record_id) for record_id in missing if str(record_id) not in named]
        lost += [CorruptedRecord(record_id=record_id, reason="it is missing") for record_id in absent]
        reasons = {int(record.record_id): record.reason for record in lost if record.record_id}
        reasons = {record_id: reason for record_id, reason in reasons.items() if record_id < _MAX_NEXT_ID}
        reasons |= dict.fromkeys(known, "it was lost in an earlier repair")
        with database.write() as transaction:
            transaction.quarantine(reasons.items())
            next_ids = [source.next_id if source.next_id < _MAX_NEXT_ID else 0, *(each + 1 for each in reasons)]
            transaction.set_counter("next_id", max(next_ids))
            transaction.set_counter("deleted_before", min(source.deleted_before, max(next_ids)))
    return num_copied, lost


def _write(database: Database, rows: list[Row]) -> None:
    with database.write() as transaction:
        transaction.insert(rows)
    rows.clear()
