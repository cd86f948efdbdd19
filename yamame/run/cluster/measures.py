"""What a run tells of its collectors."""

from yamame.run.cluster.orders import CollectResult


class PoolMetrics:
    """Sums over a round, but for what is dropped, which counts for the whole process."""

    def __init__(self) -> None:
        self.num_dropped = 0
        """Harvests that were too old to be learned from."""
        self._handed_out: dict[str, float] = {}
        self._wait_seconds = self._seconds = self._idle_seconds = 0.0
        self._ages: list[int] = []

    def record_weight_sync(self, num_bytes: int, seconds: float) -> None:
        """New weights."""
        self._handed_out = {"collectors/weight_sync_bytes": float(num_bytes), "collectors/weight_sync_seconds": seconds}

    def record_wait(self, seconds: float) -> None:
        """For collectors to answer."""
        self._wait_seconds += seconds

    def record_result(self, harvest: CollectResult, version: int) -> None:
        """What was taken while the newest weights had so many updates behind them."""
        self._seconds += harvest.seconds
        self._idle_seconds += harvest.idle_seconds
        self._ages += [version - trajectory.policy_version for trajectory in harvest.trajectories]

    def pop(self) -> dict[str, float]:
        """By key, for the round that ends."""
        measured = {
            "time/collector_wait_seconds": self._wait_seconds,
            **self._handed_out,
        }
        if self._seconds:
            measured["collectors/idle_fraction"] = self._idle_seconds / (self._seconds + self._idle_seconds)
        if self._ages:
            measured["collectors/policy_lag_updates_mean"] = sum(self._ages) / len(self._ages)
            measured["collectors/policy_lag_updates_max"] = float(max(self._ages))
        self._handed_out, self._ages = {}, []
        self._wait_seconds = self._seconds = self._idle_seconds = 0.0
        return measured
