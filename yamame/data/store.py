"""`ReplayStore`: durable first-in-first-out storage of trajectories in one SQLite file.

A killed process loses at most what it was appending, and so does a power failure.

Evicted trajectories are not sampled any more but stay on disk for `retained_checkpoints` further checkpoints, so that a
resumed run restores exactly what was stored at any of its last `retained_checkpoints` checkpoints:

    checkpoint:  store.mark_checkpoint(), and save store.total_appended
    resume:      store.rollback(total_appended - 1)

Records that cannot be learned from are quarantined when they are read, with the reason, and counted.
"""

import threading
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import numpy as np

from yamame.data.codec import CorruptedRecordError, encode, frozen_copy, named_arrays
from yamame.data.database import CorruptedDatabaseError, Database, RecordTag, counter, next_id
from yamame.data.eviction import EvictionPolicy
from yamame.data.schema import TrajectorySchema, consistency_error, decode_valid
from yamame.data.trajectory import CompressedFrames, Trajectory

_ARRAY_OVERHEAD_BYTES = 256
"""Measured cost of an array of a decoded trajectory in addition to its data, significant for tiny trajectories."""


class TrajectoryCache:
    """Decoded trajectories by id, at most `capacity_bytes` in total, least recently used first out. Not thread-safe."""

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.num_bytes = 0
        self._entries: OrderedDict[int, tuple[Trajectory, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, trajectory_id: int) -> Trajectory | None:
        """Return a trajectory, which becomes the most recently used; None if it is not cached."""
        entry = self._entries.get(trajectory_id)
        if entry is None:
            return None
        self._entries.move_to_end(trajectory_id)
        return entry[0]

    def put(self, trajectory_id: int, trajectory: Trajectory) -> None:
        """Cache a trajectory, unless it is larger than the whole cache."""
        self.discard(trajectory_id)
        leaves: list[np.ndarray | CompressedFrames] = [
            *named_arrays(trajectory).values(),
            *trajectory.lazy_observation.values(),
        ]
        size = sum(leaf.nbytes + _ARRAY_OVERHEAD_BYTES for leaf in leaves)
        if size > self.capacity_bytes:
            return
        self._entries[trajectory_id] = (trajectory, size)
        self.num_bytes += size
        while self.num_bytes > self.capacity_bytes:
            _, (_, dropped_bytes) = self._entries.popitem(last=False)
            self.num_bytes -= dropped_bytes

    def discard(self, trajectory_id: int) -> None:
        """Remove a trajectory if it is cached."""
        entry = self._entries.pop(trajectory_id, None)
        if entry is not None:
            self.num_bytes -= entry[1]


class ReplayStore:
    """Trajectories by id: the newest within the capacities, and all protected ones.

    Ids count up from 0 and are never reused. Thread-safe. Several stores may have a directory open, in one process or
    in several, and see each other's changes.

    Args:
        directory: Of the database; created if it does not exist.
        capacity_trajectories: Maximum number of trajectories that are not protected.
        capacity_bytes: Maximum size of their records in total, compressed; 0: no limit. The file grows to about twice
            the capacities, because of `retained_checkpoints`, and never shrinks.
        cache_bytes: Maximum memory for decoded trajectories.
        compression_level: zstd level of new records.
        retained_checkpoints: Number of checkpoints to which `rollback` can return.
        schema: That trajectories must match to be read; None: they must only be consistent.

    Raises:
        UserError: If the directory cannot be opened or is corrupted, or its disk is full.
    """

    def __init__(
        self,
        directory: Path,
        *,
        capacity_trajectories: int,
        capacity_bytes: int = 0,
        cache_bytes: int,
        compression_level: int = 1,
        retained_checkpoints: int = 1,
        schema: TrajectorySchema | None = None,
    ) -> None:
        self.directory = directory
        self.capacity_trajectories = capacity_trajectories
        self.cache = TrajectoryCache(cache_bytes)
        self._eviction = EvictionPolicy(capacity_trajectories=capacity_trajectories, capacity_bytes=capacity_bytes)
        self._schema = schema
        self._compression_level = compression_level
        self._database = Database(directory)
        self._lock = threading.RLock()
        self._oldest_at_checkpoints: deque[int] = deque(maxlen=retained_checkpoints)
        self._evicted_since_checkpoint = self._evicted_bytes_since_checkpoint = 0
        self._num_unreadable = 0
        try:
            self._load()
        except BaseException:
            self._database.close()
            raise

    def __len__(self) -> int:
        with self._lock:
            self._refresh()
            return len(self._eviction)

    def __enter__(self) -> "ReplayStore":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def total_appended(self) -> int:
        """Number of trajectories ever appended: the next id."""
        with self._database.read() as reader:
            return next_id(reader)

    @property
    def num_corrupted(self) -> int:
        """Number of corrupted records found so far."""
        with self._database.read() as reader:
            (quarantined,) = reader.execute("SELECT count(*) FROM quarantined JOIN records USING (id)").fetchone()
        return quarantined + self._num_unreadable

    def append(self, trajectory: Trajectory) -> int:
        """Store a trajectory and return its id; evict the oldest beyond the capacity."""
        return self.extend([trajectory])[0]

    def extend(self, trajectories: Sequence[Trajectory]) -> list[int]:
        """Store trajectories in one transaction and return their ids."""
        records = [encode(trajectory, compression_level=self._compression_level) for trajectory in trajectories]
        with self._lock:
            ids = self.extend_records(records)
            if self.cache.capacity_bytes:
                for record_id, trajectory in zip(ids, trajectories, strict=True):
                    if record_id in self._eviction.active and not self._validation_error(trajectory):
                        self.cache.put(record_id, frozen_copy(trajectory))
        return ids

    def extend_records(self, records: Iterable[bytes], *, tag: RecordTag | None = None) -> list[int]:
        """Store encoded trajectories in one transaction, all of them or none, and return their ids."""
        with self._lock:
            self._refresh()
            with self._database.write() as transaction:
                sizes = transaction.append(records, tag)
            evicted = self._eviction.add(sizes, protected=tag is RecordTag.PROTECTED)
            self._evicted_since_checkpoint += len(evicted)
            self._evicted_bytes_since_checkpoint += sum(self._eviction.evicted[record_id] for record_id in evicted)
            self._discard_cached(evicted)
            self._delete(self._eviction.deletable(), are_evicted=True)
        return list(sizes)

    def room(self) -> tuple[int, int | None]:
        """Return how many trajectories and bytes can be added without a loss; see `EvictionPolicy.room`."""
        with self._lock:
            self._refresh()
            return self._eviction.room()

    def ids(self) -> tuple[int, ...]:
        """Ids of all stored trajectories, oldest first."""
        with self._lock:
            self._refresh()
            return self._eviction.ids()

    def get(self, trajectory_id: int, *, lazy: bool = False) -> Trajectory:
        """Return a trajectory, which may be shared and has read-only arrays; if `lazy`, images may stay compressed.

        Evicted trajectories can be read as long as they are on disk.

        Raises:
            CorruptedRecordError: If it cannot be decoded or does not match the schema; it is then quarantined.
            KeyError: If there is no such id, or it is quarantined.
        """
        with self._lock:
            trajectory = self.cache.get(trajectory_id)
        if trajectory is not None and (lazy or not trajectory.lazy_observation):
            return trajectory
        try:
            trajectory = decode_valid(self._read(trajectory_id), self._schema, lazy=lazy)
        except CorruptedRecordError as error:
            with self._lock:
                self._quarantine({trajectory_id: str(error)})
            raise CorruptedRecordError(f"trajectory {trajectory_id} in {self.directory}: {error}") from error
        except CorruptedDatabaseError as error:
            with self._lock:
                self._num_unreadable += 1
                self._eviction.remove([trajectory_id])
            raise CorruptedRecordError(f"trajectory {trajectory_id}: {error}") from error
        with self._lock:
            self.cache.put(trajectory_id, trajectory)
        return trajectory

    def missing(self, ids: Iterable[int]) -> tuple[list[int], list[int]]:
        """Return which ids are not stored: those that nothing accounts for, then those that are known to be gone.

        Known are quarantined ones, those that were evicted and deleted, and those that a repair could not recover.
        """
        with self._lock:
            self._refresh()
            gone = set(ids).difference(self._eviction.ids(), self._eviction.evicted)
        with self._database.read() as reader:
            deleted_before = counter(reader, "deleted_before")
            quarantined = {record_id for (record_id,) in reader.execute("SELECT id FROM quarantined")}
        known = {record_id for record_id in gone if record_id < deleted_before or record_id in quarantined}
        return sorted(gone - known), sorted(known)

    def has_evicted(self, first_id: int) -> bool:
        """Return whether the trajectory with this id or a newer one was evicted."""
        with self._lock:
            self._refresh()
            if next(reversed(self._eviction.evicted), -1) >= first_id:
                return True
        with self._database.read() as reader:
            return counter(reader, "deleted_before") > first_id

    def rollback(self, last_id: int) -> int:
        """Delete trajectories newer than `last_id`, restore those that they evicted; return the number of deleted ones.

        The ids are then those of the time when `last_id` was the newest, unless more than `retained_checkpoints`
        checkpoints or appends of more than the capacity came in between. Tagged trajectories stay.
        """
        with self._lock:
            with self._database.read() as reader:
                query = "SELECT id FROM records WHERE id > ? AND tag IS NULL AND id NOT IN (SELECT id FROM quarantined)"
                newer = [record_id for (record_id,) in reader.execute(query, (last_id,))]
            self._delete(newer)
            self._load()
            return len(newer)

    @property
    def needs_checkpoint(self) -> bool:
        """Whether evictions since the last checkpoint may soon delete what a checkpoint needs."""
        with self._lock:
            parts, capacity_bytes = (self._oldest_at_checkpoints.maxlen or 0) + 1, self._eviction.capacity_bytes
            too_many = self._evicted_since_checkpoint * parts >= self.capacity_trajectories
            return too_many or 0 < capacity_bytes <= self._evicted_bytes_since_checkpoint * parts

    def mark_checkpoint(self) -> None:
        """Retain the current trajectories for a checkpoint; delete those of checkpoints that are not retained."""
        with self._lock:
            oldest, active = self._oldest_at_checkpoints, self._eviction.active
            if len(oldest) == oldest.maxlen:
                needless = [record_id for record_id in self._eviction.evicted if record_id < oldest[0]]
                self._delete(needless, are_evicted=True)
            oldest.append(next(iter(active)) if active else self.total_appended)
            self._evicted_since_checkpoint = self._evicted_bytes_since_checkpoint = 0
            self._database.empty_log()

    def close(self) -> None:
        """Close the directory. Idempotent."""
        self._database.close()

    def _load(self, *, evicted: Collection[int] = ()) -> None:
        query = (
            "SELECT records.id, id_copy, tag, length(record) FROM records LEFT JOIN quarantined USING (id) "
            "WHERE reason IS NULL ORDER BY records.id"
        )
        with self._database.read() as reader:
            rows = reader.execute(query).fetchall()
        if corrupted := [record_id for record_id, id_copy, _, _ in rows if id_copy != record_id]:
            self._quarantine(dict.fromkeys(corrupted, "its id is corrupted"))
        sizes = {record_id: size or 0 for record_id, id_copy, _, size in rows if id_copy == record_id}
        protected = {record_id for record_id, _, tag, _ in rows if tag == RecordTag.PROTECTED.value}
        self._eviction.reset(sizes, protected=protected & sizes.keys(), evicted=evicted)

    def _refresh(self) -> None:
        """Load the changes of others."""
        if self._database.changed_externally():
            before = {*self._eviction.ids(), *self._eviction.evicted}
            self._load(evicted=self._eviction.evicted)
            self._discard_cached(before - {*self._eviction.ids(), *self._eviction.evicted})
            self._discard_cached(self._eviction.evicted)

    def _read(self, record_id: int) -> object:
        query = "SELECT record FROM records WHERE id = ?1 AND id_copy = ?1 AND ?1 NOT IN (SELECT id FROM quarantined)"
        with self._database.read() as reader:
            row = reader.execute(query, (record_id,)).fetchone()
        if row is None:
            raise KeyError(record_id)
        return row[0]

    def _validation_error(self, trajectory: Trajectory) -> str:
        return consistency_error(trajectory) if self._schema is None else self._schema.validation_error(trajectory)

    def _delete(self, ids: Sequence[int], *, are_evicted: bool = False) -> None:
        if not ids:
            return
        with self._database.write() as transaction:
            transaction.delete(ids)
            if are_evicted:
                transaction.set_counter("deleted_before", max(ids) + 1)
        self._eviction.remove(ids)
        self._discard_cached(ids)

    def _discard_cached(self, ids: Iterable[int]) -> None:
        for record_id in ids:
            self.cache.discard(record_id)

    def _quarantine(self, reasons: Mapping[int, str]) -> None:
        with self._database.write() as transaction:
            transaction.quarantine(reasons.items())
        self._eviction.remove(reasons.keys())
