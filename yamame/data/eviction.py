"""`EvictionPolicy`: first-in-first-out eviction of stored trajectories, by number and by bytes."""

from collections import deque
from collections.abc import Collection, Mapping


class SizedQueue:
    """Ids from the oldest to the newest, with their sizes in bytes."""

    def __init__(self, sizes: Mapping[int, int]) -> None:
        self.ids: deque[int] = deque(sizes)
        self.sizes = dict(sizes)
        self.num_bytes = sum(sizes.values())

    def __len__(self) -> int:
        return len(self.ids)

    def extend(self, sizes: Mapping[int, int]) -> None:
        """Append newer ids."""
        self.ids.extend(sizes)
        self.sizes.update(sizes)
        self.num_bytes += sum(sizes.values())

    def pop_oldest(self) -> dict[int, int]:
        """Remove the oldest id and return it with its size."""
        record_id = self.ids.popleft()
        size = self.sizes.pop(record_id)
        self.num_bytes -= size
        return {record_id: size}

    def remove(self, ids: Collection[int]) -> None:
        """Remove ids, if present; fast if they are the oldest."""
        removed = {record_id for record_id in ids if record_id in self.sizes}
        while removed and self.ids[0] in removed:
            removed -= self.pop_oldest().keys()
        if removed:
            self.ids = deque(record_id for record_id in self.ids if record_id not in removed)
            self.num_bytes -= sum(self.sizes.pop(record_id) for record_id in removed)


class EvictionPolicy:
    """Ids and sizes of all trajectories on disk: active, protected, or evicted but not deleted yet.

    The newest `capacity_trajectories` are active, fewer if they exceed `capacity_bytes` (0: no limit), but at least
    one. Protected ones count toward neither limit. The owner deletes on disk what is removed here. Not thread-safe.
    """

    def __init__(self, *, capacity_trajectories: int, capacity_bytes: int) -> None:
        self.capacity_trajectories = capacity_trajectories
        self.capacity_bytes = capacity_bytes
        self.active, self.evicted = SizedQueue({}), SizedQueue({})
        self.protected: set[int] = set()
        self._ids: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self.active) + len(self.protected)

    def ids(self) -> tuple[int, ...]:
        """Ids of active and protected trajectories, oldest first."""
        if self._ids is None:
            active = self.active.ids
            self._ids = tuple(sorted([*active, *self.protected])) if self.protected else tuple(active)
        return self._ids

    def reset(
        self, sizes: Mapping[int, int], *, protected: Collection[int], evicted: Collection[int] = ()
    ) -> list[int]:
        """Set what is on disk, by ascending ids; return ids that are evicted in addition to `evicted`."""
        self.protected = set(protected)
        before = set(evicted) - self.protected
        ordinary = {record_id: size for record_id, size in sizes.items() if record_id not in self.protected}
        self.evicted = SizedQueue({record_id: size for record_id, size in ordinary.items() if record_id in before})
        self.active = SizedQueue({record_id: size for record_id, size in ordinary.items() if record_id not in before})
        self._ids = None
        return self._evict()

    def add(self, sizes: Mapping[int, int], *, protected: bool) -> list[int]:
        """Add new ids, larger than all others; return ids that they evict."""
        self._ids = None
        if protected:
            self.protected.update(sizes)
        else:
            self.active.extend(sizes)
        return self._evict()

    def deletable(self) -> list[int]:
        """Return the oldest evicted ids beyond the capacities, which limit evicted ids too."""
        count, num_bytes = len(self.evicted), self.evicted.num_bytes
        found: list[int] = []
        for record_id in self.evicted.ids:
            if count <= self.capacity_trajectories and (not self.capacity_bytes or num_bytes <= self.capacity_bytes):
                break
            found.append(record_id)
            count -= 1
            num_bytes -= self.evicted.sizes[record_id]
        return found

    def oldest(self, num_bytes: int) -> list[int]:
        """Return the oldest unprotected ids, evicted ones first, with at least `num_bytes` in total if possible."""
        found: list[int] = []
        for queue in (self.evicted, self.active):
            for record_id in queue.ids:
                if num_bytes <= 0:
                    return found
                found.append(record_id)
                num_bytes -= queue.sizes[record_id]
        return found

    def remove(self, ids: Collection[int]) -> None:
        """Remove ids that were deleted on disk."""
        self.evicted.remove(ids)
        self.active.remove(ids)
        self.protected.difference_update(ids)
        self._ids = None

    def _evict(self) -> list[int]:
        surplus: dict[int, int] = {}
        while len(self.active) > self.capacity_trajectories or (
            0 < self.capacity_bytes < self.active.num_bytes and len(self.active) > 1
        ):
            surplus |= self.active.pop_oldest()
        if surplus:
            self.evicted.extend(surplus)
            self._ids = None
        return list(surplus)
