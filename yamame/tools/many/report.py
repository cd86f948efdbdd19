"""What a command that makes many runs tells at its end."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from yamame.tools.many.execute import Outcome


@dataclass(frozen=True, kw_only=True)
class Report:
    """What the runs of a folder came to, and what this call did for them."""

    results: Mapping[str, Any]
    """For programs."""
    table: str
    """For people."""
    outcome: Outcome

    @property
    def exit_code(self) -> int:
        """1 if any run failed."""
        return 1 if self.outcome.failed else 0

    def to_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        outcome = self.outcome
        stopped = {"stopped_by": outcome.stopped_by} if outcome.stopped_by else {}
        return {**self.results, "failed": outcome.failed, "in_progress": outcome.elsewhere, **stopped}

    def to_text(self) -> str:
        """What is printed otherwise."""
        lines = [self.table]
        if self.outcome.stopped_by:
            lines.append(f"Stopped by {self.outcome.stopped_by}; the same command goes on.")
        lines += [f"Failed: {title}: {problem}" for title, problem in self.outcome.failed.items()]
        return "\n".join(lines)
