"""From what was said after `yamame ablate` to runs, their curves and their table."""

from collections.abc import Sequence
from pathlib import Path

from yamame.recipe_loader import load_recipe
from yamame.tools.ablate.arms import chosen_arms
from yamame.tools.ablate.plan import plan
from yamame.tools.ablate.results import collect_results
from yamame.tools.ablate.table import markdown, write_results
from yamame.tools.many.execute import Outcome, execute
from yamame.tools.many.folder import make_folder, require_folder
from yamame.tools.many.report import Report
from yamame.tools.many.results_files import RESULTS_PICTURE
from yamame.tools.many.words import chosen_seeds

ABLATIONS = Path("ablations")
"""Where comparisons go that are not told where, below the working directory."""


def run_ablation(
    recipe: str,
    *,
    variants: str | None = None,
    without_full: bool = False,
    seeds: str = "0",
    output_dir: Path | None = None,
    report_only: bool = False,
    flags: Sequence[str] = (),
    size: str | None = None,
    quiet: bool = False,
) -> Report:
    """Make the runs that are wanted, as far as they are not there, then report on all that are in the folder.

    `flags` are fields of the recipe. Raises `UserError` for an unknown recipe or variant, for bad flags, and for a
    folder that holds something else.
    """
    recipe = load_recipe(recipe).name
    output_dir = ABLATIONS / recipe if output_dir is None else output_dir
    if report_only:
        require_folder(output_dir, flags, made_by=f"yamame ablate {recipe}")
        outcome = Outcome()
    else:
        arms = chosen_arms(variants, without_full=without_full)
        runs = plan(recipe, arms, chosen_seeds(seeds), output_dir, flags=flags, size=size)
        make_folder(output_dir)
        outcome = execute(runs, quiet=quiet)
    results = collect_results(output_dir, recipe)
    write_results(output_dir, results)
    told = {"recipe": recipe, "directory": str(output_dir), **results.to_json()}
    return Report(results=told, table=f"{markdown(results)}\nFigure: {output_dir / RESULTS_PICTURE}", outcome=outcome)
