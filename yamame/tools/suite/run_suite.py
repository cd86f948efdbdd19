"""From what was said after `yamame suite` to runs and their table."""

from collections.abc import Sequence
from pathlib import Path

from yamame.errors import UserError
from yamame.tools.many.execute import Outcome, execute
from yamame.tools.many.folder import make_folder, require_folder
from yamame.tools.many.report import Report
from yamame.tools.many.words import chosen_seeds
from yamame.tools.suite.plan import RECIPE, chosen_names, plan
from yamame.tools.suite.results import collect_results
from yamame.tools.suite.table import markdown, write_results

SUITES = Path("suites")
"""Where suites go that are not told where, below the working directory."""


def run_suite(
    suite: str,
    *,
    names: str | None = None,
    level: str | None = None,
    everything: bool = False,
    seeds: str = "0",
    output_dir: Path | None = None,
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
    output_dir = SUITES / suite if output_dir is None else output_dir
    if report_only:
        require_folder(output_dir, flags, made_by=f"yamame suite {suite}")
        outcome = Outcome()
    else:
        chosen = chosen_names(names, level, everything)
        runs = plan(chosen, chosen_seeds(seeds), output_dir, flags=flags, variants=variants, size=size)
        make_folder(output_dir)
        outcome = execute(runs, quiet=quiet)
    results = collect_results(output_dir)
    write_results(output_dir, results)
    told = {"suite": RECIPE, "directory": str(output_dir), **results.to_json()}
    return Report(results=told, table=markdown(results), outcome=outcome)
