"""`EvictionPolicy`: first-in-first-out eviction of stored trajectories, by number and by bytes."""

from collections import OrderedDict
from collections.abc import Collection, Mapping


class EvictionPolicy:
    """Ids and sizes of all trajectories on disk: active, protected, or evicted but not deleted yet.

    The newest `capacity_trajectories` are active, fewer if they exceed `capacity_bytes` (0: no limit), but at least
    one. Protected ones count toward neither limit. The owner deletes on disk what is removed here. Not thread-safe.
    """

    def __init__(self, *, capacity_trajectories: int, capacity_bytes: int) -> None:
        self.capacity_trajectories = capacity_trajectories
        self.capacity_bytes = capacity_bytes
        self.active: OrderedDict[int, int] = OrderedDict()
        """Sizes in bytes by id, from the oldest to the newest."""
        self.evicted: OrderedDict[int, int] = OrderedDict()
        self.protected: set[int] = set()
        self._ids: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self.active) + len(self.protected)

    def ids(self) -> tuple[int, ...]:
        """Ids of active and protected trajectories, oldest first."""
        if self._ids is None:
            self._ids = tuple(sorted([*self.active, *self.protected]))
        return self._ids

    def reset(
        self, sizes: Mapping[int, int], *, protected: Collection[int], evicted: Collection[int] = ()
    ) -> list[int]:
        """Set what is on disk, by ascending ids; return ids that are evicted in addition to `evicted`."""
        self.protected = set(protected)
        before = set(evicted)
        self.active, self.evicted = OrderedDict(), OrderedDict()
        for record_id, size in sizes.items():
            if record_id not in self.protected:
                queue = self.evicted if record_id in before else self.active
                queue[record_id] = size
        self._ids = None
        return self._evict()

    def add(self, sizes: Mapping[int, int], *, protected: bool) -> list[int]:
        """Add new ids, larger than all others; return ids that they evict."""
        self._ids = None
        if protected:
            self.protected.update(sizes)
        else:
            self.active.update(sizes)
        return self._evict()

    def room(self) -> tuple[int, int | None]:
        """Return how many trajectories and bytes can be added so that all of them are active and none is deletable.

        None: bytes have no limit.
        """
        capacity, limit = self.capacity_trajectories, self.capacity_bytes
        count = min(capacity, 2 * capacity - len(self.active) - len(self.evicted))
        if not limit:
            return count, None
        stored = sum(self.active.values()) + sum(self.evicted.values())
        largest = max(self.active.values(), default=0)  # the last one to be evicted frees more than is needed
        return count, min(limit, 2 * limit - stored - largest)

    def deletable(self) -> list[int]:
        """Return the oldest evicted ids beyond the capacities, which limit evicted ids too."""
        count, num_bytes = len(self.evicted), sum(self.evicted.values())
        found: list[int] = []
        for record_id, size in self.evicted.items():
            if count <= self.capacity_trajectories and (not self.capacity_bytes or num_bytes <= self.capacity_bytes):
                break
            found.append(record_id)
            count -= 1
            num_bytes -= size
        return found

    def remove(self, ids: Collection[int]) -> None:
        """Remove ids that were deleted on disk."""
        for record_id in ids:
            self.evicted.pop(record_id, None)
            self.active.pop(record_id, None)
        self.protected.difference_update(ids)
        self._ids = None

    def _evict(self) -> list[int]:
        surplus: list[int] = []
        num_bytes = sum(self.active.values())
        while len(self.active) > self.capacity_trajectories or (
            0 < self.capacity_bytes < num_bytes and len(self.active) > 1
        ):
            record_id, size = self.active.popitem(last=False)
            self.evicted[record_id] = size
            num_bytes -= size
            surplus.append(record_id)
        return surplus
