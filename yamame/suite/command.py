"""From the words after `yamame suite` to runs and their table."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yamame.records.errors import UserError
from yamame.suite.execute import Outcome, execute
from yamame.suite.plan import RECIPE, chosen_names, chosen_seeds, plan
from yamame.suite.results import SuiteResults, collect_results
from yamame.suite.table import markdown, write_results

SUITES = Path("suites")
"""Where suites go that are not told where, below the working directory."""


@dataclass(frozen=True)
class SuiteReport:
    """What a suite stands at, and what this call did for it."""

    directory: Path
    results: SuiteResults
    outcome: Outcome

    @property
    def exit_code(self) -> int:
        """1 if any run failed."""
        return 1 if self.outcome.failed else 0

    def to_json(self) -> dict[str, Any]:
        """What `yamame suite --json` prints."""
        outcome = self.outcome
        what_happened = {"failed": outcome.failed, "made_elsewhere": outcome.elsewhere}
        stopped = {"stopped_by": outcome.stopped_by} if outcome.stopped_by else {}
        return {"suite": RECIPE, "directory": str(self.directory), **self.results.to_json(), **what_happened, **stopped}

    def to_text(self) -> str:
        """For people."""
        lines = [markdown(self.results)]
        if self.outcome.stopped_by:
            lines.append(f"Stopped by {self.outcome.stopped_by}; the same command goes on.")
        lines += [f"Failed: {title}: {problem}" for title, problem in self.outcome.failed.items()]
        return "\n".join(lines)


def run_suite(
    suite: str,
    *,
    names: str | None = None,
    level: str | None = None,
    everything: bool = False,
    seeds: str = "0",
    directory: Path | None = None,
    report_only: bool = False,
    flags: Sequence[str] = (),
    variants: Sequence[str] = (),
    size: str | None = None,
    quiet: bool = False,
) -> SuiteReport:
    """Make the runs that are wanted, as far as they are not there, then report on all that are in the folder.

    `flags` are fields of the recipe. Raises `UserError` for an unknown suite and for bad flags.
    """
    if suite != RECIPE:
        raise UserError(f"unknown suite {suite!r}: there is {RECIPE}")
    directory = SUITES / suite if directory is None else directory
    outcome = Outcome()
    if not report_only:
        chosen = chosen_names(names, level, everything)
        runs = plan(chosen, chosen_seeds(seeds), directory, flags=flags, variants=variants, size=size)
        _make(directory)
        outcome = execute(runs, quiet=quiet)
    elif flags:
        raise UserError(f"{flags[0]} is of no use with --report-only: leave it out")
    elif not directory.is_dir():
        raise UserError(f"{directory} does not exist: yamame suite {suite} makes it, or name another --directory")
    results = collect_results(directory)
    write_results(directory, results)
    return SuiteReport(directory, results, outcome)


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UserError(f"cannot make {directory} ({problem.strerror}): choose another --directory") from problem
