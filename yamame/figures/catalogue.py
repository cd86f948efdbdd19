"""Finds figures: every module of `yamame.figures.pictures` is one."""

import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yamame.figures.pictures
from yamame.records.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    modules = (module.name for module in pkgutil.iter_modules(yamame.figures.pictures.__path__))
    return tuple(sorted(name.replace("_", "-") for name in modules))


def load_figure(name: str) -> FigureSpec:
    """The figure of a name; `UserError` with the nearest one if there is none."""
    if name not in figure_names():
        nearest = difflib.get_close_matches(name, figure_names(), n=1, cutoff=0.5)
        hint = f"did you mean {nearest[0]!r}?" if nearest else "yamame figure lists them"
        raise UserError(f"unknown figure {name!r}: {hint}")
    module = importlib.import_module(f"yamame.figures.pictures.{name.replace('-', '_')}")
    about = inspect.cleandoc(module.__doc__ or "").splitlines()[0]
    return FigureSpec(name=name, about=about, options=module.Options(), draw=module.draw)
