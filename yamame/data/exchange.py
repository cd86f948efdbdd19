"""Minari datasets out of runs, and into them."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TypeVar

from yamame.data.source import DataSource, task_spec_of
from yamame.records.errors import UserError
from yamame.replay.examine import iter_valid_trajectories
from yamame.replay.minari.export import ExportResult, export_trajectories
from yamame.replay.minari.read import read_trajectories
from yamame.replay.store import LMDBReplayStore
from yamame.replay.tables import RecordTag
from yamame.run.session import read_config

_EPISODES_AT_ONCE = 64
_Item = TypeVar("_Item")


def export_run(path: Path, name_or_directory: str) -> ExportResult:
    """All good trajectories of a run as a Minari dataset; the run may train meanwhile."""
    source, run = _of_a_run(path)
    task = task_spec_of(run)
    return export_trajectories(iter_valid_trajectories(source.store, task.schema), task, name_or_directory)


def import_into(path: Path, dataset: str, *, protected: bool) -> int:
    """Add a dataset's episodes to a run's store; how many. Nothing is added unless all of them fit.

    The run may train meanwhile, and takes them up at its next round. They are no part of its own past, so that
    resuming it does not take them out again.
    """
    source, run = _of_a_run(path)
    task, replay = task_spec_of(run), read_config(run).replay
    for _ in read_trajectories(dataset, task):
        pass
    count = 0
    with LMDBReplayStore(
        source.store,
        capacity_trajectories=replay.capacity_trajectories,
        capacity_bytes=replay.capacity_bytes,
        cache_bytes=0,
        max_bytes=replay.max_disk_bytes,
        compression_level=replay.compression_level,
        schema=task.schema,
    ) as store:
        for trajectories in _batched(read_trajectories(dataset, task), _EPISODES_AT_ONCE):
            mark = RecordTag.PROTECTED if protected else RecordTag.IMPORTED
            count += len(store.extend(trajectories, mark=mark))
    return count


def _of_a_run(path: Path) -> tuple[DataSource, Path]:
    source = DataSource.from_path(path)
    if source.run is None:
        raise UserError(f"{path} belongs to no run that says what its environment is like: give a run directory")
    return source, source.run


def _batched(items: Iterator[_Item], size: int) -> Iterator[list[_Item]]:
    while batch := list(islice(items, size)):
        yield batch
