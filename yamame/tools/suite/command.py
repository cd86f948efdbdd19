"""`yamame suite`: what follows this word, and what comes of it."""

import argparse
import json
from typing import Any

from yamame.tools.many.words import add_many, of_many


def add_suite(commands: Any) -> None:
    """Add the command to a parser's."""
    suite = commands.add_parser(
        "suite",
        help="a whole benchmark: runs that go on where they stopped, and one table beside the published figures",
        usage="yamame suite popgym [--envs A,B | --difficulty DIFFICULTY | --all] [--seeds 0,1,2] [--output-dir DIR] "
        "[--report-only] [--size SIZE] [--variant NAME] [--json] [--quiet] [--FIELD VALUE]",
        description="Every other flag is one of the recipe's: yamame train popgym --help lists them.",
        allow_abbrev=False,
    )
    suite.add_argument("suite", metavar="SUITE", help="popgym")
    suite.add_argument("--envs", metavar="A,B", help="these environments")
    suite.add_argument("--difficulty", metavar="DIFFICULTY", help="the easy, medium or hard ones")
    suite.add_argument("--all", action="store_true", help="all 39")
    suite.add_argument("--variant", action="append", default=[], metavar="NAME", help="an ablation; may be repeated")
    add_many(suite, "environment", "suites/SUITE")
    suite.set_defaults(command=_suite)


def _suite(options: argparse.Namespace, rest: list[str]) -> int:
    from yamame.tools.suite.run_suite import run_suite

    report = run_suite(
        options.suite,
        names=options.envs,
        level=options.difficulty,
        everything=options.all,
        variants=options.variant,
        **of_many(options, rest),
    )
    print(json.dumps(report.to_json()) if options.json else report.to_text())
    return report.exit_code
