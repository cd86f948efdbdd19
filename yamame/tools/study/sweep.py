"""Command-line interface of `yamame sweep`."""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yamame.errors import UserError
from yamame.tools.options import add_command, add_flags, reject_unknown

DEFAULT_SWEEPS_DIR = Path("sweeps")
"""Parent of the directories of sweeps without `--output-dir`."""


def register(subparsers: Any) -> None:
    """Add the command to a parser."""
    sweep = add_command(
        subparsers,
        "sweep",
        _sweep,
        help="train a recipe's variants, other algorithms, environments and seeds; plot curves and a table; resumes",
        usage='yamame sweep RECIPE [--variants A,B,A+B] [--arm-flags "ARM --FIELD VALUE"] [--no-full] [--seeds 0,1,2] '
        "[--envs ENV,ENV | --difficulty LEVEL | --all] [--output-dir DIR] [--list | --report-only] "
        "[--preset small|paper] [--size SIZE] [--json] [--quiet] [--FIELD VALUE]",
        description="All other flags are those of the recipe (yamame train RECIPE --help-all lists them). They make "
        "the arm full; every other arm differs from it by its variants, what its algorithm changes and its "
        "--arm-flags. Run the same command again to resume.",
    )
    sweep.add_argument("recipe", metavar="RECIPE", help="a recipe (yamame recipes lists them), or a benchmark: popgym")
    sweep.add_argument(
        "--variants",
        metavar="A,B,A+B",
        help="arms to compare: variants and algorithms; + combines them in one arm, such as ppo+gru",
    )
    sweep.add_argument(
        "--arm-flags",
        action="append",
        default=[],
        metavar='"ARM --FIELD VALUE"',
        help="flags of one arm alone, after its name, in one quoted word; may be repeated",
    )
    sweep.add_argument("--no-full", action="store_true", help="skip the unmodified recipe")
    sweep.add_argument("--seeds", metavar="0,1,2", help="seeds of each arm (default: 0)")
    sweep.add_argument("--envs", metavar="ENV,ENV", help="environments of a benchmark")
    sweep.add_argument("--difficulty", metavar="LEVEL", help="environments of a benchmark: easy, medium or hard")
    sweep.add_argument("--all", action="store_true", dest="all_envs", help="all environments of a benchmark")
    sweep.add_argument(
        "--output-dir", type=Path, metavar="DIR", help="directory of all runs and results (default: sweeps/RECIPE)"
    )
    only = sweep.add_mutually_exclusive_group()
    only.add_argument(
        "--list", action="store_true", dest="list_only", help="print the environments of a benchmark, without training"
    )
    only.add_argument("--report-only", action="store_true", help="rebuild the report without training")
    sweep.add_argument("--preset", metavar="NAME", help="small: for a CPU (default); paper: as in the paper")
    sweep.add_argument("--size", metavar="SIZE", help="network size: tiny, small, base or large (default: recipe)")
    add_flags(sweep, "--import", "--json", "--quiet")


@dataclass(frozen=True, kw_only=True)
class SweepReport:
    """Results of all runs in the directory, and what became of the runs of this call."""

    results: Mapping[str, Any]
    text: str
    exit_code: int
    """1 if a run failed."""


def run_sweep(
    recipe: str,
    *,
    variants: str | None = None,
    arm_flags: Sequence[str] = (),
    no_full: bool = False,
    seeds: str | None = None,
    envs: str | None = None,
    difficulty: str | None = None,
    all_envs: bool = False,
    output_dir: Path | None = None,
    report_only: bool = False,
    flags: Sequence[str] = (),
    preset: str | None = None,
    size: str | None = None,
    quiet: bool = False,
    train: Any = None,
) -> SweepReport:
    """Train the runs that are missing, then report on all runs in the directory (default: `sweeps/RECIPE`).

    `recipe` may be a benchmark; `flags` are fields of the recipe, the other arguments those of `yamame sweep`.
    `train` trains one planned run (default: `train_or_resume`). Raises `UserError` for an unknown name, bad flags, any
    flag of the runs with `report_only`, or a directory that holds something else.
    """
    from yamame.recipes import SMALL
    from yamame.tools.study import sweep_runs
    from yamame.tools.study.execute import Outcome, execute, make_directory, train_or_resume
    from yamame.tools.study.plan import choose_seeds
    from yamame.tools.study.report import report_lock
    from yamame.tools.study.sweep_report import collect_sweep, sweep_table, write_sweep_report

    study = sweep_runs.sweep_study(recipe)
    directory = DEFAULT_SWEEPS_DIR / recipe if output_dir is None else output_dir
    if report_only:
        given: dict[str, object] = {
            "--variants": variants,
            "--arm-flags": arm_flags or None,
            "--seeds": seeds,
            "--envs": envs,
            "--difficulty": difficulty,
        }
        given |= {"--no-full": no_full, "--all": all_envs, "--preset": preset, "--size": size}
        useless = [*flags[:1], *(flag for flag, value in given.items() if value not in (None, False))]
        if useless:
            raise UserError(f"{useless[0]} has no effect with --report-only: leave it out")
        if not directory.is_dir():
            raise UserError(f"{directory} does not exist: yamame sweep {recipe} makes it, or name another --output-dir")
        outcome = Outcome()
    else:
        arms = sweep_runs.choose_arms(variants, study.variants, no_full=no_full)
        planned = sweep_runs.plan_sweep(
            study,
            directory,
            panels=sweep_runs.choose_panels(study, envs, difficulty, all_envs),
            arms=arms,
            arm_flags=sweep_runs.choose_arm_flags(arm_flags, arms),
            seeds=choose_seeds("0" if seeds is None else seeds),
            flags=flags,
            preset=SMALL if preset is None else preset,
            size=size,
        )
        make_directory(directory)
        outcome = execute(planned, quiet=quiet, train=train or train_or_resume)
    with report_lock(directory):
        results = collect_sweep(directory, study)
        plots = write_sweep_report(directory, results)
    lines = [sweep_table(results), *(f"Figure: {path}" for path in plots), *outcome.to_lines()]
    as_json = {
        "recipe": sweep_runs.recipe_of(study),
        "output_dir": str(directory),
        **results.to_json(),
        "failed": outcome.failed,
        "in_progress": outcome.in_progress,
        **({"stopped_by": outcome.stopped_by} if outcome.stopped_by else {}),
    }
    return SweepReport(results=as_json, text="\n".join(lines), exit_code=1 if outcome.failed else 0)


def _sweep(options: argparse.Namespace, rest: list[str]) -> int:
    from yamame.recipes import check_argument_order

    check_argument_order(options.recipe, rest, "sweep")
    if options.list_only:
        reject_unknown(rest)
        return _list_environments(options)
    of_commands = ("command", "parser", "json", "stdout", "modules", "list_only")
    arguments = {name: value for name, value in vars(options).items() if name not in of_commands}
    report = run_sweep(flags=rest, **arguments)
    print(json.dumps(report.results) if options.json else report.text, file=options.stdout)
    return report.exit_code


def _list_environments(options: argparse.Namespace) -> int:
    """Print the environments of a benchmark with their difficulties."""
    from yamame.tools.study.sweep_runs import sweep_study

    study = sweep_study(options.recipe)
    if not study.benchmark:
        raise UserError(f"{options.recipe} is a single task, without environments to list: yamame sweep popgym --list")
    rows = [{"env": panel.title, "difficulty": panel.difficulty} for panel in study.panels]
    lines = (f"{row['env']:30}  {row['difficulty']}".rstrip() for row in rows)
    print(json.dumps(rows) if options.json else "\n".join(lines), file=options.stdout)
    return 0
