"""Looking at every record of a store, whatever state its file is in."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from yamame.records.errors import UserError
from yamame.records.trajectory import Trajectory
from yamame.replay.careful import Found, read_all
from yamame.replay.careful_child import Kind
from yamame.replay.codec import DamagedRecordError, decode
from yamame.replay.form import TrajectoryForm, inconsistency
from yamame.replay.tables import id_of

_DATA = "data.mdb"


@dataclass(frozen=True, kw_only=True)
class BadRecord:
    """A record that cannot be learned from."""

    name: str
    """Its id, or the key that it has instead; empty where the reason is about all records."""
    reason: str

    def __str__(self) -> str:
        return f"trajectory {self.name}: {self.reason}" if self.name else self.reason


@dataclass(kw_only=True)
class Examination:
    """What was found in a store."""

    good: int = 0
    bad: list[BadRecord] = field(default_factory=list)
    """Among those that are sampled from: who reads them next will set them aside."""
    set_aside: list[BadRecord] = field(default_factory=list)
    """By those who met them before."""


def require_store(directory: Path) -> Path:
    """The path itself if a database lies there; otherwise `UserError`."""
    if not (directory / _DATA).is_file():
        raise UserError(f"{directory} holds no replay store (it has no {_DATA})")
    return directory


def examine(directory: Path, form: TrajectoryForm | None) -> Examination:
    """Read every record and change nothing; processes that write may go on meanwhile."""
    examination = Examination()
    for found in read_all(require_store(directory)):
        if found.kind is Kind.REASON:
            reason = found.value.decode(errors="replace") or "set aside by an older version"
            examination.set_aside.append(BadRecord(name=name_of(found.key), reason=reason))
        elif bad := problem_of(found, form):
            examination.bad.append(bad)
        elif found.kind is Kind.RECORD:
            examination.good += 1
    return examination


def problem_of(found: Found, form: TrajectoryForm | None) -> BadRecord | None:
    """What is wrong with a record, if it is one and something is."""
    if found.kind is Kind.PROBLEM:
        return BadRecord(name=name_of(found.key), reason=found.value.decode(errors="replace"))
    if found.kind is not Kind.RECORD:
        return None
    if id_of(found.key) is None:
        return BadRecord(name=name_of(found.key), reason="its key is no id")
    try:
        trajectory = decode(found.value)
    except DamagedRecordError as error:
        return BadRecord(name=name_of(found.key), reason=str(error))
    misfit = inconsistency(trajectory) if form is None else form.misfit(trajectory)
    return BadRecord(name=name_of(found.key), reason=misfit) if misfit else None


def name_of(key: bytes) -> str:
    """A key as people read it."""
    number = id_of(key)
    return key.hex() if number is None else str(number)


def good_trajectories(directory: Path, form: TrajectoryForm | None) -> Iterator[Trajectory]:
    """All that can be learned from, oldest first; processes that write may go on meanwhile."""
    for found in read_all(require_store(directory)):
        if found.kind is Kind.RECORD and problem_of(found, form) is None:
            yield decode(found.value)
