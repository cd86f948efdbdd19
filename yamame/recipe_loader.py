"""Finds recipes: every module of `yamame.recipes` is one."""

import difflib
import importlib
import inspect
import pkgutil
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import yamame.recipes
from yamame.config import RunConfig
from yamame.config_io import differences
from yamame.envs.config import EnvConfig
from yamame.errors import UserError
from yamame.flags import apply_overrides, parse_flags
from yamame.presets import apply_model, apply_size, apply_variants
from yamame.runs import RunMetadata


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


def about_run(recipe: Recipe, config: RunConfig, words: Sequence[str] = ()) -> RunMetadata:
    """The recipe, the command if words made it, and what differs from the recipe's defaults.

    Of the task that is what differs from the recipe's own, of the rest what differs from what follows from the task.
    """
    of_task = {f"env.{path}": pair for path, pair in differences(recipe.environment, config.env).items()}
    return RunMetadata(
        recipe=recipe.name,
        expected=recipe.about.get("expected", ""),
        command=shlex.join(words),
        overrides=of_task | differences(recipe.configure(config.env), config),
    )


@dataclass(frozen=True, kw_only=True)
class _Task:
    env: EnvConfig


def settings_from_flags(
    recipe: Recipe, variants: Sequence[str], flags: Sequence[str], *, size: str | None = None, model: str | None = None
) -> RunConfig:
    """The config for `--field value` flags; `--env.…` ones are read first, then size and variants are applied.

    Raises `UserError` for bad ones.
    """
    prog = f"yamame train {recipe.name}"
    task = parse_flags(_Task(env=recipe.environment), _of_task(flags), prog)
    config = apply_variants(apply_size(apply_model(recipe.configure(task.env), model), size), variants)
    return parse_flags(config, list(flags), prog)


def settings_from_overrides(
    recipe: Recipe,
    variants: Sequence[str],
    overrides: Mapping[str, Any],
    *,
    size: str | None = None,
    model: str | None = None,
) -> RunConfig:
    """The config for `{"env.horizon": 60, "agent": {...}}`; what concerns the task is applied first, as for flags."""
    of_task = {name: value for name, value in overrides.items() if name == "env" or name.startswith("env.")}
    task = apply_overrides(_Task(env=recipe.environment), of_task)
    config = apply_variants(apply_size(apply_model(recipe.configure(task.env), model), size), variants)
    return apply_overrides(config, {name: value for name, value in overrides.items() if name not in of_task})


def _of_task(flags: Sequence[str]) -> list[str]:
    kept: list[str] = []
    concerns_task = False
    for flag in flags:
        if flag.startswith("--"):
            concerns_task = flag.startswith("--env.")
        if concerns_task:
            kept.append(flag)
    return kept
