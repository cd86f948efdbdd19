"""How far a run is spread: collectors in processes of a Ray cluster, learners in processes of their own."""

from dataclasses import dataclass

from yamame.records.limits import check_limits


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
        check_limits(self, "cpus_per_collector", "gpus_per_collector", at_least=0)
        check_limits(self, "rounds_behind", at_least=1)
        check_limits(self, "timeout_seconds", "start_seconds", "keep_seconds", above=0)
