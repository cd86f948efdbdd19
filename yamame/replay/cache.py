"""The trajectories that sampling reads without touching the disk: least recently used, bounded in bytes."""

from collections import OrderedDict

import numpy as np

from yamame.records.trajectory import LazyArray, Trajectory
from yamame.replay.codec import named_arrays

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
        leaves: list[np.ndarray | LazyArray] = [*named_arrays(trajectory).values(), *trajectory.lazy_observation.values()]
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
