"""What to call experiments in a legend, from what their settings have in common and what not."""

import json
import re
from collections.abc import Sequence
from typing import Any

from yamame.records.errors import UserError
from yamame.run.config import RunConfig
from yamame.run.difference import differences
from yamame.run.variants import VARIANTS

MOST_DIFFERENCES = 2
"""That a label spells out; of more it says how many there are."""


def labels_of(experiments: Sequence[tuple[str, RunConfig]], *, aside: re.Pattern[str]) -> list[str]:
    """A label for each (recipe, config): the recipe where it has only one, else what sets it apart from a base.

    The base of a recipe is the experiment from which most others are one variant away, the first of them if several
    are. `aside` are paths of fields that say nothing.
    """
    recipes = [recipe for recipe, _ in experiments]
    bases = {recipe: _base([config for of, config in experiments if of == recipe], aside) for recipe in recipes}
    many = len(set(recipes)) > 1
    labels = []
    for recipe, config in experiments:
        told = _told(bases[recipe], config, aside)
        labels.append(f"{recipe}: {told}" if told and many else told or recipe)
    return labels


def _base(configs: Sequence[RunConfig], aside: re.Pattern[str]) -> RunConfig:
    return max(configs, key=lambda base: sum(_variant(base, config, aside) is not None for config in configs))


def _told(base: RunConfig, config: RunConfig, aside: re.Pattern[str]) -> str:
    """Empty for the base itself."""
    apart = _differ(base, config, aside)
    variant = _variant(base, config, aside)
    if not apart or variant:
        return variant or ""
    told = [f"{_short(path, list(apart))} {_value(apart[path][1])}" for path in list(apart)[:MOST_DIFFERENCES]]
    more = len(apart) - len(told)
    return ", ".join(told) + (f" and {more} more" if more else "")


def _variant(base: RunConfig, config: RunConfig, aside: re.Pattern[str]) -> str | None:
    """The one that makes the config of the base, if one does."""
    if not _differ(base, config, aside):
        return None
    for name, apply in VARIANTS.items():
        try:
            if not _differ(apply(base), config, aside):
                return name
        except UserError:  # a variant that the task cannot have
            continue
    return None


def _differ(one: RunConfig, other: RunConfig, aside: re.Pattern[str]) -> dict[str, tuple[Any, Any]]:
    return {path: pair for path, pair in differences(one, other).items() if not aside.fullmatch(path)}


def _short(path: str, paths: Sequence[str]) -> str:
    """The end of a path, as long as it takes to tell it from the others."""
    parts = path.split(".")
    for count in range(1, len(parts)):
        end = ".".join(parts[-count:])
        if parts[-count] != "type" and sum(f".{other}".endswith(f".{end}") for other in paths) == 1:
            return end
    return path


def _value(value: object) -> str:
    text = json.dumps(value) if not isinstance(value, str) else value.rpartition(":")[2]
    return text if len(text) <= 24 else f"{text[:23]}…"
