"""`EvictionPolicy`: first-in-first-out eviction of stored trajectories, by number and by bytes."""

from collections import OrderedDict
from collections.abc import Collection, Mapping
from itertools import chain


class SizedQueue:
    """Sizes in bytes by id, from the oldest to the newest."""

    def __init__(self, sizes: Mapping[int, int]) -> None:
        self.sizes = OrderedDict(sizes)
        self.num_bytes = sum(sizes.values())

    def __len__(self) -> int:
        return len(self.sizes)

    def extend(self, sizes: Mapping[int, int]) -> None:
        """Append newer ids."""
        self.sizes.update(sizes)
        self.num_bytes += sum(sizes.values())

    def pop_oldest(self) -> tuple[int, int]:
        """Remove the oldest id; return it and its size."""
        record_id, size = self.sizes.popitem(last=False)
        self.num_bytes -= size
        return record_id, size

    def remove(self, ids: Collection[int]) -> None:
        """Remove ids, if present."""
        self.num_bytes -= sum(self.sizes.pop(record_id, 0) for record_id in ids)


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
            self._ids = tuple(sorted([*self.active.sizes, *self.protected]))
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
        for record_id, size in self.evicted.sizes.items():
            if count <= self.capacity_trajectories and (not self.capacity_bytes or num_bytes <= self.capacity_bytes):
                break
            found.append(record_id)
            count -= 1
            num_bytes -= size
        return found

    def oldest(self, num_bytes: int) -> list[int]:
        """Return the oldest unprotected ids, evicted ones first, with at least `num_bytes` in total if possible."""
        found: list[int] = []
        for record_id, size in chain(self.evicted.sizes.items(), self.active.sizes.items()):
            if num_bytes <= 0:
                break
            found.append(record_id)
            num_bytes -= size
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
            record_id, size = self.active.pop_oldest()
            surplus[record_id] = size
        if surplus:
            self.evicted.extend(surplus)
            self._ids = None
        return list(surplus)
