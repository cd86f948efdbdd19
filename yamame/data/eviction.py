"""`Fifo`: which stored trajectories are sampled from and which are evicted, by number and by bytes."""

from collections import deque
from collections.abc import Collection, Mapping


class SizedQueue:
    """Ids from the oldest to the newest, with their sizes."""

    def __init__(self, sizes: Mapping[int, int]) -> None:
        self.ids: deque[int] = deque(sizes)
        self.sizes = dict(sizes)
        self.num_bytes = sum(sizes.values())

    def __len__(self) -> int:
        return len(self.ids)

    def extend(self, sizes: Mapping[int, int]) -> None:
        """Put newer ones behind all others."""
        self.ids.extend(sizes)
        self.sizes.update(sizes)
        self.num_bytes += sum(sizes.values())

    def pop_oldest(self) -> dict[int, int]:
        """Take the oldest out, with its size."""
        number = self.ids.popleft()
        size = self.sizes.pop(number)
        self.num_bytes -= size
        return {number: size}

    def remove(self, ids: Collection[int]) -> None:
        """Take these out, where they are in; quick where they are the oldest."""
        gone = {number for number in ids if number in self.sizes}
        while gone and self.ids[0] in gone:
            gone -= self.pop_oldest().keys()
        if gone:
            self.ids = deque(number for number in self.ids if number not in gone)
            self.num_bytes -= sum(self.sizes.pop(number) for number in gone)


class EvictionPolicy:
    """What lies on disk, by id, and how large it is: kept, protected, or evicted but not deleted yet.

    The newest `capacity_trajectories` are kept, fewer where they have more than `capacity_bytes` together (0: no limit
    by bytes), but never fewer than one. Protected ones count towards neither limit. Knows nothing of the disk: its
    owner deletes there what is taken out here. Not thread-safe.
    """

    def __init__(self, *, capacity_trajectories: int, capacity_bytes: int) -> None:
        self.capacity_trajectories = capacity_trajectories
        self.capacity_bytes = capacity_bytes
        self.kept, self.evicted = SizedQueue({}), SizedQueue({})
        self.protected: set[int] = set()
        self._ids: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self.kept) + len(self.protected)

    def ids(self) -> tuple[int, ...]:
        """Of what is kept or protected, oldest first: a snapshot, made once between changes."""
        if self._ids is None:
            self._ids = tuple(sorted([*self.kept.ids, *self.protected])) if self.protected else tuple(self.kept.ids)
        return self._ids

    def reset(
        self, sizes: Mapping[int, int], *, protected: Collection[int], evicted: Collection[int] = ()
    ) -> list[int]:
        """Begin anew with what lies on disk, by rising ids; `evicted` ones stay so. Ids of what else is evicted."""
        self.protected = set(protected)
        before = set(evicted) - self.protected
        ordinary = {number: size for number, size in sizes.items() if number not in self.protected}
        self.evicted = SizedQueue({number: size for number, size in ordinary.items() if number in before})
        self.kept = SizedQueue({number: size for number, size in ordinary.items() if number not in before})
        self._ids = None
        return self.evict()

    def add(self, sizes: Mapping[int, int], *, protected: bool) -> list[int]:
        """New ones, with ids above all others; ids of those that they push out."""
        self._ids = None
        if protected:
            self.protected.update(sizes)
        else:
            self.kept.extend(sizes)
        return self.evict()

    def evict(self, keep: int | None = None) -> list[int]:
        """Evict the oldest beyond the capacities, or beyond `keep`; their ids."""
        surplus: dict[int, int] = {}
        while self._is_beyond(keep):
            surplus |= self.kept.pop_oldest()
        if surplus:
            self.evicted.extend(surplus)
            self._ids = None
        return list(surplus)

    def deletable(self) -> list[int]:
        """The oldest evicted ones, as far as there are more of them than may be kept."""
        count, held = len(self.evicted), self.evicted.num_bytes
        found: list[int] = []
        for number in self.evicted.ids:
            if count <= self.capacity_trajectories and (not self.capacity_bytes or held <= self.capacity_bytes):
                break
            found.append(number)
            count -= 1
            held -= self.evicted.sizes[number]
        return found

    def oldest(self, num_bytes: int) -> list[int]:
        """The oldest that are not protected, evicted ones first: as few as hold `num_bytes` together, if there are."""
        found: list[int] = []
        for queue in (self.evicted, self.kept):
            for number in queue.ids:
                if num_bytes <= 0:
                    return found
                found.append(number)
                num_bytes -= queue.sizes[number]
        return found

    def remove(self, ids: Collection[int]) -> None:
        """Forget what has left the disk."""
        self.evicted.remove(ids)
        self.kept.remove(ids)
        self.protected.difference_update(ids)
        self._ids = None

    def _is_beyond(self, keep: int | None) -> bool:
        if keep is not None:
            return len(self.kept) > keep
        by_bytes = 0 < self.capacity_bytes < self.kept.num_bytes and len(self.kept) > 1
        return len(self.kept) > self.capacity_trajectories or by_bytes
