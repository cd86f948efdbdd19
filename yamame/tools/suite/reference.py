"""What others reached on POPGym: the published figures that the package ships."""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, kw_only=True)
class Reference:
    """Figures of one environment, all of them MMER; None where none is known."""

    gru: float | None
    """The on-policy GRU of the benchmark's authors."""
    best_baseline: float | None
    """The best of their baselines."""
    worst_baseline: float | None
    """The worst of them, as figure 3 of the paper pins it."""
    paper: float | None
    """The paper's agent, as its figure 3 pins it."""
    random: float
    """Mean return of uniformly random actions."""

    @property
    def lower(self) -> float:
        """Lower end of the standardized score: the worst baseline, or random actions where that is not known.

        The known worst baselines are within 0.03 of random actions.
        """
        return self.random if self.worst_baseline is None else self.worst_baseline

    @property
    def upper(self) -> float | None:
        """Its upper end: the best of all published methods, the paper's agent included; None where none is known."""
        return max((known for known in (self.paper, self.best_baseline) if known is not None), default=None)

    @property
    def is_exact(self) -> bool:
        """Whether both ends are what the paper standardized by, as far as figure 3 tells."""
        return self.worst_baseline is not None and self.paper is not None

    def standardized(self, mmer: float) -> float | None:
        """Where a figure stands between the two ends, 0 to 1 (paper, section 4.1); None where an end is not known.

        It can lie outside: below what the worst baseline reached, or above the best that is published.
        """
        return None if self.upper is None else (mmer - self.lower) / (self.upper - self.lower)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A statistic over all 39 environments, as the paper's figure 3 has it, such as `0.9545..0.9575`."""

    statistic: str
    scale: str
    paper: str
    gru: str


@cache
def references() -> Mapping[str, Reference]:
    """Name of the environment -> what is known."""
    return {
        row["env"]: Reference(
            gru=_number(row["gru_mmer"]),
            best_baseline=_number(row["best_mmer"]),
            worst_baseline=_number(row["worst_mmer_est"]),
            paper=_number(row["amago_mmer_est"]),
            random=float(row["random_policy_return"]),
        )
        for row in _rows("popgym_reference.csv")
    }


@cache
def published_summaries() -> tuple[Summary, ...]:
    """Mean and quartiles of the paper's figure 3."""
    return tuple(
        Summary(statistic=row["statistic"], scale=row["scale"], paper=row["AMAGO"], gru=row["OnPolicyGRU"])
        for row in _rows("popgym_fig3_summary.csv")
    )


def _rows(name: str) -> Iterator[dict[str, str]]:
    text = (files("yamame.tools.suite") / "data" / name).read_text(encoding="utf-8")
    return csv.DictReader(text.splitlines())


def _number(cell: str) -> float | None:
    return float(cell) if cell else None
