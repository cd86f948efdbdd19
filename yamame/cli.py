"""The command line: `yamame recipes | train | resume | eval | play | sweep | bench | data | view | figure`."""

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

from yamame.config_io import caller_modules
from yamame.errors import RunFailedError, UserError
from yamame.tools.data import register as register_data
from yamame.tools.figure import register as register_figure
from yamame.tools.options import add_import, add_output, refuse
from yamame.tools.sweep.command import register as register_sweep
from yamame.tools.viewer.command import register as register_view


def main(args: Sequence[str] | None = None) -> int:
    """Run one command. 0: done (a run that was asked to stop included); 2: bad input, said in one line.

    1: a sweep some of whose runs failed, data of which some is damaged, a run that lost a process.
    """
    if os.name == "nt":  # not every character is in the code page of a pipe
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        options, rest = _parser().parse_known_args(sys.argv[1:] if args is None else list(args))
        with caller_modules(getattr(options, "modules", ())):
            return options.command(options, rest)
    except UserError as error:
        print("yamame:", *str(error).split(), file=sys.stderr)
        return 2
    except RunFailedError as failure:
        print("yamame:", *str(failure).split(), file=sys.stderr)
        return 1
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not re.search("out of memory|can't allocate memory", str(error)):
            raise
        shown = str(error).strip().partition("\n")[0]
        print(f"yamame: out of memory ({shown}): use a smaller network, batch or number of envs", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} ({self.prog} --help lists what there is)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="yamame", description="Agents that remember and adapt.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"yamame {version('yamame')}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)

    recipes = commands.add_parser("recipes", help="what can be trained, with its cost and its expected score")
    recipes.set_defaults(command=_recipes)
    _add_train(commands)
    _add_eval(commands)
    _add_play(commands)
    register_sweep(commands)
    _add_bench(commands)
    register_data(commands)
    register_view(commands)
    register_figure(commands)
    return parser


def _add_train(commands: Any) -> None:
    train = commands.add_parser(
        "train",
        help="train; `yamame train RECIPE --help` lists every field as a flag",
        usage="yamame train RECIPE [--run-dir DIR] [--size SIZE] [--model NAME] [--variant NAME] [--json] [--quiet] "
        "[--FIELD VALUE]",
        allow_abbrev=False,
        add_help=False,
    )
    train.add_argument("recipe", metavar="RECIPE", nargs="?", help="a name that `yamame recipes` lists")
    train.add_argument("--run-dir", type=Path, metavar="DIR", help="where the run goes (default runs/RECIPE-TIME)")
    train.add_argument(
        "--size", metavar="SIZE", help="of the network: tiny, small, base or large (default: the recipe's)"
    )
    train.add_argument(
        "--model", metavar="NAME", help="trajectory encoder: a file of yamame/nets/sequence/ (default: the recipe's)"
    )
    train.add_argument("--variant", action="append", default=[], metavar="NAME", help="an ablation; may be repeated")
    train.add_argument("-h", "--help", action="store_true", help="with RECIPE: every field of its config")
    add_output(train)
    train.set_defaults(command=_train, parser=train)

    resume = commands.add_parser("resume", help="go on where a run stands", allow_abbrev=False)
    resume.add_argument("run", type=Path, metavar="RUN", help="a run directory")
    resume.add_argument("--env-steps", type=int, metavar="N", help="another length of the run, in environment steps")
    add_import(resume)
    add_output(resume)
    resume.set_defaults(command=_resume)


def _add_eval(commands: Any) -> None:
    judge = commands.add_parser("eval", help="returns per trial and per attempt, without noise", allow_abbrev=False)
    judge.add_argument("run", type=Path, metavar="RUN", help="a run directory")
    judge.add_argument("--trials", type=int, metavar="N", help="how many (default: as at the end of training)")
    judge.add_argument("--seed", type=int, metavar="N", help="seed of tasks and actions")
    judge.add_argument("--instruction", default="", metavar="TEXT", help="what to do in every trial, as for play")
    _add_checkpoint(judge)
    judge.add_argument("--video", type=Path, metavar="FILE", help="film the greedy policy into FILE.gif or FILE.mp4")
    judge.add_argument("--video-trials", type=int, metavar="N", default=1, help="how many trials the film shows")
    add_import(judge)
    judge.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    judge.set_defaults(command=_evaluate)


def _add_play(commands: Any) -> None:
    play = commands.add_parser(
        "play", help="film a run's greedy policy, following your instruction", allow_abbrev=False
    )
    play.add_argument("run", type=Path, metavar="RUN", help="a run directory")
    play.add_argument("--output", type=Path, metavar="FILE", required=True, help="FILE.gif or FILE.mp4")
    play.add_argument(
        "--instruction", default="", metavar="TEXT", help="such as 'make stone pickaxe, collect coal' (default: drawn)"
    )
    _add_checkpoint(play)
    play.add_argument("--trials", type=int, metavar="N", default=1, help="how many (default 1)")
    play.add_argument("--seed", type=int, metavar="N", help="seed of tasks and actions")
    add_import(play)
    play.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    play.set_defaults(command=_play)


def _add_checkpoint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--checkpoint", metavar="WHICH", default="latest", help="latest (default), best, or a path")


