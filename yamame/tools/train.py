"""Command lines of `yamame train` and `yamame resume`."""

import argparse
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yamame.config.coercion import parse_int
from yamame.config.flags import group_by_flag, parse_flags
from yamame.errors import UserError
from yamame.runs.locate import locate_run
from yamame.tools.options import add_command, add_flags, config_with_env, whole_number

if TYPE_CHECKING:
    from yamame.recipes import Recipe
    from yamame.run_config import RunConfig

_COMMON_FIELDS = (
    "env_steps",
    "seed",
    "num_envs",
    "context_length",
    "updates_per_env_step",
    "learner.learning_rate",
    "agent.acting_gamma",
    "replay.batch_size",
    "eval.interval_env_steps",
    "compute.device",
)
"""Fields, beside those of the task, whose flags `yamame train RECIPE --help` shows."""


def register(subparsers: Any) -> None:
    """Add `yamame train` and `yamame resume`."""
    _register_train(subparsers)
    _register_resume(subparsers)


def _register_train(subparsers: Any) -> None:
    train = add_command(
        subparsers,
        "train",
        _train,
        help="train a new run; `yamame train RECIPE --help` describes a recipe and its flags",
        usage="yamame train RECIPE | --env ENV [--run-dir DIR] [--algorithm NAME] [--preset small|paper] [--size SIZE] "
        "[--model NAME] [--variant NAME] [--track NAME] [--json] [--quiet] [--FIELD VALUE]",
        add_help=False,
    )
    train.add_argument("recipe", metavar="RECIPE", nargs="?", help="recipe; `yamame recipes` lists them")
    train.add_argument(
        "--run-dir", type=Path, metavar="DIR", help="run directory of the new run (default: runs/RECIPE-TIME)"
    )
    train.add_argument(
        "--algorithm", metavar="NAME", help="learning algorithm: a folder of yamame/algorithms/ (default: recipe)"
    )
    train.add_argument(
        "--preset", metavar="NAME", default="small", help="small: for a CPU; paper: the paper's settings"
    )
    train.add_argument("--size", metavar="SIZE", help="network size: tiny, small, base, large (default: recipe)")
    train.add_argument(
        "--model", metavar="NAME", help="trajectory encoder: a file of yamame/nets/sequence/ (default: recipe)"
    )
    train.add_argument("--variant", action="append", default=[], metavar="NAME", help="apply an ablation; repeatable")
    train.add_argument(
        "--env", metavar="ENV", help="instead of RECIPE, an environment: your module:function, or a Gymnasium id"
    )
    train.add_argument("-h", "--help", action="store_true", help="with RECIPE: its description and common fields")
    train.add_argument("--help-all", action="store_true", help="with RECIPE: all fields of its config")
    add_flags(train, "--import", "--track", "--json", "--quiet")


def _register_resume(subparsers: Any) -> None:
    resume = add_command(
        subparsers,
        "resume",
        _resume,
        help="resume training from the latest checkpoint",
        description="Fields of the config that may change are flags, too: those of eval, checkpoint and "
        "fault_tolerance, --env.num-workers, --env.step-timeout-seconds, --learner.learning-rate, "
        "--learner.lr-decay-updates and --learner.max-grad-norm; of PPO, variBAD and HyperX "
        "--learner.lr-decay-env-steps, --learner.entropy-decay-env-steps and --learner.bonus-anneal-env-steps.",
    )
    resume.add_argument("run", type=locate_run, metavar="RUN", help="run directory")
    resume.add_argument("--env-steps", type=whole_number, metavar="N", help="new total number of environment steps")
    add_flags(resume, "--env", "--import", "--track", "--json", "--quiet")
    resume.add_argument(
        "--no-track", dest="track", action="store_const", const=None, help="send nothing to the run's trackers"
    )


def _train(options: argparse.Namespace, rest: list[str]) -> int:
    if not options.recipe and options.env is None:
        if options.help or options.help_all:
            options.parser.print_help()
            return 0
        raise UserError("expected a recipe or --env: yamame recipes lists recipes")
    from yamame.recipes import SMALL, config_from_flags, make_metadata, with_algorithm
    from yamame.training.start import train_run

    recipe = with_algorithm(_recipe_to_train(options, rest), options.algorithm)
    config = config_from_flags(recipe, options.variant, rest, size=options.size, model=options.model)
    if options.help or options.help_all:
        _print_recipe_help(options, recipe, config)
        return 0
    task = [recipe.name] if options.env is None else ["--env", options.env]
    algorithm = [] if options.algorithm is None else ["--algorithm", options.algorithm]
    preset = [] if options.preset == SMALL else ["--preset", options.preset]
    size = [] if options.size is None else ["--size", options.size]
    model = [] if options.model is None else ["--model", options.model]
    variants = [argument for variant in options.variant for argument in ("--variant", variant)]
    modules = [argument for module in options.modules for argument in ("--import", module)]
    command = ["yamame", "train", *task, *modules, *algorithm, *preset, *size, *model, *variants, *rest]
    metadata = make_metadata(recipe, config, command)
    with redirect_stdout(sys.stderr):  # Ray reports processes that die on stdout
        result = train_run(config, metadata, run_dir=options.run_dir, quiet=options.quiet, track=options.track)
    _finish_run(result, options)
    return 0


