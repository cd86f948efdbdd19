"""`LMDBReplayStore`: durable trajectories, first in first out, in one embedded crash-safe database.

A killed process loses at most what it was appending; a power cut, what came after the last `sync`.

What the capacity pushes out is not sampled any more but stays on disk until `retained_checkpoints + 1` `sync`s after, so that a
resumed run goes back to exactly what was stored at any of its last `retained_checkpoints` checkpoints:

    checkpoint:  store.sync(), and keep store.total_appended
    resume:      store.rollback(total_appended - 1)

What cannot be learned from is set aside where it is met, with the reason: it is counted, and it stops nothing.
"""

import threading
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType

import lmdb
import numpy as np

from yamame.data.codec import CorruptedRecordError, decode, encode, frozen_copy, named_arrays
from yamame.data.database import TABLES, CorruptedDatabaseError, Database, DatabaseFullError, RecordTag, Tables, key_of
from yamame.data.eviction import EvictionPolicy
from yamame.data.schema import TrajectorySchema, consistency_error
from yamame.data.trajectory import LazyArray, Trajectory
from yamame.errors import UserError

_ARRAY_OVERHEAD_BYTES = 256
"""What an array of a decoded trajectory costs beside its data (measured), so that tiny trajectories count in full."""


class TrajectoryCache:
    """Decoded trajectories by id, at most `capacity_bytes` of them together. Not thread-safe: its owner locks."""

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.held_bytes = 0
        self._entries: OrderedDict[int, tuple[Trajectory, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, trajectory_id: int) -> Trajectory | None:
        """The trajectory, now the most recently used; None if it is not held."""
        entry = self._entries.get(trajectory_id)
        if entry is None:
            return None
        self._entries.move_to_end(trajectory_id)
        return entry[0]

    def put(self, trajectory_id: int, trajectory: Trajectory) -> None:
        """Hold a trajectory, letting go of the least recently used; one larger than the whole cache is not held."""
        self.discard(trajectory_id)
        leaves: list[np.ndarray | LazyArray] = [
            *named_arrays(trajectory).values(),
            *trajectory.lazy_observation.values(),
        ]
        size = sum(leaf.nbytes + _ARRAY_OVERHEAD_BYTES for leaf in leaves)
        if size > self.capacity_bytes:
            return
        self._entries[trajectory_id] = (trajectory, size)
        self.held_bytes += size
        while self.held_bytes > self.capacity_bytes:
            _, (_, dropped_bytes) = self._entries.popitem(last=False)
            self.held_bytes -= dropped_bytes

    def discard(self, trajectory_id: int) -> None:
        """Let go of a trajectory, held or not."""
        entry = self._entries.pop(trajectory_id, None)
        if entry is not None:
            self.held_bytes -= entry[1]


class LMDBReplayStore:
    """Trajectories by id, the newest within the capacities and all protected ones; implements `ReplayStore`.

    Ids count up from 0 and are never given twice, whatever is evicted, discarded or reopened. Safe to use from
    several threads; a directory is open once in a process, and in as many processes as want it: what others append or
    evict shows in `ids`. `capacity_bytes` (0: no limit) is of records as they are stored, `cache_bytes` of decoded
    trajectories in memory, `max_bytes` of the database file. That grows as needed, holds up to twice the capacity
    for the sake of `retained_checkpoints`, and never shrinks; at its limit the oldest are deleted, whether or not they are still
    needed. With a `form`, only trajectories of that form are ever read.

    Raises `UserError` where the directory cannot be opened, is already open in this process, or its disk is full.
    """

    def __init__(
        self,
        directory: Path,
        *,
        capacity_trajectories: int,
        capacity_bytes: int = 0,
        cache_bytes: int,
        max_bytes: int = 1 << 40,
        compression_level: int = 1,
        retained_checkpoints: int = 1,
        schema: TrajectorySchema | None = None,
    ) -> None:
        self.directory = directory
        self.cache = TrajectoryCache(cache_bytes)
        self.fifo = EvictionPolicy(capacity_trajectories=capacity_trajectories, capacity_bytes=capacity_bytes)
        self._validation_error = consistency_error if schema is None else schema.validation_error
        self._compression_level = compression_level
        self._database = Database(directory, tables=TABLES, max_bytes=max_bytes)
        self._tables = Tables(self._database.tables)
        self._lock = threading.RLock()
        self._oldest_at_syncs: deque[int] = deque(maxlen=retained_checkpoints)
        self._evicted_since_sync = 0
        self._unreadable = 0
        self._load()

    def __len__(self) -> int:
        with self._lock:
            self._follow_others()
            return len(self.fifo)

    def __enter__(self) -> "LMDBReplayStore":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def capacity_trajectories(self) -> int:
        """How many are kept, beside protected ones."""
        return self.fifo.capacity_trajectories

    @property
    def total_appended(self) -> int:
        """How many trajectories were ever appended, those evicted or discarded since included: the next id."""
        return self._database.read(self._tables.next_id)

    @property
    def num_corrupted(self) -> int:
        """How many damaged records were ever found and set aside."""
        of_table = self._database.read(lambda transaction: transaction.stat(self._tables.damaged)["entries"])
        return of_table + self._unreadable

    @property
    def num_protected(self) -> int:
        """How many trajectories are never evicted."""
        return len(self.fifo.protected)

    def append(self, trajectory: Trajectory) -> int:
        """Keep a trajectory; its id. The oldest beyond the capacity are evicted."""
        return self.extend([trajectory])[0]

    def extend(self, trajectories: Sequence[Trajectory], *, mark: RecordTag | None = None) -> list[int]:
        """Keep several in one transaction, all or none; their ids.

        Where they do not fit into the file together, half of them first; `UserError` where a single one does not fit.
        """
        if not trajectories:
            return []
        records = [encode(trajectory, compression_level=self._compression_level) for trajectory in trajectories]
        with self._lock:
            self._follow_others()
            try:
                ids = self._put(records, mark)
            except DatabaseFullError as error:
                if len(records) == 1:
                    raise UserError(
                        f"{error}, and a trajectory of {len(records[0])} bytes does not fit beside what is protected: "
                        "raise --replay.max-disk-bytes"
                    ) from error
                half = len(records) // 2
                return [
                    *self.extend(trajectories[:half], mark=mark),
                    *self.extend(trajectories[half:], mark=mark),
                ]
            if self.cache.capacity_bytes:
                for number, trajectory in zip(ids, trajectories, strict=True):
                    if not self._validation_error(trajectory):
                        self.cache.put(number, frozen_copy(trajectory))
            sizes = {number: len(record) for number, record in zip(ids, records, strict=True)}
            evicted = self.fifo.add(sizes, protected=mark is RecordTag.PROTECTED)
            self._evicted_since_sync += len(evicted)
            self._forget(evicted)
            self._delete(self.fifo.deletable())
        return ids

    def ids(self) -> tuple[int, ...]:
        """Ids of what is kept, oldest first: a snapshot, made once between changes."""
        with self._lock:
            self._follow_others()
            return self.fifo.ids()

    def get(self, trajectory_id: int, *, lazy: bool = False) -> Trajectory:
        """The trajectory of an id; it is shared, and its arrays are read-only. Pictures may stay `on_demand`.

        A record that is damaged, or no trajectory of the store's form, raises `CorruptedRecordError`, once: it is set
        aside, counted, and its id is gone. `KeyError` where there is none; an evicted one can be read as long as it is
        on disk.
        """
        with self._lock:
            trajectory = self.cache.get(trajectory_id)
        if trajectory is not None and (lazy or not trajectory.lazy_observation):
            return trajectory
        try:
            trajectory = self._read_from_disk(trajectory_id, on_demand=lazy)
        except CorruptedRecordError as error:
            self._set_aside(trajectory_id, str(error))
            raise CorruptedRecordError(f"trajectory {trajectory_id} in {self.directory}: {error}") from error
        except CorruptedDatabaseError as error:
            with self._lock:
                self._unreadable += 1
                self.fifo.remove([trajectory_id])
            raise CorruptedRecordError(f"trajectory {trajectory_id}: {error}") from error
        with self._lock:
            self.cache.put(trajectory_id, trajectory)
        return trajectory

    def evict(self, keep: int) -> int:
        """Drop the oldest, from the disk as well, until at most `keep` and the protected are left; how many went."""
        with self._lock:
            dropped = self.fifo.evict(keep)
            self._forget(dropped)
            self._delete(list(self.fifo.evicted.ids))
            return len(dropped)

    def rollback(self, last_id: int) -> int:
        """Drop what is newer than `last_id`, and keep again what that had pushed out; how many were dropped.

        The ids are then those of the time when `last_id` was the newest, unless more than `retained_checkpoints` `sync`s, an
        `evict` or appends of more than the capacity came between. What carries a mark was not the run's own, and stays.
        """
        with self._lock:
            contents = self._database.read(self._tables.contents)
            newer = [number for number in contents.sizes if number > last_id and number not in contents.marks]
            self._delete(newer)
            self._load()
            return len(newer)

    @property
    def needs_checkpoint(self) -> bool:
        """Whether so much was evicted since the last one that some of what a checkpoint needs may soon be deleted."""
        with self._lock:
            held = self._oldest_at_syncs.maxlen or 0
            return self._evicted_since_sync * (held + 1) >= self.fifo.capacity_trajectories

    def sync(self) -> None:
        """Make all that was appended outlive a power cut; free what had been evicted `retained_checkpoints` before."""
        with self._lock:
            held, kept = self._oldest_at_syncs, self.fifo.kept.ids
            if len(held) == held.maxlen:
                self._delete([number for number in self.fifo.evicted.ids if number < held[0]])
            held.append(kept[0] if kept else self.total_appended)
            self._evicted_since_sync = 0
        self._database.sync()

    def close(self) -> None:
        """Write everything to the disk and let the directory go; harmless when already closed."""
        self._database.close()

    def _load(self, *, evicted: Sequence[int] = ()) -> None:
        contents = self._database.read(self._tables.contents, refresh=True)
        if contents.bad_keys:
            self._set_aside_keys(contents.bad_keys)
        self.fifo.reset(contents.sizes, protected=contents.protected, evicted=evicted)

    def _follow_others(self) -> None:
        """Take notice of what other processes appended, evicted or set aside."""
        if self._database.changed_externally:
            before = {*self.fifo.ids(), *self.fifo.evicted.ids}
            self._load(evicted=self.fifo.evicted.ids)
            self._forget(before - {*self.fifo.ids(), *self.fifo.evicted.ids})
            self._forget(self.fifo.evicted.ids)

    def _read_from_disk(self, number: int, *, on_demand: bool) -> Trajectory:
        def copy(transaction: lmdb.Transaction) -> bytes | None:
            record = transaction.get(key_of(number), db=self._tables.records)
            return None if record is None else bytes(record)

        record = self._database.read(copy)
        if record is None:
            raise KeyError(number)
        trajectory = decode(record, on_demand=on_demand)
        misfit = self._validation_error(trajectory)
        if misfit:
            raise CorruptedRecordError(misfit)
        return trajectory

    def _put(self, records: Sequence[bytes], mark: RecordTag | None) -> list[int]:
        """Store records; the oldest are deleted as long as they do not fit, `DatabaseFullError` where there are none left."""
        num_bytes = sum(map(len, records))
        if num_bytes > self._database.usable_bytes:
            raise DatabaseFullError(f"{self.directory} has a limit of {self._database.max_bytes} bytes")
        while True:
            try:
                return self._database.write(lambda transaction: self._tables.put(transaction, records, mark))
            except DatabaseFullError:
                oldest = self.fifo.oldest(num_bytes)
                if not oldest:
                    raise
                self._delete(oldest)
                self._touch()

    def _touch(self) -> None:
        """Commit without a change: LMDB uses again what was freed by the last transaction but one."""
        self._database.write(lambda transaction: self._tables.put(transaction, [], None), allow_reserve=True)

    def _delete(self, ids: Sequence[int]) -> None:
        def delete(transaction: lmdb.Transaction) -> None:
            self._tables.delete(transaction, ids)
            self._tables.put(transaction, [], None)

        if ids:
            self._database.write(delete, allow_reserve=True)
            self.fifo.remove(ids)
            self._forget(ids)

    def _forget(self, ids: Iterable[int]) -> None:
        for number in ids:
            self.cache.discard(number)

    def _set_aside(self, number: int, reason: str) -> None:
        with self._lock:
            self._set_aside_keys([key_of(number)], reason)
            self.fifo.remove([number])

    def _set_aside_keys(self, keys: Sequence[bytes], reason: str = "its key is no id") -> None:
        def move(transaction: lmdb.Transaction, *, keep_bytes: bool) -> None:
            for key in keys:
                self._tables.quarantine(transaction, key, reason, keep_bytes=keep_bytes)
            self._tables.put(transaction, [], None)

        try:
            self._database.write(lambda transaction: move(transaction, keep_bytes=True), allow_reserve=True)
        except DatabaseFullError:
            self._database.write(lambda transaction: move(transaction, keep_bytes=False), allow_reserve=True)
