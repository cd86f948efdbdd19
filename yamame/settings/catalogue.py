"""Finds recipes: every module of `yamame.recipes` is one."""

import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import yamame.recipes
from yamame.environments.config import EnvConfig
from yamame.records.errors import UserError
from yamame.run.config import RunConfig


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """An experiment by name. Its config follows from its task, so that settings can grow with it."""

    name: str
    environment: EnvConfig
    """The task, unless told otherwise."""
    configure: Callable[[Any], RunConfig]
    """A task of the same class -> the full config."""
    about: Mapping[str, str]
    """`summary`, `command`, `cost` and `expected`, from the module's docstring."""


def recipe_names() -> tuple[str, ...]:
    """All recipes, sorted."""
    modules = (module.name for module in pkgutil.iter_modules(yamame.recipes.__path__))
    return tuple(sorted(name.replace("_", "-") for name in modules))


@cache
def load_recipe(name: str) -> Recipe:
    """The recipe of a name; `UserError` with the nearest one if there is none."""
    if name not in recipe_names():
        nearest = difflib.get_close_matches(name, recipe_names(), n=1, cutoff=0.5)
        hint = f"did you mean {nearest[0]!r}?" if nearest else "yamame recipes lists them"
        raise UserError(f"unknown recipe {name!r}: {hint}")
    module = importlib.import_module(f"yamame.recipes.{name.replace('-', '_')}")
    environment = inspect.signature(module.config).parameters["env"].default
    return Recipe(name=name, environment=environment, configure=module.config, about=_about(module.__doc__ or ""))


def require_recipe_first(recipe: str, rest: Sequence[str], command: str) -> None:
    """Raise `UserError` where what should be the recipe is none, and a later word is one."""
    if recipe not in recipe_names() and any(word in recipe_names() for word in rest):
        raise UserError(f"the recipe comes before its flags: yamame {command} RECIPE --field value")


def _about(docstring: str) -> dict[str, str]:
    """The first line, and the lines that begin with a known word and a colon (with what follows indented)."""
    lines = inspect.cleandoc(docstring).splitlines()
    about = {"summary": lines[0]}
    key = ""
    for line in lines[1:]:
        word, colon, rest = line.partition(":")
        if colon and word in ("Command", "Cost", "Expected"):
            key = word.lower()
            about[key] = rest.strip()
        elif key and line.startswith(" "):
            about[key] += " " + line.strip()
        else:
            key = ""
    return about
