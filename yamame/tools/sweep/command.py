"""Command-line interface of `yamame sweep`."""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yamame.errors import UserError
from yamame.tools.options import add_command, add_flags

DEFAULT_SWEEPS_DIR = Path("sweeps")
"""Parent of the directories of sweeps without `--output-dir`."""


def register(subparsers: Any) -> None:
    """Add the command to a parser."""
    sweep = add_command(
        subparsers,
        "sweep",
        _sweep,
        help="train a recipe's variants, environments and seeds; plot curves and a table; resumes",
        usage="yamame sweep RECIPE [--variants A,B,A+B] [--no-full] [--seeds 0,1,2] "
        "[--envs ENV,ENV | --difficulty LEVEL | --all] [--output-dir DIR] [--report-only] [--preset small|paper] "
        "[--size SIZE] [--json] [--quiet] [--FIELD VALUE]",
        description="All other flags are those of the recipe (yamame train RECIPE --help-all lists them). They make "
        "the arm full; every other arm differs from it by its variants only. Run the same command again to resume.",
    )
    sweep.add_argument("recipe", metavar="RECIPE", help="a recipe (yamame recipes lists them), or a benchmark: popgym")
    sweep.add_argument("--variants", metavar="A,B,A+B", help="arms to compare; + combines variants in one arm")
    sweep.add_argument("--no-full", action="store_true", help="skip the unmodified recipe")
    sweep.add_argument("--seeds", metavar="0,1,2", default="0", help="seeds of each arm (default: 0)")
    sweep.add_argument("--envs", metavar="ENV,ENV", help="environments of a benchmark")
    sweep.add_argument("--difficulty", metavar="LEVEL", help="environments of a benchmark: easy, medium or hard")
    sweep.add_argument("--all", action="store_true", dest="all_envs", help="all environments of a benchmark")
    sweep.add_argument(
        "--output-dir", type=Path, metavar="DIR", help="directory of all runs and results (default: sweeps/RECIPE)"
    )
    sweep.add_argument("--report-only", action="store_true", help="rebuild the report without training")
    sweep.add_argument("--preset", metavar="NAME", default="small", help="small: for a CPU; paper: as in the paper")
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
    no_full: bool = False,
    seeds: str = "0",
    envs: str | None = None,
    difficulty: str | None = None,
    all_envs: bool = False,
    output_dir: Path | None = None,
    report_only: bool = False,
    flags: Sequence[str] = (),
    preset: str = "small",
    size: str | None = None,
    quiet: bool = False,
    train: Any = None,
) -> SweepReport:
    """Train the runs that are missing, then report on all runs in the directory (default: `sweeps/RECIPE`).

    `recipe` may be a benchmark; `flags` are fields of the recipe, the other arguments those of `yamame sweep`.
    `train` trains one planned run (default: `train_or_resume`). Raises `UserError` for an unknown name, bad flags, or a
    directory that holds something else.
    """
    from yamame.tools.sweep import runs
    from yamame.tools.sweep.report import markdown, write_sweep_report
    from yamame.tools.sweep.results import collect_results

    benchmark = runs.find_benchmark(recipe)
    directory = DEFAULT_SWEEPS_DIR / recipe if output_dir is None else output_dir
    if report_only:
        if flags:
            raise UserError(f"{flags[0]} has no effect with --report-only: leave it out")
        if not directory.is_dir():
            raise UserError(f"{directory} does not exist: yamame sweep {recipe} makes it, or name another --output-dir")
        outcome = runs.Outcome()
    else:
        planned = runs.plan_runs(
            benchmark,
            directory,
            env_names=runs.choose_env_names(benchmark, envs, difficulty, all_envs),
            arms=runs.choose_arms(variants, benchmark.variants, no_full=no_full),
            seeds=runs.choose_seeds(seeds),
            flags=flags,
            preset=preset,
            size=size,
        )
        make_directory(directory)
        outcome = runs.execute(planned, quiet=quiet, train=train or runs.train_or_resume)
    results = collect_results(directory, benchmark)
    figures = write_sweep_report(directory, results)
    lines = [markdown(results), *(f"Figure: {path}" for path in figures)]
    if outcome.stopped_by:
        lines.append(f"Stopped by {outcome.stopped_by}; run the same command again to resume.")
    lines += [f"Failed: {title}: {error}" for title, error in outcome.failed.items()]
    lines += [f"In progress in another process: {title}" for title in outcome.in_progress]
    as_json = {
        "recipe": benchmark.recipe,
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
    of_commands = ("command", "parser", "json", "modules")
    arguments = {name: value for name, value in vars(options).items() if name not in of_commands}
    report = run_sweep(flags=rest, **arguments)
    print(json.dumps(report.results) if options.json else report.text)
    return report.exit_code


def make_directory(directory: Path) -> None:
    """Make the directory of the runs. Raises `UserError` if that is not possible."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make {directory} ({error.strerror}): choose another --output-dir") from error
