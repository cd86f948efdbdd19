"""What a bench found: one JSON object, or a short table."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from yamame.bench.machine import format_machine


@dataclass(frozen=True, kw_only=True)
class BenchResult:
    """Figures by name, with what they were measured on."""

    bench: str
    samples: Mapping[str, Sequence[float]]
    """One number for each repeat."""
    scalars: Mapping[str, float | int | str]
    """What is known once."""
    config: Mapping[str, Any]
    machine: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Medians and facts by name; `spread` has the least and the greatest of the repeats."""
        return {
            "bench": self.bench,
            **{name: statistics.median(values) for name, values in self.samples.items()},
            **self.scalars,
            "repeats": len(next(iter(self.samples.values()))),
            "spread": {name: [min(values), max(values)] for name, values in self.samples.items()},
            "config": dict(self.config),
            "machine": dict(self.machine),
        }

    def to_text(self) -> str:
        """A line for each figure, for people."""
        rows = [
            (name, _short(statistics.median(values)), f"{_short(min(values))} to {_short(max(values))}")
            for name, values in self.samples.items()
        ]
        rows += [(name, _short(value), "") for name, value in self.scalars.items() if not isinstance(value, str)]
        rows += [(name, "", value) for name, value in self.scalars.items() if isinstance(value, str)]
        names, medians = (max(len(row[column]) for row in rows) for column in (0, 1))
        lines = [f"{name.replace('_', ' '):{names}}  {median:>{medians}}  {spread}" for name, median, spread in rows]
        return "\n".join([line.rstrip() for line in lines] + [format_machine(self.machine)])


def _short(value: float | int) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
