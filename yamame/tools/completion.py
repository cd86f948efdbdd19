"""Tab completion of the command line by argcomplete: commands, options, recipes and the flags of a recipe's config."""

import argparse
import os
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
_NAMES: Mapping[tuple[str, str], Sequence[str]] = {
    ("figure", "name"): ("tools/figures",),
    ("recipes", "name"): ("recipes",),
    ("sweep", "recipe"): ("recipes",),
    ("train", "model"): ("nets/sequence",),
    ("train", "recipe"): ("recipes",),
}
"""Command and argument -> folders of the package whose files are its values."""
_CHOICES = {"preset": ("small", "paper"), "size": ("tiny", "small", "base", "large")}


def complete(parser: argparse.ArgumentParser) -> None:
    """Print the completions of the line that the shell has passed in the environment, and exit.

    PyTorch, which takes seconds, is imported for the flags of a recipe's config alone.
    """
    import argcomplete

    words = os.environ["COMP_LINE"][: int(os.environ["COMP_POINT"])].split()
    for command, subparser in _subparsers(parser):
        for action in subparser._actions:
            if (command, action.dest) == ("train", "algorithm"):
                action.completer = _completer(_packages("algorithms"))  # type: ignore[attr-defined]
            elif folders := _NAMES.get((command, action.dest)):
                action.completer = _completer(_modules(*folders))  # type: ignore[attr-defined]
            elif (command, action.dest) == ("reproduce", "name"):
                action.completer = _study_names  # type: ignore[attr-defined]
            elif choices := _CHOICES.get(action.dest):
                action.completer = _completer(choices)  # type: ignore[attr-defined]
        if words[1:2] == [command] and command in ("train", "sweep") and len(words) > 2 and words[-1][:2] == "--":
            known = subparser._option_string_actions
            for flag in _config_flags(words[2], _value_after("--algorithm", words)):
                if flag not in known:
                    subparser.add_argument(flag, help=argparse.SUPPRESS)
    argcomplete.autocomplete(parser, print_suppressed=True)


def _subparsers(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def _completer(names: Sequence[str]) -> Callable[..., Sequence[str]]:
    return lambda **_: names


def _study_names(**_: object) -> Sequence[str]:
    from yamame.studies import study_names

    return study_names()


def _modules(*folders: str) -> list[str]:
    """Return the names of the modules in folders of the package, as they are typed."""
    paths = [str(_PACKAGE / folder) for folder in folders]
    return [module.name.replace("_", "-") for module in pkgutil.iter_modules(paths) if not module.ispkg]


def _packages(folder: str) -> list[str]:
    """Return the names of the packages in a folder of the package."""
    return [module.name for module in pkgutil.iter_modules([str(_PACKAGE / folder)]) if module.ispkg]


def _value_after(option: str, words: Sequence[str]) -> str | None:
    """Return the value of an option; None without it."""
    return next((value for name, value in pairwise(words) if name == option), None)


def _config_flags(recipe: str, algorithm: str | None) -> list[str]:
    """Return the flags of a recipe's config with an algorithm; empty if there is no such recipe or algorithm."""
    if recipe not in _modules("recipes") or algorithm not in (None, *_packages("algorithms")):
        return []
    from yamame.config.flags import list_flags
    from yamame.recipes import config_from_flags, load_recipe, with_algorithm

    return list(list_flags(config_from_flags(with_algorithm(load_recipe(recipe), algorithm), [], [])))
