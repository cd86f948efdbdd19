"""Command line of `yamame figure`, and the figures by name: one module each in `yamame.tools.figures`."""

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
from yamame.runs.locate import locate_run
from yamame.tools.options import add_command, add_flags

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")


def register(subparsers: Any) -> None:
    """Add `yamame figure`."""
    figure = add_command(
        subparsers,
        "figure",
        _figure,
        help="plot a figure of the paper from runs; lists figures if NAME is omitted",
        usage="yamame figure NAME RUN... --output FILE.png|svg|pdf [--json] [--FLAG VALUE ...]",
        add_help=False,
    )
    figure.add_argument("name", metavar="NAME", nargs="?", help="figure; omitted: list all")
    figure.add_argument("--output", type=Path, metavar="FILE", help="FILE.png, FILE.svg or FILE.pdf")
    add_flags(figure, "--import", "--json")
    figure.add_argument("-h", "--help", action="store_true", help="with NAME: all flags of the figure")


def _figure(options: argparse.Namespace, rest: list[str]) -> int:
    from yamame.config.flags import parse_flags
    from yamame.tools.plots import save

    if options.name is None:
        if rest or options.output:
            raise UserError("NAME is missing: yamame figure lists the figures")
        if options.help:
            options.parser.print_help()
            print()
        rows = [{"figure": name, "about": load_figure(name).about} for name in figure_names()]
        longest = max(len(row["figure"]) for row in rows)
        lines = (f"{row['figure']:{longest}}  {row['about']}" for row in rows)
        print(json.dumps(rows) if options.json else "\n".join(lines), file=options.stdout)
        return 0
    spec = load_figure(options.name)
    paths, flags = _split(rest, spec.options)
    if options.help:
        print(f"{spec.name}: {spec.about}\n")
        options.parser.print_help()
        print()
        flags = [*flags, "--help"]
    settings = parse_flags(spec.options, flags, f"yamame figure {spec.name}")
    if options.output is None:
        raise UserError(f"--output is missing: give a file, such as --output {spec.name}.png")
    if options.output.suffix.lower() not in FORMATS:
        raise UserError(f"--output {options.output}: give a file that ends in {', '.join(FORMATS)}")
    save(spec.draw(paths, settings), options.output)
    drawn = {"figure": spec.name, "output": str(options.output)}
    print(json.dumps(drawn) if options.json else options.output, file=options.stdout)
    return 0


def _split(arguments: Sequence[str], options: Any) -> tuple[list[Path], list[str]]:
    """Separate paths from flags with their values, in any order.

    A flag takes one value, a switch none. A sequence takes all words up to the next flag that are no directories, also
    those of several times the same flag.
    """
    from yamame.config.flags import group_by_flag, is_sequence_type, list_flags

    fields = list_flags(options)
    paths: list[Path] = []
    values: dict[str, list[str]] = {}
    for flag, words in group_by_flag(arguments):
        field, rest = fields.get(flag), words
        if field and is_sequence_type(field.annotation):
            rest = [word for word in words if Path(word).is_dir()]
            values[flag] = [*values.get(flag, []), *(word for word in words if word not in rest)]
        elif flag:
            count = 0 if field and field.annotation is bool else 1
            values[flag], rest = words[:count], words[count:]
        paths += map(locate_run, rest)
    flags = (["=".join((flag, *words[:1])), *words[1:]] for flag, words in values.items())
    return paths, [word for words in flags for word in words]


@dataclass(frozen=True, kw_only=True)
class FigureSpec:
    """A figure by name."""

    name: str
    about: str
    """What it shows, in one line."""
    options: Any
    """A config dataclass with the defaults of its flags."""
    draw: "Callable[[Sequence[Path], Any], Figure]"
    """Draws the figure from paths (runs, or files) and options."""


def figure_names() -> tuple[str, ...]:
    """Return the names of all figures, sorted."""
    modules = (module.name for module in pkgutil.iter_modules(yamame.tools.figures.__path__))
    return tuple(sorted(name.replace("_", "-") for name in modules))


def load_figure(name: str) -> FigureSpec:
    """Return a figure by name. Raises `UserError` with the closest name."""
    if name not in figure_names():
        nearest = difflib.get_close_matches(name, figure_names(), n=1, cutoff=0.5)
        hint = f"did you mean {nearest[0]!r}?" if nearest else "yamame figure lists them"
        raise UserError(f"unknown figure {name!r}: {hint}")
    module = importlib.import_module(f"yamame.tools.figures.{name.replace('-', '_')}")
    about = inspect.cleandoc(module.__doc__ or "").splitlines()[0]
    return FigureSpec(name=name, about=about, options=module.Options(), draw=module.draw)
