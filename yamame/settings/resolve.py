"""A recipe and what the user changes of it -> a config; the task comes first, since the rest follows from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from yamame.environments.config import EnvironmentConfig
from yamame.run.config import RunConfig
from yamame.run.flags import apply_overrides, parse_flags
from yamame.run.variants import apply_variants
from yamame.settings.catalogue import Recipe


@dataclass(frozen=True, kw_only=True)
class _Task:
    env: EnvironmentConfig


def settings_from_flags(recipe: Recipe, variants: Sequence[str], flags: Sequence[str]) -> RunConfig:
    """The config for `--field value` flags; `--env.…` ones are read first. Raises `UserError` for bad ones."""
    prog = f"yamame train {recipe.name}"
    task = parse_flags(_Task(env=recipe.environment), _of_task(flags), prog)
    config = apply_variants(recipe.configure(task.env), variants)
    return parse_flags(config, list(flags), prog)


def settings_from_overrides(recipe: Recipe, variants: Sequence[str], overrides: Mapping[str, Any]) -> RunConfig:
    """The config for `{"env.horizon": 60, "agent": {...}}`; what concerns the task is applied first."""
    of_task = {name: value for name, value in overrides.items() if name == "env" or name.startswith("env.")}
    task = apply_overrides(_Task(env=recipe.environment), of_task)
    config = apply_variants(recipe.configure(task.env), variants)
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
