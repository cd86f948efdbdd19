"""Access to the trajectories of a run."""

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from yamame.algorithms.selection import algorithm_name
from yamame.data.codec import encode
from yamame.data.database import RecordTag, is_store
from yamame.data.minari import ExportResult, export_trajectories, read_trajectories
from yamame.data.schema import TrajectorySchema
from yamame.data.store import ReplayStore
from yamame.data.trajectory import Trajectory
from yamame.data.verify import StoreReader, ValidRecord, iter_valid_trajectories, require_store
from yamame.errors import UserError, describe_error, wrap_os_errors
from yamame.runs.checkpoint import load_latest_checkpoint
from yamame.runs.directory import CHECKPOINTS, CONFIG, REPLAY, REPLAY_FILE, replay_dirs, resolve_run_dir
from yamame.training.run_files import read_config, read_task_spec
from yamame.training.state import needed_ids


@dataclass(frozen=True, kw_only=True)
class DataSource:
    """A replay store and its run, if it has one."""

    store: Path
    run: Path | None

    @staticmethod
    def from_path(path: Path) -> "DataSource":
        """Return the source in a run or store directory.

        Raises `UserError` if it is neither, and for a run with several stores.
        """
        if is_store(path):
            return DataSource(store=path, run=path.parent if (path.parent / CONFIG).is_file() else None)
        run = resolve_run_dir(path)
        if len(stores := replay_dirs(run)) > 1:
            named = ", ".join(map(str, stores))
            raise UserError(f"{run} has a replay store per learner: give one of {named}")
        return DataSource(store=require_store(run / REPLAY), run=run)

    @property
    def schema(self) -> TrajectorySchema | None:
        """Schema of its trajectories; None without a run."""
        return None if self.run is None else read_task_spec(self.run).schema

    def needed_ids(self) -> list[int]:
        """Return the ids of the trajectories that the latest intact checkpoint needs; none without one."""
        if self.run is None:
            return []
        rank = next((rank for rank, store in enumerate(replay_dirs(self.run)) if store.samefile(self.store)), None)
        try:
            return [] if rank is None else needed_ids(load_latest_checkpoint(self.run / CHECKPOINTS), rank)
        except UserError:
            return []


def iter_trajectories(run: Path) -> Iterator[Trajectory]:
    """Yield the valid trajectories in the replay store of a run, the oldest first."""
    return iter_valid_trajectories(DataSource.from_path(run).store, read_task_spec(run).schema)


@dataclass(frozen=True, kw_only=True)
class StoreInfo:
    """Summary of the trajectories on disk, those about to be evicted included."""

    trajectories: int
    steps: int
    tasks: dict[str, int]
    """Task -> number of its trajectories."""
    record_bytes: int
    """Size of the encoded trajectories."""
    file_bytes: int
    """Size of the database file."""
    policy_versions: tuple[int, int] | None
    """Smallest and largest number of updates of the policies that collected them; None without trajectories."""
    protected: int
    imported: int
    corrupted: int
    """Quarantined records, and those that the next reader will quarantine."""

    def to_text(self) -> str:
        """Return a line per field."""
        tasks = ", ".join(f"{count:,} of {task or 'unnamed'}" for task, count in self.tasks.items())
        oldest, newest = self.policy_versions or (0, 0)
        return "\n".join(
            [
                f"trajectories   {self.trajectories:,}" + (f" ({tasks})" if tasks else ""),
                f"steps          {self.steps:,}",
                f"bytes          {self.record_bytes:,} of trajectories, {self.file_bytes:,} of the file",
                f"policies       after {oldest:,} to {newest:,} updates",
                f"protected      {self.protected:,}",
                f"imported       {self.imported:,}",
                f"corrupted      {self.corrupted:,}",
            ]
        )


