"""Command-line interface of `yamame`: one function for each command, and one exit code for each kind of error."""

import argparse
import difflib
import io
import json
import os
import re
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from yamame.config.flags import group_by_flag
from yamame.config.named_code import caller_modules, modules_of
from yamame.config.trusted_modules import search_trusted_places
from yamame.errors import RunFailedError, UnknownFlagError, UserError, require_pytorch
from yamame.runs.directory import CONFIG
from yamame.runs.locate import locate_run
from yamame.tools.clean_stdout import clean_stdout
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
from yamame.tools.train import print_result
from yamame.tools.train import register as register_train
from yamame.tools.trust import register as register_trust
from yamame.tools.tune.command import register as register_tune
from yamame.tools.viewer.command import register as register_view

if TYPE_CHECKING:
    from yamame.training.trained_run import TrainedRun


def main(args: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        args: Arguments after `yamame`; None: those of this process.

    Returns:
        Exit code. 0: success, or a run stopped by a signal; 1: failed runs of a sweep, corrupted data or a lost process
        of a run; 2: invalid input, with a one-line message; 130: interrupted.
    """
    _print_any_text()
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
        is_json = getattr(options, "json", False)
        output = clean_stdout(until_exit=args is None) if is_json else nullcontext(sys.stdout)
        with output as options.stdout, caller_modules(modules), require_pytorch(options.parser.prog):
            try:
                return options.command(options, rest)
            except UnknownFlagError as error:
                raise _with_nearest_option(error, options.parser) from error
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


def _print_any_text() -> None:
    """Let both output streams print all text: names of files can be any bytes, and some encodings lack characters."""
    for stream in (sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper):  # of a caller of `main`
            continue
        if os.name == "nt":
            stream.reconfigure(errors="replace")
        elif stream.errors == "strict" or (stream.errors, stream.encoding) == ("surrogateescape", "ascii"):
            stream.reconfigure(errors="backslashreplace")


def _with_nearest_option(error: UnknownFlagError, parser: argparse.ArgumentParser) -> UnknownFlagError:
    """Return the error with the option of the command that is much like the flag, if there is one."""
    options = [name for action in parser._actions for name in action.option_strings if name.startswith("--")]
    nearest = difflib.get_close_matches(error.flag, options, n=1, cutoff=0.8)
    return UnknownFlagError(error.flag, nearest[0]) if nearest else error


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
    in_run = any((folder / CONFIG).exists() for folder in (here, *here.parents))
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
    register_train(subparsers)
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
        "--video-trials", type=whole_number, metavar="N", help="number of trials in the video (default: 1)"
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
    seed = "seed of tasks and actions (default: that of the evaluation after training)"
    parser.add_argument("--seed", type=whole_number, metavar="N", help=seed)
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
        described = [{"name": each.name, **asdict(each.info), "notes": each.notes} for each in recipes]
        print(json.dumps(described), file=options.stdout)
        return 0
    if options.name is not None:
        print(recipes[0].description)
        return 0
    for each in recipes:
        minutes = f"{each.info.minutes} min" if each.info.minutes else ""
        print(f"{each.name:23}{minutes:15}{each.info.score}\n    {each.info.summary}")
    print("Minutes of training on two CPU cores. yamame recipes RECIPE describes one.")
    return 0


def _evaluate(options: argparse.Namespace, rest: list[str]) -> int:
    reject_unknown(rest)
    from yamame.tools.video import record_video

    if options.video_trials is not None and not options.video:
        raise UserError("--video-trials is the number of trials in a video: pass --video, too")
    run, video = _trained_run(options), {}
    if options.video:
        trials = 1 if options.video_trials is None else options.video_trials
        record_video(run, options.video, trials=trials, seed=options.seed, instruction=options.instruction)
        video = {"video": str(options.video)}
    result = run.evaluate(trials=options.trials, seed=options.seed, instruction=options.instruction, quiet=False)
    print_result(result | video, options)
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
        played = {"video": str(options.output), "returns": result.returns.tolist()}
        print(json.dumps(played), file=options.stdout)
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
    print(json.dumps(result.to_json()) if options.json else result.to_text(), file=options.stdout)
    return 0
