"""`yamame figure NAME RUN… --output FILE`: what follows these words, and what comes of it."""

import argparse
import difflib
import importlib
import inspect
import json
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yamame.tools.figures
from yamame.errors import UserError
from yamame.tools.options import add_import

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")


def add_figure(commands: Any) -> None:
    """Add the command to a parser's."""
    figure = commands.add_parser(
        "figure",
        help="a picture of runs, as the paper has it; `yamame figure` lists them",
        usage="yamame figure NAME RUN... --output FILE.png|svg|pdf [--json] [--FLAG VALUE ...]",
        allow_abbrev=False,
        add_help=False,
    )
    figure.add_argument("name", metavar="NAME", nargs="?", help="which picture; without it, all are listed")
    figure.add_argument("--output", type=Path, metavar="FILE", help="where it goes: FILE.png, FILE.svg or FILE.pdf")
    add_import(figure)
    figure.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    figure.add_argument("-h", "--help", action="store_true", help="with NAME: every flag of that picture")
    figure.set_defaults(command=_figure, parser=figure)


def _figure(options: argparse.Namespace, rest: list[str]) -> int:
    # MERGED
    from yamame.flags import parse_flags

    if options.name is None:
        if rest or options.output:
            raise UserError("no figure was named: yamame figure lists them")
        if options.help:
            options.parser.print_help()
            print()
        print(_listed())
        return 0
    picture = load_figure(options.name)
    paths, flags = _split(rest, picture.options)
    if options.help:
        print(f"{picture.name}: {picture.about}\n")
        options.parser.print_help()
        print()
        flags = [*flags, "--help"]
    settings = parse_flags(picture.options, flags, f"yamame figure {picture.name}")
    if options.output is None:
        raise UserError(f"--output is missing: name a file, such as --output {picture.name}.png")
    if options.output.suffix.lower() not in FORMATS:
        raise UserError(f"--output {options.output}: give a file that ends in {', '.join(FORMATS)}")
    save(picture.draw(paths, settings), options.output)
    print(json.dumps({"figure": picture.name, "output": str(options.output)}) if options.json else options.output)
    return 0


def save(figure: "Figure", path: Path) -> None:
    """Write a figure as its file's ending says, whole or not at all, without the time of day; `UserError` if not."""
    kind = path.suffix.lower().removeprefix(".")
    of_kind: dict[str, Any] = {
        "png": {"pil_kwargs": {"optimize": True}},
        "svg": {"metadata": {"Date": None}},
        "pdf": {"metadata": {"CreationDate": None}},
    }
    aside = path.with_name(f".partial-{path.name}")
    try:
        figure.savefig(aside, dpi=150 if figure.get_figwidth() < 9 else 120, format=kind, **of_kind[kind])
        aside.replace(path)
    except OSError as problem:
        aside.unlink(missing_ok=True)
        raise UserError(f"cannot write {path} ({problem.strerror}): name another file with --output") from problem


def _listed() -> str:
    # MERGED

    names = figure_names()
    longest = max(map(len, names))
    return "\n".join(f"{name:{longest}}  {load_figure(name).about}" for name in names)


def _split(words: Sequence[str], options: Any) -> tuple[list[Path], list[str]]:
    """Paths, and flags with their values, in whatever order they come; a flag takes one value, a switch none."""
    from yamame.flags import list_flags

    known = list_flags(options)
    paths: list[Path] = []
    flags: list[str] = []
    takes_value = False
    for word in words:
        if word.startswith("--"):
            field = known.get(word.replace("_", "-"))
            takes_value = "=" not in word and not (field and field.annotation is bool)
            flags.append(word)
        elif takes_value:
            takes_value = False
            flags.append(word)
        else:
            paths.append(Path(word))
    return paths, flags


@dataclass(frozen=True, kw_only=True)
class FigureSpec:
    """A figure by name."""

    name: str
    about: str
    """What it shows, in a line."""
    options: Any
    """A config dataclass with the defaults of its flags."""
    draw: "Callable[[Sequence[Path], Any], Figure]"
    """From the paths that are named (runs, or files) and the options to the figure."""


def figure_names() -> tuple[str, ...]:
    """All figures, sorted."""
    modules = (module.name for module in pkgutil.iter_modules(yamame.tools.figures.__path__))
    return tuple(sorted(name.replace("_", "-") for name in modules))


def load_figure(name: str) -> FigureSpec:
    """The figure of a name; `UserError` with the nearest one if there is none."""
    if name not in figure_names():
        nearest = difflib.get_close_matches(name, figure_names(), n=1, cutoff=0.5)
        hint = f"did you mean {nearest[0]!r}?" if nearest else "yamame figure lists them"
        raise UserError(f"unknown figure {name!r}: {hint}")
    module = importlib.import_module(f"yamame.tools.figures.{name.replace('-', '_')}")
    about = inspect.cleandoc(module.__doc__ or "").splitlines()[0]
    return FigureSpec(name=name, about=about, options=module.Options(), draw=module.draw)
