"""What the commands of `yamame` share."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from yamame.config.coercion import parse_int
from yamame.config.named_code import without_environments
from yamame.errors import UnknownFlagError, UserError
from yamame.metrics.trackers.base import tracker_names

if TYPE_CHECKING:
    from yamame.run_config import RunConfig

RUN_HELP = "run directory, zoo:NAME or hf://user/repo"
"""Help of a `RUN` that may be a shared policy."""

_FLAGS: Mapping[str, Mapping[str, Any]] = {
    "--import": {
        "dest": "modules",
        "action": "append",
        "default": [],
        "metavar": "MODULE",
        "help": "import your MODULE, whose classes and functions the run's config names; may be repeated",
    },
    "--env": {
        "metavar": "ENV",
        "help": "environment instead of the run's: your module:function, or a Gymnasium id",
    },
    "--track": {
        "action": "append",
        "default": [],
        "metavar": "NAME",
        "help": f"send metrics to an experiment tracker: {', '.join(tracker_names())}; may be repeated",
    },
    "--json": {"action": "store_true", "help": "one JSON value as the only line of stdout"},
    "--quiet": {"action": "store_true", "help": "hide progress on stderr"},
}


def add_command(
    subparsers: Any, name: str, command: Callable[[argparse.Namespace, list[str]], int], **options: Any
) -> argparse.ArgumentParser:
    """Add a command and return its parser.

    Args:
        subparsers: Result of `ArgumentParser.add_subparsers`.
        name: Name of the command.
        command: Called with the parsed arguments and the unknown ones; returns the exit code.
        options: Further arguments of `ArgumentParser`.
    """
    parser: argparse.ArgumentParser = subparsers.add_parser(name, allow_abbrev=False, **options)
    parser.set_defaults(command=command, parser=parser)
    return parser


def installed_version() -> str:
    """Return the version of this package."""
    try:
        return version("yamame")
    except PackageNotFoundError:  # the same modules with the dependencies of acting alone
        return version("yamame-act")


def whole_number(text: str) -> int:
    """Convert the value of an option: `100000` and `1e5` are the same number."""
    try:
        return parse_int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected a whole number, got {text!r}") from error


def add_flags(
    parser: argparse.ArgumentParser, *names: Literal["--env", "--import", "--track", "--json", "--quiet"]
) -> None:
    """Add flags that several commands have. `--import` is for every command that reads a run."""
    for name in names:
        parser.add_argument(name, **_FLAGS[name])


def reject_unknown(rest: Sequence[str]) -> None:
    """Raise `UserError` if there are arguments that the command does not take."""
    if rest and rest[0].startswith("--"):
        raise UnknownFlagError(rest[0].partition("=")[0], "")
    if rest:
        raise UserError(f"unknown argument {rest[0]!r}: --help lists the options of this command")


def config_with_env(run: Path, env: str | None, *, keeps_test_tasks: bool = False) -> "RunConfig | None":
    """Return the config of a run with the environment of `--env`; None without the flag.

    Args:
        run: Run directory.
        env: Value of the flag.
        keeps_test_tasks: As in `with_env`.
    """
    if env is None:
        return None
    from yamame.training.run_files import read_config
    from yamame.training.trained_run import with_env

    with without_environments():
        config = read_config(run)
    return with_env(run, config, env, keeps_test_tasks=keeps_test_tasks)
