"""`yamame ablate`: what follows this word, and what comes of it."""

import argparse
import json
from typing import Any

from yamame.tools.many.words import add_many, of_many


def add_ablate(commands: Any) -> None:
    """Add the command to a parser's."""
    ablate = commands.add_parser(
        "ablate",
        help="a recipe beside its variants: runs that go on where they stopped, learning curves and a table",
        usage="yamame ablate RECIPE --variants A,B,A+B [--no-full] [--seeds 0,1,2] [--output-dir DIR] "
        "[--report-only] [--size SIZE] [--json] [--quiet] [--FIELD VALUE]",
        description="Every other flag is one of the recipe's: yamame train RECIPE --help lists them. They make the "
        "unchanged recipe, an arm that is called full; every other arm differs from it by its variants alone.",
        allow_abbrev=False,
    )
    ablate.add_argument("recipe", metavar="RECIPE", help="a name that `yamame recipes` lists")
    ablate.add_argument("--variants", metavar="A,B,A+B", help="an arm for each; + joins variants in one arm")
    ablate.add_argument("--no-full", action="store_true", help="no arm for the unchanged recipe")
    add_many(ablate, "arm", "ablations/RECIPE")
    ablate.set_defaults(command=_ablate)


def _ablate(options: argparse.Namespace, rest: list[str]) -> int:
    from yamame.recipe_loader import require_recipe_first
    from yamame.tools.ablate.run_ablation import run_ablation

    require_recipe_first(options.recipe, rest, "ablate")
    report = run_ablation(
        options.recipe,
        variants=options.variants,
        without_full=options.no_full,
        **of_many(options, rest),
    )
    print(json.dumps(report.to_json()) if options.json else report.to_text())
    return report.exit_code
