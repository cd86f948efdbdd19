"""How far a run is spread: collectors in processes of a Ray cluster, learners in processes of their own."""

from dataclasses import dataclass

from yamame.records.limits import check_range


@dataclass(frozen=True, kw_only=True)
class RemoteConfig:
    """Collectors that are Ray actors: what each gets, and when one counts as lost."""

    cpus_per_collector: float = 1.0
    """Cores that Ray sets aside for a collector."""
    gpus_per_collector: float = 0.0
    """Share of a GPU that Ray sets aside for a collector, which then acts on it."""
    rounds_behind: int = 2
    """A policy that acts is at most so many rounds older than the learner's; work that takes longer is lost."""
    timeout_seconds: float = 60.0
    """A collector that has not answered for so long is replaced."""
    start_seconds: float = 300.0
    """A collector that has room in the cluster and is not ready after so long is replaced."""
    keep_seconds: float = 120.0
    """In a cluster that outlives the run, collectors wait so long for a learner that comes back."""

    def __post_init__(self) -> None:
        check_range(self, "num_cpus_per_collector", "num_gpus_per_collector", ge=0)
        check_range(self, "max_policy_lag", ge=1)
        check_range(self, "collect_timeout_seconds", "startup_timeout_seconds", "orphan_timeout_seconds", gt=0)
