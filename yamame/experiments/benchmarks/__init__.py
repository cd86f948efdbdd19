"""Benchmarks: every module of this package is a set of environments of one recipe, with published scores.

A module defines `BENCHMARK`; `yamame sweep NAME` runs it.
"""

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Reference:
    """Published scores of one environment."""

    published: Mapping[str, float | None]
    """Method -> score, the columns of the table; None: unknown."""
    lower: float
    """Score that counts as 0 when standardized."""
    upper: float | None
    """Score that counts as 1; None: unknown."""
    is_exact: bool = True
    """Whether both bounds are those that the paper used."""

    def standardized(self, score: float) -> float | None:
        """Return the score on the scale from `lower` (0) to `upper` (1); it may lie outside. None: unknown bound."""
        return None if self.upper is None else (score - self.lower) / (self.upper - self.lower)


@dataclass(frozen=True, kw_only=True)
class Scores:
    """The figure of a run that a paper published for other methods."""

    name: str
    """As shown in tables, such as MMER."""
    of_run: Callable[[Sequence[float]], float]
    """From the mean returns of all evaluations, the final one last, to the score of a run."""
    references: Mapping[str, Reference]
    """Environment name -> its published scores."""
    notes: Sequence[str] = ()
    """Lines below the table: published aggregates, definitions."""


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """The runs behind a figure or table: environments and arms of one recipe."""

    recipe: str
    title: str
    variants: Sequence[str] = ()
    """Arms to compare with the unmodified recipe, unless the user names others."""
    env_names: Sequence[str] = ()
    """Values of `--env.name`; empty: the one task of the recipe."""
    difficulties: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Difficulty -> those of the environment names."""
    scores: Scores | None = None


def benchmark_names() -> tuple[str, ...]:
    """Return the names of all experiments, sorted."""
    return tuple(sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__)))


def load_benchmark(name: str) -> Benchmark:
    """Return the benchmark of a name that `benchmark_names` lists."""
    benchmark: Benchmark = importlib.import_module(f"{__name__}.{name.replace('-', '_')}").BENCHMARK
    return benchmark
