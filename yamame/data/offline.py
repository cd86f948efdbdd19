"""The store of a run's offline data: copies of other runs' trajectories and of Minari datasets."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

from yamame.data.database import is_store
from yamame.data.minari import is_dataset, read_trajectories
from yamame.data.sampler import ReplayConfig
from yamame.data.schema import TaskSpec
from yamame.data.store import ReplayStore
from yamame.data.trajectory import Trajectory
from yamame.data.verify import iter_valid_trajectories
from yamame.errors import UserError

_TRAJECTORIES_PER_TRANSACTION = 64
_NO_LIMIT = 1 << 62


def open_offline_store(
    directory: Path,
    *,
    sources: Sequence[str],
    task: TaskSpec,
    replay: ReplayConfig,
    find_stores: Callable[[Path], Sequence[Path]],
    may_copy: bool,
) -> ReplayStore:
    """Open the store of a run's offline data; in a new run, copy the data into it.

    The run does not depend on its sources afterwards and never modifies them. Corrupted records are skipped.

    Args:
        directory: Of the store.
        sources: Run directories, replay stores, and names or directories of Minari datasets.
        task: All trajectories must match it.
        replay: Cache and compression of the store.
        find_stores: Returns the replay stores of a run directory; none if it is not one.
        may_copy: Whether the run is new.

    Raises:
        UserError: If a source does not exist, does not match the task, or is empty; of a run that is not new, if the
            store is.
    """
    store = ReplayStore(
        directory,
        capacity_trajectories=_NO_LIMIT,
        cache_bytes=replay.cache_bytes,
        compression_level=replay.compression_level,
        schema=task.schema,
    )
    if store.total_appended:
        return store
    try:
        if not may_copy:  # the sources may have other data today
            raise UserError(f"{directory} is missing or empty: restore it, or train a new run")
        for source in sources:
            before = len(store)
            trajectories = _read_source(source, task, find_stores)
            while some := list(islice(trajectories, _TRAJECTORIES_PER_TRANSACTION)):
                store.extend(some)
            if len(store) == before:
                raise UserError(f"{source} holds no trajectories to learn from")
        store.mark_checkpoint()
    except BaseException:
        store.close()
        raise
    return store


def _read_source(source: str, task: TaskSpec, find_stores: Callable[[Path], Sequence[Path]]) -> Iterator[Trajectory]:
    path = Path(source)
    stores = [path] if is_store(path) else find_stores(path)
    if stores:
        return chain.from_iterable(_read_store(store, task) for store in stores)
    if is_dataset(source):
        return read_trajectories(source, task)
    raise UserError(f"{source} is no run, no replay store and no Minari dataset on this machine")


def _read_store(directory: Path, task: TaskSpec) -> Iterator[Trajectory]:
    schema = task.schema
    for trajectory in iter_valid_trajectories(directory, None):
        if problem := schema.validation_error(trajectory):
            raise UserError(f"the trajectories in {directory} do not match this task: {problem}")
        yield trajectory
