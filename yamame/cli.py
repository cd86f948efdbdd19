"""Command-line interface of `yamame`: one function for each command, and one exit code for each kind of error."""

import argparse
import difflib
import json
import os
import re
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from yamame.config.flags import group_by_flag, parse_flags
from yamame.config.named_code import caller_modules, modules_of
from yamame.config.serialization import parse_int
from yamame.config.trusted_modules import search_trusted_places
from yamame.errors import RunFailedError, UserError, require_pytorch
from yamame.runs.locate import locate_run
from yamame.tools.data import register as register_data
from yamame.tools.export.command import register as register_export
from yamame.tools.figure import register as register_figure
from yamame.tools.options import (
    RUN_HELP,
    add_command,
    add_flags,
    config_with_env,
    installed_version,
    reject_unknown,
    whole_number,
)
from yamame.tools.serve.command import register as register_serve
from yamame.tools.share.command import register as register_share
from yamame.tools.study.reproduce import register as register_reproduce
from yamame.tools.study.sweep import register as register_sweep
from yamame.tools.trust import register as register_trust
from yamame.tools.tune.command import register as register_tune
from yamame.tools.viewer.command import register as register_view

if TYPE_CHECKING:
    from yamame.recipes import Recipe
    from yamame.run_config import RunConfig
    from yamame.training.trained_run import TrainedRun

