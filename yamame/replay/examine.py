"""Looking at every record of a store, whatever state its file is in."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from yamame.records.errors import UserError
from yamame.records.trajectory import Trajectory
from yamame.replay.careful import Found, read_all
from yamame.replay.careful_child import Kind
from yamame.replay.codec import CorruptedRecordError, decode
from yamame.replay.form import TrajectorySchema, consistency_error
from yamame.replay.tables import id_of

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
