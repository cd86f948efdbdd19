"""From what was said after `yamame suite` to runs and their table."""

from collections.abc import Sequence
from pathlib import Path

from yamame.many.execute import Outcome, execute
from yamame.many.folder import make_folder, require_folder
from yamame.many.report import Report
from yamame.many.words import chosen_seeds
from yamame.records.errors import UserError
from yamame.suite.plan import RECIPE, chosen_names, plan
from yamame.suite.results import collect_results
from yamame.suite.table import markdown, write_results

SUITES = Path("suites")
"""Where suites go that are not told where, below the working directory."""


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
) -> Report:
    """Make the runs that are wanted, as far as they are not there, then report on all that are in the folder.

    `flags` are fields of the recipe. Raises `UserError` for an unknown suite and for bad flags.
    """
    if suite != RECIPE:
        raise UserError(f"unknown suite {suite!r}: there is {RECIPE}")
    directory = SUITES / suite if directory is None else directory
    if report_only:
        require_folder(directory, flags, made_by=f"yamame suite {suite}")
        outcome = Outcome()
    else:
        chosen = chosen_names(names, level, everything)
        runs = plan(chosen, chosen_seeds(seeds), directory, flags=flags, variants=variants, size=size)
        make_folder(directory)
        outcome = execute(runs, quiet=quiet)
    results = collect_results(directory)
    write_results(directory, results)
    told = {"suite": RECIPE, "directory": str(directory), **results.to_json()}
    return Report(results=told, table=markdown(results), outcome=outcome)
