"""Command line of `yamame tune`."""

import argparse
import json
import sys
from contextlib import closing, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yamame.errors import UserError
from yamame.tools.options import add_command, add_flags, whole_number

if TYPE_CHECKING:
    from yamame.run_config import RunConfig
    from yamame.tools.tune.trial import TrialExecutor, TuneConfig

DEFAULT_DIR = Path("tunes")
"""Parent of the directories of searches without `--output-dir`."""


def register(subparsers: Any) -> None:
    """Add `yamame tune`."""
    tune = add_command(
        subparsers,
        "tune",
        _tune,
        help="search for settings of a recipe; resumes",
        usage="yamame tune RECIPE --search FIELD=SPACE|FILE [--trials N] [--workers N] [--no-pruning] "
        "[--ray ADDRESS] [--cpus-per-trial N] [--gpus-per-trial N] "
        "[--output-dir DIR] [--preset small|paper] [--algorithm NAME] [--size SIZE] [--model NAME] [--variant NAME] "
        "[--json] [--quiet] [--FIELD VALUE]",
        description="Maximizes the mean return of the final evaluation. SPACE is a range (1e-4..3e-3, or "
        "log:1e-4..3e-3) or choices (8,16,32). All other flags are those of the recipe, for all trials. Run the same "
        "command again to resume, with more --trials to go on.",
    )
    tune.add_argument("recipe", metavar="RECIPE", help="a recipe (yamame recipes lists them)")
    tune.add_argument(
        "--search",
        action="append",
        default=[],
        metavar="FIELD=SPACE|FILE",
        help="field to search, or a .toml or .json file with fields; may be repeated",
    )
    tune.add_argument("--trials", type=whole_number, default=20, metavar="N", help="trials in all (default 20)")
    tune.add_argument(
        "--workers",
        type=whole_number,
        metavar="N",
        help="trials at a time (default 1; with --ray as many as the cluster has room for)",
    )
    tune.add_argument("--no-pruning", action="store_true", help="train every trial to its end")
    tune.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="train in a Ray cluster: local starts one on this machine; auto, HOST:PORT or ray://HOST:PORT joins one",
    )
    for name, default in (
        ("cpus", "1, or one for each worker process of the environments"),
        ("gpus", "1 if the cluster has any"),
    ):
        help_text = f"{name[:-1].upper()}s that Ray reserves for a trial (default {default})"
        tune.add_argument(f"--{name}-per-trial", type=float, metavar="N", help=help_text)
    tune.add_argument(
        "--output-dir", type=Path, metavar="DIR", help="directory of study, runs and report (default: tunes/RECIPE)"
    )
    tune.add_argument("--preset", metavar="NAME", default="small", help="small: for a CPU; paper: as in the paper")
    tune.add_argument("--algorithm", metavar="NAME", help="learning algorithm (default: recipe)")
    tune.add_argument("--size", metavar="SIZE", help="network size: tiny, small, base or large (default: recipe)")
    tune.add_argument("--model", metavar="NAME", help="trajectory encoder (default: recipe)")
    tune.add_argument("--variant", action="append", default=[], metavar="NAME", help="apply an ablation; repeatable")
    add_flags(tune, "--import", "--json", "--quiet")


def _tune(options: argparse.Namespace, rest: list[str]) -> int:
    from yamame.recipes import check_argument_order, config_from_flags, load_recipe, with_algorithm
    from yamame.tools.study.execute import make_directory
    from yamame.tools.tune.space import parse_search
    from yamame.tools.tune.trial import TuneConfig

    check_argument_order(options.recipe, rest, "tune")
    for name in ("trials", "workers"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise UserError(f"--{name} is {value}: give at least 1")
    _check_resource("--cpus-per-trial", options.cpus_per_trial, options.ray)
    _check_resource("--gpus-per-trial", options.gpus_per_trial, options.ray)
    if options.cpus_per_trial == 0:
        raise UserError("--cpus-per-trial is 0: give at least a fraction of one")
    if any(flag.partition("=")[0] == "--run-dir" for flag in rest):
        raise UserError("--run-dir is set by the search: use --output-dir")
    recipe = with_algorithm(load_recipe(options.recipe, options.preset), options.algorithm)

    def make_config(flags: list[str]) -> Any:
        return config_from_flags(recipe, options.variant, [*rest, *flags], size=options.size, model=options.model)

    config = make_config([])
    space = parse_search(options.search, config, make_config)
    if not config.eval.interval_env_steps and not options.no_pruning:
        raise UserError("there are no evaluations to prune by: set --eval.interval-env-steps, or pass --no-pruning")
    try:
        from yamame.tools.tune import report, study
    except ModuleNotFoundError as missing:
        if missing.name != "optuna":
            raise
        raise UserError("yamame tune needs optuna: pip install 'yamame[tune]'") from missing
    directory = DEFAULT_DIR / recipe.name if options.output_dir is None else options.output_dir
    tune_config = TuneConfig(
        recipe=recipe,
        variants=options.variant,
        size=options.size,
        model=options.model,
        flags=rest,
        space=space,
        directory=directory,
        num_trials=options.trials,
        imports=options.modules,
    )
    # Ray reports processes that die on stdout
    with redirect_stdout(sys.stderr), closing(_make_executor(options, tune_config, config)) as executor:
        make_directory(directory)
        with study.open_study(tune_config, prunes=not options.no_pruning) as opened:
            outcome = study.run_trials(opened, tune_config, executor)
            results, text = report.write_search_report(opened.study, tune_config)
    results |= {"failed": outcome.failed, **({"stopped_by": outcome.stopped_by} if outcome.stopped_by else {})}
    lines = [text, *(f"Failed: {title}: {error}" for title, error in outcome.failed.items())]
    if outcome.stopped_by:
        lines.append(f"Stopped by {outcome.stopped_by}; run the same command again to resume.")
    lines.append(f"Report: {directory / report.MARKDOWN}")
    print(json.dumps(results) if options.json else "\n".join(lines), file=options.stdout)
    return 1 if outcome.failed else 0


def _check_resource(flag: str, amount: float | None, address: str | None) -> None:
    """Raise `UserError` for an amount that Ray cannot reserve, or without a cluster."""
    if amount is None:
        return
    if address is None:
        raise UserError(f"{flag} needs --ray ADDRESS")
    if not 0 <= amount < float("inf") or (amount > 1 and amount % 1):
        raise UserError(f"{flag} is {amount:g}: give a whole number, or a fraction below 1")


def _make_executor(options: argparse.Namespace, config: "TuneConfig", run_config: "RunConfig") -> "TrialExecutor":
    """Return what makes the trials: this process, processes of this machine, or a Ray cluster."""
    if options.ray is not None:
        from yamame.tools.tune.ray_executor import RayTrials

        return RayTrials(
            config,
            run_config,
            address=options.ray,
            workers=options.workers,
            cpus=options.cpus_per_trial,
            gpus=options.gpus_per_trial,
        )
    from yamame.tools.tune.processes import LocalProcesses
    from yamame.tools.tune.trial import InProcess

    if options.workers is None or options.workers == 1:
        return InProcess(config, quiet=options.quiet)
    return LocalProcesses(config, workers=options.workers)
