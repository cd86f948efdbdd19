"""Minari datasets out of runs, and into them."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TypeVar

from yamame.data.source import Source, task_of
from yamame.records.errors import UserError
from yamame.replay.examine import good_trajectories
from yamame.replay.minari.export import Exported, export
from yamame.replay.minari.read import read
from yamame.replay.store import LMDBStore
from yamame.replay.tables import Mark
from yamame.run.session import read_config

_EPISODES_AT_ONCE = 64
_Item = TypeVar("_Item")


def export_run(path: Path, name_or_directory: str) -> Exported:
    """All good trajectories of a run as a Minari dataset; the run may train meanwhile."""
    source, run = _of_a_run(path)
    task = task_of(run)
    return export(good_trajectories(source.store, task.form), task, name_or_directory)


def import_into(path: Path, dataset: str, *, protected: bool) -> int:
    """Add a dataset's episodes to a run's store; how many. Nothing is added unless all of them fit.

    The run may train meanwhile, and takes them up at its next round. They are no part of its own past, so that
    resuming it does not take them out again.
    """
    source, run = _of_a_run(path)
    task, replay = task_of(run), read_config(run).replay
    for _ in read(dataset, task):
        pass
    count = 0
    with LMDBStore(
        source.store,
        capacity_trajectories=replay.capacity_trajectories,
        capacity_bytes=replay.capacity_bytes,
        cache_bytes=0,
        max_bytes=replay.max_bytes,
        compression_level=replay.compression_level,
        form=task.form,
    ) as store:
        for trajectories in _batched(read(dataset, task), _EPISODES_AT_ONCE):
            mark = Mark.PROTECTED if protected else Mark.IMPORTED
            count += len(store.append_all(trajectories, mark=mark))
    return count


def _of_a_run(path: Path) -> tuple[Source, Path]:
    source = Source.at(path)
    if source.run is None:
        raise UserError(f"{path} belongs to no run that says what its environment is like: give a run directory")
    return source, source.run


def _batched(items: Iterator[_Item], size: int) -> Iterator[list[_Item]]:
    while batch := list(islice(items, size)):
        yield batch