def _add_bench(commands: Any) -> None:
    bench = commands.add_parser(
        "bench",
        help="how fast this machine is: learner, collector, replay or end-to-end",
        usage="yamame bench learner|collector|replay|end-to-end [--json] [--FLAG VALUE ...]",
        allow_abbrev=False,
        add_help=False,
    )
    bench.add_argument("what", metavar="WHAT", nargs="?", help="learner, collector, replay or end-to-end")
    bench.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    bench.add_argument("-h", "--help", action="store_true", help="with WHAT: every flag")
    bench.set_defaults(command=_bench, parser=bench)


def _recipes(options: argparse.Namespace, rest: list[str]) -> int:
    refuse(rest)
    from rich.console import Console
    from rich.table import Table

    from yamame.recipes import load_recipe, recipe_names

    table = Table(show_lines=True)
    for heading in ("recipe", "task", "cost", "expected"):
        table.add_column(heading, overflow="fold", no_wrap=heading == "recipe")
    for name in recipe_names():
        about = load_recipe(name).metadata
        table.add_row(name, about["summary"], about.get("cost", ""), about.get("expected", ""))
    Console().print(table)
    return 0


def _train(options: argparse.Namespace, rest: list[str]) -> int:
    if options.recipe is None:
        if options.help:
            options.parser.print_help()
            return 0
        raise UserError("no recipe was named: yamame recipes lists them")
    from yamame.recipes import check_argument_order, config_from_flags, load_recipe, make_metadata
    from yamame.runs import train

    check_argument_order(options.recipe, rest, "train")
    recipe = load_recipe(options.recipe)
    if options.help:
        options.parser.print_help()
        print()
    flags = [*rest, "--help"] if options.help else rest
    config = config_from_flags(recipe, options.variant, flags, size=options.size, model=options.model)
    size = [] if options.size is None else ["--size", options.size]
    model = [] if options.model is None else ["--model", options.model]
    variants = [word for variant in options.variant for word in ("--variant", variant)]
    about = make_metadata(recipe, config, ["yamame", "train", recipe.name, *size, *model, *variants, *rest])
    _show_run(train(config, about, run_dir=options.run_dir, quiet=options.quiet), options.json)
    return 0


def _resume(options: argparse.Namespace, rest: list[str]) -> int:
    refuse(rest)
    from yamame.runs import resume

    _show_run(resume(options.run, env_steps=options.env_steps, quiet=options.quiet), options.json)
    return 0


def _evaluate(options: argparse.Namespace, rest: list[str]) -> int:
    refuse(rest)
    from yamame.runs import evaluate

    filmed = {}
    if options.video:
        from yamame.tools.video import record_video

        record_video(
            options.run,
            options.video,
            instruction=options.instruction,
            trials=options.video_trials,
            seed=options.seed,
            checkpoint=options.checkpoint,
        )
        filmed = {"video": str(options.video)}
    result = evaluate(
        options.run,
        trials=options.trials,
        seed=options.seed,
        instruction=options.instruction,
        checkpoint=options.checkpoint,
    )
    _show(result | filmed, options.json)
    return 0


def _play(options: argparse.Namespace, rest: list[str]) -> int:
    refuse(rest)
    from yamame.tools.video import record_video

    evaluation = record_video(
        options.run,
        options.output,
        instruction=options.instruction,
        trials=options.trials,
        seed=options.seed,
        checkpoint=options.checkpoint,
    )
    played = {"video": str(options.output), "returns": evaluation.returns.tolist()}
    outcome = "" if evaluation.success_rate is None else f", success {evaluation.success_rate:.2f}"
    print(json.dumps(played) if options.json else f"{options.output}: return {evaluation.return_mean:.4g}{outcome}")
    return 0


def _bench(options: argparse.Namespace, rest: list[str]) -> int:
    if options.what is None:
        if options.help:
            options.parser.print_help()
            return 0
        raise UserError("nothing to measure was named: give learner, collector, replay or end-to-end")
    from yamame.tools.bench.command import parse_benchmark

    result = parse_benchmark(options.what, [*rest, "--help"] if options.help else rest)()
    print(json.dumps(result.to_json()) if options.json else result.to_text())
    return 0


def _show_run(summary: dict[str, Any], as_json: bool) -> None:
    from yamame.distributed.learners import is_output_process
    from yamame.tools.report import write_report_if_finished

    write_report_if_finished(summary)
    if is_output_process():
        _show(summary, as_json)


def _show(summary: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(summary))
        return
    if summary["return_mean"] is not None:
        low, high = summary["return_ci95"]
        success = "" if summary["success_rate"] is None else f", success {summary['success_rate']:.3f}"
        print(f"return {summary['return_mean']:.3f} [{low:.3f}, {high:.3f}]{success} over {summary['trials']} trials")
        if len(summary["return_per_attempt"]) > 1:
            from yamame.tools.report import format_attempts_table

            print(format_attempts_table(summary["return_per_attempt"]))
    if "video" in summary:
        print(f"film: {summary['video']}")
    if "run_dir" in summary:
        report = "" if "stopped_by" in summary else f"; report: {summary['run_dir']}/report.md and .html"
        print(f"{summary['train_seconds']:.1f} s of training{report}")