def collect_info(source: DataSource) -> StoreInfo:
    """Read all records without changing any. A run may train meanwhile."""
    reader = StoreReader(source.store, source.schema)
    tasks: Counter[str] = Counter()
    versions: list[int] = []
    steps = record_bytes = corrupted = 0
    tags: Counter[RecordTag | None] = Counter()
    for record in reader.records():
        if isinstance(record, ValidRecord):
            tags[record.tag] += 1
            tasks[record.trajectory.task] += 1
            versions.append(record.trajectory.policy_version)
            steps += len(record.trajectory)
            record_bytes += len(record.content)
        else:
            corrupted += 1
    return StoreInfo(
        trajectories=len(versions),
        steps=steps,
        tasks=dict(tasks),
        record_bytes=record_bytes,
        file_bytes=(source.store / REPLAY_FILE).stat().st_size,
        policy_versions=(min(versions), max(versions)) if versions else None,
        protected=tags[RecordTag.PROTECTED],
        imported=tags[RecordTag.IMPORTED],
        corrupted=corrupted + len(reader.quarantined),
    )


def export_run(path: Path, name_or_directory: str) -> ExportResult:
    """Write all valid trajectories of a run to a Minari dataset. The run may train meanwhile."""
    source, run = _require_run(path)
    task = read_task_spec(run)
    return export_trajectories(iter_valid_trajectories(source.store, task.schema), task, name_or_directory)


def import_into(path: Path, dataset: str, *, protected: bool) -> int:
    """Add the episodes of a dataset to the store of a run and return their number; all of them or none.

    The run may train meanwhile and samples them from its next iteration on. Resuming the run keeps them.

    Raises:
        UserError: If an episode does not match the task, or the store has no room for all of them beside what the
            latest checkpoint needs.
    """
    source, run = _require_run(path)
    task, config = read_task_spec(run), read_config(run)
    if config.algorithm.is_on_policy:
        name = algorithm_name(config.algorithm)
        raise UserError(f"{run} trains with {name}, which learns from the newest trials of its own policy alone")
    if config.offline.is_offline_only:
        raise UserError(f"{run} learns from the data that it copied at its start alone: train a new run on both")
    replay = config.replay
    with (
        wrap_os_errors(source.store),
        tempfile.TemporaryFile(dir=source.store) as file,  # it can be larger than the memory
        ReplayStore(
            source.store,
            capacity_trajectories=replay.capacity_trajectories,
            capacity_bytes=replay.capacity_bytes,
            cache_bytes=0,
            schema=task.schema,
        ) as store,
    ):
        sizes: list[int] = []
        for number, trajectory in enumerate(read_trajectories(dataset, task)):
            try:
                record = encode(trajectory, compression_level=replay.compression_level)
            except Exception as error:  # the dataset's own fields can be anything
                raise UserError(f"episode {number} of {dataset} cannot be stored ({describe_error(error)})") from error
            sizes.append(file.write(record))
        if not protected:
            _require_room(store, dataset, sizes)
        file.seek(0)
        tag = RecordTag.PROTECTED if protected else RecordTag.IMPORTED
        return len(store.extend_records(map(file.read, sizes), tag=tag))


def _require_room(store: ReplayStore, dataset: str, sizes: Sequence[int]) -> None:
    """Raise `UserError` if records of these sizes would delete others that the latest checkpoint may need."""
    room, room_bytes = store.room()
    if len(sizes) > room:
        found, has, setting = f"{len(sizes):,} episodes", f"{max(0, room):,}", "trajectories"
    elif room_bytes is not None and sum(sizes) > room_bytes:
        found, has, setting = f"{sum(sizes):,} bytes", f"{max(0, room_bytes):,}", "bytes"
    else:
        return
    raise UserError(
        f"{dataset} has {found}, and the replay has room for {has} beside what its checkpoint needs: pass --protected, "
        f"or train a new run with a larger --replay.capacity-{setting}"
    )


def _require_run(path: Path) -> tuple[DataSource, Path]:
    source = DataSource.from_path(path)
    if source.run is None:
        raise UserError(f"{path} belongs to no run, so its task is unknown: give a run directory")
    return source, source.run