def _recipe_to_train(options: argparse.Namespace, rest: list[str]) -> "Recipe":
    """Return the recipe that a command names, or the default agent on the environment of `--env`."""
    from yamame.recipes import check_argument_order, load_recipe, own_recipe

    if options.env is None:
        check_argument_order(options.recipe, rest, "train")
        return load_recipe(options.recipe, options.preset)
    if rest and not rest[0].startswith("--"):
        raise UserError(f"--env trains the default agent, without a recipe: leave out {rest[0]}")
    from yamame.envs.env_fn import env_config
    from yamame.envs.gymnasium import find_env

    given = {flag: words[0] for flag, words in group_by_flag(rest) if len(words) == 1}
    horizon, attempts = given.get("--env.horizon"), given.get("--env.attempts", "1")
    env = env_config(
        find_env(options.env),
        horizon=None if horizon is None else _number_of("--env.horizon", horizon),
        attempts=None if attempts == "None" else _number_of("--env.attempts", attempts),
    )
    return own_recipe(env, options.preset)


def _number_of(flag: str, text: str) -> int:
    try:
        return parse_int(text)
    except ValueError as error:
        raise UserError(f"{flag}: expected a whole number, got {text!r}") from error


def _print_recipe_help(options: argparse.Namespace, recipe: "Recipe", config: "RunConfig") -> None:
    """Print the recipe's description, the variants that change it, and its flags: common ones, or all of them."""
    from yamame.config.flags import print_flags
    from yamame.recipes import make_metadata
    from yamame.recipes.settings.presets import list_variants

    print(recipe.description)
    if make_metadata(recipe, config).overrides:
        print(f"\nExpected with the settings given: {recipe.expected_result(config) or 'not measured'}")
    print(f"\nVariants: {', '.join(list_variants(config))}\n")
    options.parser.print_help()
    print()
    prog = f"yamame train {recipe.name if options.env is None else f'--env {options.env}'}"
    if options.help_all:
        print_flags(config, prog)
        return
    print_flags(config, prog, lambda path: path.startswith("env.") or path in _COMMON_FIELDS)
    print(f"\n{prog} --help-all lists all fields.")


def _resume(options: argparse.Namespace, rest: list[str]) -> int:
    from yamame.training.resumable import check_resumable
    from yamame.training.run_files import read_config
    from yamame.training.start import resume_run

    found = config_with_env(options.run, options.env, keeps_test_tasks=True) or read_config(options.run)
    config = parse_flags(found, rest, "yamame resume RUN")
    check_resumable(options.run, found, config, env_steps=options.env_steps)
    with redirect_stdout(sys.stderr):  # Ray reports processes that die on stdout
        result = resume_run(
            options.run, env_steps=options.env_steps, quiet=options.quiet, config=config, track=options.track
        )
    _finish_run(result, options)
    return 0


def _finish_run(result: dict[str, Any], options: argparse.Namespace) -> None:
    """Write the report of a finished run; print its result, on one process."""
    from yamame.distributed.learners import is_output_process
    from yamame.tools.report import write_report_if_finished

    write_report_if_finished(result)
    if is_output_process():
        print_result(result, options)


def print_result(result: dict[str, Any], options: argparse.Namespace) -> None:
    """Print the result of a run or of an evaluation."""
    if options.json:
        print(json.dumps(result), file=options.stdout)
        return
    if result["return_mean"] is not None:
        low, high = result["return_ci95"]
        success = "" if result["success_rate"] is None else f", success {result['success_rate']:.3f}"
        print(f"return {result['return_mean']:.3f} [{low:.3f}, {high:.3f}]{success} over {result['trials']} trials")
        if len(result["return_per_attempt"]) > 1:
            from yamame.tools.report import format_attempts_table

            print(format_attempts_table(result["return_per_attempt"]))
    if "video" in result:
        print(f"video: {result['video']}")
    if "run_dir" in result:
        ended = "" if "stopped_by" in result else f"; {result['end_reason']}"
        report = "" if "stopped_by" in result else f"; report: {result['run_dir']}/report.md and .html"
        print(f"{result['train_seconds']:.1f} s of training{ended}{report}")
