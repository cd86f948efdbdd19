"""What to call experiments in a legend, from what their settings have in common and what not."""

import contextlib
import json
import re
from collections.abc import Sequence
from typing import Any

from yamame.records.errors import UserError
from yamame.run.config import RunConfig
from yamame.run.difference import settings_of
from yamame.run.variants import VARIANTS

MOST_DIFFERENCES = 2
"""That a label spells out; of more it says how many there are."""
Settings = dict[str, Any]
"""Path of a field -> its value, without those that say nothing."""


def make_labels(experiments: Sequence[tuple[str, RunConfig]], *, aside: re.Pattern[str]) -> list[str]:
    """A label for each (recipe, config): the recipe where it has only one, else what sets it apart from a base.

    The base of a recipe is the experiment from which most others are one variant away, the first of them if several
    are. `aside` are paths of fields that say nothing.
    """
    recipes = list(dict.fromkeys(recipe for recipe, _ in experiments))
    labels: dict[int, str] = {}
    for recipe in recipes:
        numbers = [number for number, (of, _) in enumerate(experiments) if of == recipe]
        told = _told([experiments[number][1] for number in numbers], aside)
        prefix = f"{recipe}: " if len(recipes) > 1 else ""
        labels |= {number: f"{prefix}{text}" if text else recipe for number, text in zip(numbers, told, strict=True)}
    return [labels[number] for number in range(len(experiments))]


def _told(configs: Sequence[RunConfig], aside: re.Pattern[str]) -> list[str]:
    """What sets each apart; empty for the base itself."""
    if len(configs) == 1:
        return [""]
    settings = [_settings(config, aside) for config in configs]
    variants = [_variants(config, aside) for config in configs]
    explained = [
        sum(each != own and each in made.values() for each in settings)
        for own, made in zip(settings, variants, strict=True)
    ]
    base = explained.index(max(explained))
    names = [next((name for name, made in variants[base].items() if made == each), "") for each in settings]
    return [
        "" if number == base else names[number] or _differences(settings[base], each)
        for number, each in enumerate(settings)
    ]


def _settings(config: RunConfig, aside: re.Pattern[str]) -> Settings:
    return {path: value for path, value in settings_of(config).items() if not aside.fullmatch(path)}


def _variants(base: RunConfig, aside: re.Pattern[str]) -> dict[str, Settings]:
    """What each variant would make of it, as far as the task can have it."""
    made = {}
    for name, apply in VARIANTS.items():
        with contextlib.suppress(UserError):
            made[name] = _settings(apply(base), aside)
    return made


def _differences(base: Settings, other: Settings) -> str:
    apart = [path for path in {**base, **other} if base.get(path) != other.get(path)]
    told = [f"{_short(path, apart)} {_value(other.get(path))}" for path in apart[:MOST_DIFFERENCES]]
    more = len(apart) - len(told)
    return ", ".join(told) + (f" and {more} more" if more else "")


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