COMMON_FIELDS = (
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


def main(args: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        args: Arguments after `yamame`; None: those of this process.

    Returns:
        Exit code. 0: success, or a run stopped by a signal; 1: failed runs of a sweep, corrupted data or a lost process
        of a run; 2: invalid input, with a one-line message; 130: interrupted.
    """
    if os.name == "nt":  # the code page of a pipe lacks some characters
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        parser = _parser()
        if "_ARGCOMPLETE" in os.environ:  # set by the shell for the Tab key
            from yamame.tools.completion import complete

            complete(parser)
        words = sys.argv[1:] if args is None else list(args)
        if words[:1] == ["train"] and any(word.partition("=")[0] == "--env" for word in words):
            words.insert(1, "")  # no recipe: else argparse takes the first value of a field's flag for it
        options, rest = parser.parse_known_args(words)
        modules = _named_modules(options, rest)
        if modules or getattr(options, "modules_to_trust", []):
            search_trusted_places(modules)
            _search_working_directory()
        with caller_modules(modules), require_pytorch(options.parser.prog):
            return options.command(options, rest)
    except (UserError, RunFailedError) as error:
        print("yamame:", *str(error).split(), file=sys.stderr)
        return 2 if isinstance(error, UserError) else 1
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not re.search("out of memory|can't allocate memory", str(error)):
            raise
        reason = str(error).strip().partition("\n")[0]
        print(f"yamame: out of memory ({reason}): use a smaller network, batch or number of envs", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _named_modules(options: argparse.Namespace, rest: Sequence[str]) -> list[str | ModuleType]:
    """Return the modules that the command names: by `--import`, `--env module:name` or `--env.id module:Name-v0`."""
    named = [getattr(options, "env", None) or ""]
    named += [word for flag, words in group_by_flag(rest) for word in words if flag in ("--env", "--env.id")]
    searched = [spec.partition("=") for spec in getattr(options, "search", [])]
    named += [name for field, _, values in searched if field.lstrip("-") == "env.id" for name in values.split(",")]
    return [*getattr(options, "modules", []), *modules_of(*named)]


def _search_working_directory() -> None:
    """Search for modules in the working directory, too: last, so that no file there hides an installed module.

    Not in a run directory: nothing there is executed.
    """
    here = Path.cwd()
    in_run = any((folder / "config.json").exists() for folder in (here, *here.parents))
    if not (in_run or sys.flags.safe_path or str(here) in sys.path):
        sys.path.append(str(here))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        if invalid := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message, re.DOTALL):
            choices = re.findall(r"[\w-]+", invalid[2])
            nearest = difflib.get_close_matches(invalid[1], choices, n=1)
            hint = f"did you mean {nearest[0]}?" if nearest else f"choose among {', '.join(choices)}"
            raise UserError(f"{self.prog} has no command {invalid[1]!r}: {hint}")
        raise UserError(f"{message} ({self.prog} --help lists all options)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="yamame", description="In-context reinforcement learning.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"yamame {installed_version()}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)

    recipes = add_command(subparsers, "recipes", _recipes, help="list recipes, or describe one")
    recipes.add_argument("name", metavar="RECIPE", nargs="?", help="describe this recipe: cost, results, settings")
    add_flags(recipes, "--json")
    _register_train(subparsers)
    _register_resume(subparsers)
    _register_eval(subparsers)
    _register_play(subparsers)
    register_sweep(subparsers)
    register_tune(subparsers)
    register_reproduce(subparsers)
    _register_bench(subparsers)
    register_export(subparsers)
    register_data(subparsers)
    register_view(subparsers)
    register_serve(subparsers)
    register_figure(subparsers)
    register_share(subparsers)
    register_trust(subparsers)
    return parser


def _register_train(subparsers: Any) -> None:
    train = add_command(
        subparsers,
        "train",
        _train,
        help="train a new run; `yamame train RECIPE --help` describes a recipe and its flags",
        usage="yamame train RECIPE | --env ENV [--run-dir DIR] [--preset small|paper] [--size SIZE] [--model NAME] "
        "[--variant NAME] [--track NAME] [--json] [--quiet] [--FIELD VALUE]",
        add_help=False,
    )
    train.add_argument("recipe", metavar="RECIPE", nargs="?", help="recipe; `yamame recipes` lists them")
    train.add_argument(
        "--run-dir", type=Path, metavar="DIR", help="run directory of the new run (default: runs/RECIPE-TIME)"
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
        "fault_tolerance, --env.num-workers and --learner.learning-rate.",
    )
    resume.add_argument("run", type=locate_run, metavar="RUN", help="run directory")
    resume.add_argument("--env-steps", type=whole_number, metavar="N", help="new total number of environment steps")
    add_flags(resume, "--env", "--import", "--track", "--json", "--quiet")
    resume.add_argument(
        "--no-track", dest="track", action="store_const", const=None, help="send nothing to the run's trackers"
    )


def _register_eval(subparsers: Any) -> None:
    evaluate = add_command(subparsers, "eval", _evaluate, help="evaluate a checkpoint without exploration noise")
    evaluate.add_argument("run", type=locate_run, metavar="RUN", help=RUN_HELP)
    evaluate.add_argument(
        "--trials", type=whole_number, metavar="N", help="number of trials (default: eval.final_trials)"
    )
    _add_task_options(evaluate)
    evaluate.add_argument(
        "--video", type=Path, metavar="FILE", help="record the deterministic policy to FILE.gif or FILE.mp4"
    )
    evaluate.add_argument(
        "--video-trials", type=whole_number, metavar="N", default=1, help="number of trials in the video (default: 1)"
    )
    add_flags(evaluate, "--env", "--import", "--json")


def _register_play(subparsers: Any) -> None:
    play = add_command(subparsers, "play", _play, help="record a video of the deterministic policy")
    play.add_argument("run", type=locate_run, metavar="RUN", help=RUN_HELP)
    play.add_argument("--output", type=Path, metavar="FILE", required=True, help="output file, .gif or .mp4")
    play.add_argument("--trials", type=whole_number, metavar="N", default=1, help="number of trials (default: 1)")
    _add_task_options(play)
    add_flags(play, "--env", "--import", "--json")


def _add_task_options(parser: argparse.ArgumentParser) -> None:
    """Add `--seed`, `--instruction` and `--checkpoint`."""
    parser.add_argument("--seed", type=whole_number, metavar="N", help="seed of tasks and actions")
    parser.add_argument(
        "--instruction",
        default="",
        metavar="TEXT",
        help="instruction for every trial, such as 'make stone pickaxe, collect coal' (default: sampled by the task)",
    )
    parser.add_argument("--checkpoint", metavar="WHICH", default="latest", help="latest (default), best, or a path")


def _register_bench(subparsers: Any) -> None:
    bench = add_command(
        subparsers,
        "bench",
        _bench,
        help="measure throughput of the learner, collector, replay or a whole run",
        usage="yamame bench learner|collector|replay|end-to-end [--json] [--FLAG VALUE ...]",
        add_help=False,
    )
    bench.add_argument("what", metavar="WHAT", nargs="?", help="benchmark: learner, collector, replay or end-to-end")
    add_flags(bench, "--json")
    bench.add_argument("-h", "--help", action="store_true", help="with WHAT: all flags of the benchmark")


def _recipes(options: argparse.Namespace, rest: list[str]) -> int:
    reject_unknown(rest)
    from yamame.recipes import load_recipe, recipe_names

    names = recipe_names() if options.name is None else (options.name,)
    recipes = [load_recipe(name) for name in names]
    if options.json:
        print(json.dumps([{"name": each.name, **asdict(each.info), "notes": each.notes} for each in recipes]))
        return 0
    if options.name is not None:
        print(recipes[0].description)
        return 0
    for each in recipes:
        minutes = f"{each.info.minutes} min" if each.info.minutes else ""
        print(f"{each.name:23}{minutes:15}{each.info.score}\n    {each.info.summary}")
    print("Minutes of training on two CPU cores. yamame recipes RECIPE describes one.")
    return 0


def _train(options: argparse.Namespace, rest: list[str]) -> int:
    if not options.recipe and options.env is None:
        if options.help or options.help_all:
            options.parser.print_help()
            return 0
        raise UserError("expected a recipe or --env: yamame recipes lists recipes")
    from yamame.recipes import SMALL, config_from_flags, make_metadata
    from yamame.training.start import train_run

    recipe = _recipe_to_train(options, rest)
    config = config_from_flags(recipe, options.variant, rest, size=options.size, model=options.model)
    if options.help or options.help_all:
        _print_recipe_help(options, recipe, config)
        return 0
    task = [recipe.name] if options.env is None else ["--env", options.env]
    preset = [] if options.preset == SMALL else ["--preset", options.preset]
    size = [] if options.size is None else ["--size", options.size]
    model = [] if options.model is None else ["--model", options.model]
    variants = [argument for variant in options.variant for argument in ("--variant", variant)]
    modules = [argument for module in options.modules for argument in ("--import", module)]
    command = ["yamame", "train", *task, *modules, *preset, *size, *model, *variants, *rest]
    metadata = make_metadata(recipe, config, command)
    with redirect_stdout(sys.stderr):  # Ray reports processes that die on stdout
        result = train_run(config, metadata, run_dir=options.run_dir, quiet=options.quiet, track=options.track)
    _finish_run(result, options.json)
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
    print_flags(config, prog, lambda path: path.startswith("env.") or path in COMMON_FIELDS)
    print(f"\n{prog} --help-all lists all fields.")


def _resume(options: argparse.Namespace, rest: list[str]) -> int:
    from yamame.training.run_files import read_config
    from yamame.training.start import check_resumable, resume_run

    found = config_with_env(options.run, options.env, keeps_test_tasks=True) or read_config(options.run)
    config = parse_flags(found, rest, "yamame resume RUN")
    check_resumable(options.run, found, config, env_steps=options.env_steps)
    with redirect_stdout(sys.stderr):  # Ray reports processes that die on stdout
        result = resume_run(
            options.run, env_steps=options.env_steps, quiet=options.quiet, config=config, track=options.track
        )
    _finish_run(result, options.json)
    return 0


def _evaluate(options: argparse.Namespace, rest: list[str]) -> int:
    reject_unknown(rest)
    from yamame.tools.video import record_video

    run, video = _trained_run(options), {}
    if options.video:
        record_video(
            run, options.video, trials=options.video_trials, seed=options.seed, instruction=options.instruction
        )
        video = {"video": str(options.video)}
    result = run.evaluate(trials=options.trials, seed=options.seed, instruction=options.instruction, quiet=False)
    _print_result(result | video, options.json)
    return 0


def _play(options: argparse.Namespace, rest: list[str]) -> int:
    reject_unknown(rest)
    from yamame.tools.video import record_video

    result = record_video(
        _trained_run(options),
        options.output,
        trials=options.trials,
        seed=options.seed,
        instruction=options.instruction,
    )
    if options.json:
        print(json.dumps({"video": str(options.output), "returns": result.returns.tolist()}))
    else:
        success = "" if result.success_rate is None else f", success {result.success_rate:.2f}"
        print(f"{options.output}: return {result.return_mean:.4g}{success}")
    return 0


def _trained_run(options: argparse.Namespace) -> "TrainedRun":
    """Return the run, the checkpoint and the environment that the arguments of `eval` or `play` name."""
    from yamame.training.trained_run import load_trained_run

    return load_trained_run(options.run, options.checkpoint, config_with_env(options.run, options.env))


def _bench(options: argparse.Namespace, rest: list[str]) -> int:
    if options.what is None:
        if options.help:
            options.parser.print_help()
            return 0
        raise UserError("expected a benchmark: pass learner, collector, replay or end-to-end")
    from yamame.tools.bench.benchmarks import parse_benchmark

    result = parse_benchmark(options.what, [*rest, "--help"] if options.help else rest)()
    print(json.dumps(result.to_json()) if options.json else result.to_text())
    return 0


def _finish_run(result: dict[str, Any], as_json: bool) -> None:
    """Write the report of a finished run; print its result, on one process."""
    from yamame.distributed.learners import is_output_process
    from yamame.tools.report import write_report_if_finished

    write_report_if_finished(result)
    if is_output_process():
        _print_result(result, as_json)


def _print_result(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(result))
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
