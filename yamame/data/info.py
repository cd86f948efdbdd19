"""What a store holds, in numbers."""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from yamame.data.source import DataSource
from yamame.replay.careful import read_all
from yamame.replay.careful_child import Kind
from yamame.replay.codec import decode
from yamame.replay.examine import check_record
from yamame.replay.tables import RecordTag


@dataclass(frozen=True, kw_only=True)
class StoreInfo:
    """The trajectories that lie on disk, those about to be evicted included."""

    trajectories: int
    steps: int
    tasks: dict[str, int]
    """Task -> number of its trajectories."""
    record_bytes: int
    """Of the trajectories, as they are stored."""
    file_bytes: int
    """Of the whole database."""
    policy_versions: tuple[int, int] | None
    """Updates behind the policy that made the oldest and the newest of them; None where there are none."""
    protected: int
    imported: int
    corrupted: int
    """Records set aside, or to be set aside by who reads them next."""

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return asdict(self)

    def to_text(self) -> str:
        """A line for each."""
        tasks = ", ".join(f"{count:,} of {task or 'no name'}" for task, count in self.tasks.items())
        oldest, newest = self.policy_versions or (0, 0)
        return "\n".join(
            [
                f"trajectories   {self.trajectories:,}" + (f" ({tasks})" if tasks else ""),
                f"steps          {self.steps:,}",
                f"bytes          {self.record_bytes:,} of trajectories, {self.file_bytes:,} of the file",
                f"made by        the policy after {oldest:,} to {newest:,} updates",
                f"protected      {self.protected:,}",
                f"imported       {self.imported:,}",
                f"corrupted      {self.corrupted:,}",
            ]
        )


def collect_info(source: DataSource) -> StoreInfo:
    """Read everything, change nothing; a run may train meanwhile."""
    form = source.schema
    tasks: Counter[str] = Counter()
    versions: list[int] = []
    steps = record_bytes = corrupted = 0
    marks: Counter[RecordTag | None] = Counter()
    for found in read_all(source.store):
        if found.kind is Kind.REASON or check_record(found, form):
            corrupted += 1
        elif found.kind is Kind.MARK:
            marks[RecordTag.from_value(found.value)] += 1
        elif found.kind is Kind.RECORD:
            trajectory = decode(found.value)
            tasks[trajectory.task] += 1
            versions.append(trajectory.policy_version)
            steps += len(trajectory)
            record_bytes += len(found.value)
    return StoreInfo(
        trajectories=len(versions),
        steps=steps,
        tasks=dict(tasks),
        record_bytes=record_bytes,
        file_bytes=(source.store / "data.mdb").stat().st_size,
        policy_versions=(min(versions), max(versions)) if versions else None,
        protected=marks[RecordTag.PROTECTED],
        imported=marks[RecordTag.IMPORTED],
        corrupted=corrupted,
    )
