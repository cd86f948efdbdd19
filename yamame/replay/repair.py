"""A new store from what is good in an old one."""

import shutil
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import lmdb

from yamame.replay.careful import Found, read_all
from yamame.replay.careful_child import Kind
from yamame.replay.database import Database
from yamame.replay.examine import CorruptedRecord, check_record, require_store
from yamame.replay.form import TrajectorySchema
from yamame.replay.tables import TABLES, RecordTag, Tables, id_of

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
