"""A recipe and what the user changes of it -> a config; the task comes first, since the rest follows from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from yamame.environments.config import EnvConfig
from yamame.run.config import RunConfig
from yamame.run.flags import apply_overrides, parse_flags
from yamame.run.sizes import apply_size
from yamame.run.variants import apply_variants
from yamame.settings.catalogue import Recipe


@dataclass(frozen=True, kw_only=True)
class _Task:
    env: EnvConfig


def settings_from_flags(
    recipe: Recipe, variants: Sequence[str], flags: Sequence[str], *, size: str | None = None
) -> RunConfig:
    """The config for `--field value` flags; `--env.…` ones are read first, then size and variants are applied.

    Raises `UserError` for bad ones.
    """
    prog = f"yamame train {recipe.name}"
    task = parse_flags(_Task(env=recipe.environment), _of_task(flags), prog)
    config = apply_variants(apply_size(recipe.configure(task.env), size), variants)
    return parse_flags(config, list(flags), prog)


def settings_from_overrides(
    recipe: Recipe, variants: Sequence[str], overrides: Mapping[str, Any], *, size: str | None = None
) -> RunConfig:
    """The config for `{"env.horizon": 60, "agent": {...}}`; what concerns the task is applied first, as for flags."""
    of_task = {name: value for name, value in overrides.items() if name == "env" or name.startswith("env.")}
    task = apply_overrides(_Task(env=recipe.environment), of_task)
    config = apply_variants(apply_size(recipe.configure(task.env), size), variants)
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
