"""`LMDBStore`: durable trajectories, first in first out, in one embedded crash-safe database.

A killed process loses at most what it was appending; a power cut, what came after the last `sync`.

What the capacity pushes out is not sampled any more but stays on disk until the second `sync` after, so that a
resumed run goes back to exactly what was stored at its last checkpoint:

    checkpoint:  store.sync(), and keep store.total_appended
    resume:      store.discard_after(total_appended - 1)
"""

import struct
import threading
from collections import deque
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from types import TracebackType

import lmdb

from yamame.records.trajectory import Trajectory
from yamame.replay.cache import TrajectoryCache
from yamame.replay.codec import DamagedRecordError, decode, encode, snapshot
from yamame.replay.database import Database

_ID = struct.Struct(">Q")
_NEXT_ID = b"next_id"


class LMDBStore:
    """Trajectories by id, at most `capacity_trajectories` of them, the newest; implements `TrajectoryStore`.

    Ids count up from 0 and are never given twice, whatever is evicted, discarded or reopened. Safe to use from
    several threads; a directory is open once in a process. `cache_bytes` bounds the decoded trajectories in memory,
    `max_bytes` the database file: it grows as needed, holds up to twice the capacity where `sync` is rare, and never
    shrinks, but space of dropped trajectories is used again.

    Raises `UserError` where the directory cannot be opened, is already open in this process, or is full.
    """

    def __init__(
        self,
        directory: Path,
        *,
        capacity_trajectories: int,
        cache_bytes: int,
        max_bytes: int = 1 << 40,
        compression_level: int = 1,
    ) -> None:
        self.directory = directory
        self.capacity_trajectories = capacity_trajectories
        self.cache = TrajectoryCache(cache_bytes)
        self._compression_level = compression_level
        self._database = Database(directory, tables=["records", "damaged", "counters"], max_bytes=max_bytes)
        self._records, self._damaged, self._counters = self._database.tables.values()
        self._lock = threading.RLock()
        self._oldest_at_last_sync = 0
        self._ids: deque[int] = deque()
        self._evicted: deque[int] = deque()
        self._snapshot: tuple[int, ...] | None = None
        self._load_ids()

    def __len__(self) -> int:
        return len(self._ids)

    def __enter__(self) -> "LMDBStore":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def total_appended(self) -> int:
        """How many trajectories were ever appended, those evicted or discarded since included: the next id."""
        return self._database.read(self._next_id)

    @property
    def damaged(self) -> int:
        """How many damaged records were ever found and set aside."""
        return self._database.read(lambda transaction: transaction.stat(self._damaged)["entries"])

    def append(self, trajectory: Trajectory) -> int:
        """Keep a trajectory; its id. The oldest beyond the capacity is evicted."""
        return self.append_all([trajectory])[0]

    def append_all(self, trajectories: Sequence[Trajectory]) -> list[int]:
        """Keep several in one transaction, all or none; their ids."""
        records = [encode(trajectory, compression_level=self._compression_level) for trajectory in trajectories]
        cached = [snapshot(trajectory) for trajectory in trajectories] if self.cache.capacity_bytes else []
        with self._lock:
            ids = self._database.write(lambda transaction: self._put(transaction, records))
            self._ids.extend(ids)
            self._snapshot = None
            for trajectory_id, trajectory in zip(ids, cached, strict=False):
                self.cache.put(trajectory_id, trajectory)
            self._retire(keep=self.capacity_trajectories)
            self._free(len(self._evicted) - self.capacity_trajectories)
        return ids

    def ids(self) -> tuple[int, ...]:
        """Ids of what is kept, oldest first: a snapshot, made once between changes."""
        with self._lock:
            if self._snapshot is None:
                self._snapshot = tuple(self._ids)
            return self._snapshot

    def read(self, trajectory_id: int) -> Trajectory:
        """The trajectory of an id; it is shared, and its arrays are read-only.

        A damaged record raises `DamagedRecordError`, once: it is set aside, counted, and its id is gone.
        `KeyError` where there is none; an evicted one can be read as long as it is on disk.
        """
        with self._lock:
            trajectory = self.cache.get(trajectory_id)
        if trajectory is not None:
            return trajectory
        record = self._database.read(lambda transaction: transaction.get(_ID.pack(trajectory_id), db=self._records))
        if record is None:
            raise KeyError(trajectory_id)
        try:
            trajectory = decode(bytes(record))
        except DamagedRecordError as error:
            self._set_aside(trajectory_id, bytes(record))
            raise DamagedRecordError(f"trajectory {trajectory_id} in {self.directory}: {error}") from error
        with self._lock:
            self.cache.put(trajectory_id, trajectory)
        return trajectory

    def evict(self, keep: int) -> int:
        """Drop the oldest, from the disk as well, until at most `keep` are left; how many were dropped."""
        with self._lock:
            dropped = self._retire(keep)
            self._free(len(self._evicted))
            return dropped

    def discard_after(self, last_id: int) -> int:
        """Drop what is newer than `last_id`, and keep again what that had pushed out; how many were dropped.

        The ids are then those of the time when `last_id` was the newest, unless two `sync`s, an `evict` or appends of
        more than the capacity came between.
        """
        with self._lock:
            newer = [trajectory_id for trajectory_id in self._ids if trajectory_id > last_id]
            newer += [trajectory_id for trajectory_id in self._evicted if trajectory_id > last_id]
            self._delete(newer)
            self._load_ids()
            return len(newer)

    def sync(self) -> None:
        """Make all that was appended outlive a power cut; free what had been evicted by the `sync` before."""
        with self._lock:
            self._free(sum(trajectory_id < self._oldest_at_last_sync for trajectory_id in self._evicted))
            self._oldest_at_last_sync = self._ids[0] if self._ids else self.total_appended
        self._database.sync()

    def close(self) -> None:
        """Write everything to the disk and let the directory go; harmless when already closed."""
        self._database.close()

    def _load_ids(self) -> None:
        def all_ids(transaction: lmdb.Transaction) -> list[int]:
            keys = transaction.cursor(self._records).iternext(keys=True, values=False)
            return [_ID.unpack(key)[0] for key in keys]

        self._ids = deque(self._database.read(all_ids))
        self._evicted.clear()
        self._snapshot = None
        self._retire(keep=self.capacity_trajectories)

    def _next_id(self, transaction: lmdb.Transaction) -> int:
        return _ID.unpack(transaction.get(_NEXT_ID, default=_ID.pack(0), db=self._counters))[0]

    def _put(self, transaction: lmdb.Transaction, records: list[bytes]) -> list[int]:
        next_id = self._next_id(transaction)
        ids = list(range(next_id, next_id + len(records)))
        for trajectory_id, record in zip(ids, records, strict=True):
            transaction.put(_ID.pack(trajectory_id), record, db=self._records)
        transaction.put(_NEXT_ID, _ID.pack(next_id + len(records)), db=self._counters)
        return ids

    def _retire(self, keep: int) -> int:
        """Stop sampling the oldest beyond `keep`; they stay on disk."""
        surplus = max(0, len(self._ids) - keep)
        for _ in range(surplus):
            trajectory_id = self._ids.popleft()
            self._evicted.append(trajectory_id)
            self.cache.discard(trajectory_id)
            self._snapshot = None
        return surplus

    def _free(self, count: int) -> None:
        """Delete the `count` oldest evicted ones from the disk."""
        if count > 0:
            self._delete(list(islice(self._evicted, count)))
            for _ in range(count):
                self._evicted.popleft()

    def _delete(self, ids: Sequence[int]) -> None:
        def delete(transaction: lmdb.Transaction) -> None:
            for trajectory_id in ids:
                transaction.delete(_ID.pack(trajectory_id), db=self._records)

        if ids:
            self._database.write(delete)
        for trajectory_id in ids:
            self.cache.discard(trajectory_id)

    def _set_aside(self, trajectory_id: int, record: bytes) -> None:
        def move(transaction: lmdb.Transaction) -> None:
            transaction.put(_ID.pack(trajectory_id), record, db=self._damaged)
            transaction.delete(_ID.pack(trajectory_id), db=self._records)

        with self._lock:
            self._database.write(move)
            if trajectory_id in self._ids:
                self._ids.remove(trajectory_id)
                self._snapshot = None
