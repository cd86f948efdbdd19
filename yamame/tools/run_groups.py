"""Runs that differ by their seeds alone, and what to call them."""

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yamame.checkpoint import list_checkpoints
from yamame.config import RunConfig
from yamame.config_io import flatten_config
from yamame.errors import UserError
from yamame.presets import VARIANTS
from yamame.run_dir import BEST, CHECKPOINTS, CONFIG, MILESTONES, resolve_run_dir
from yamame.runs import read_config, read_metadata
from yamame.tools.sweep.plan import series_of

MAX_DIFFERENCES = 2
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
    return {path: value for path, value in flatten_config(config).items() if not aside.fullmatch(path)}


def _variants(base: RunConfig, aside: re.Pattern[str]) -> dict[str, Settings]:
    """What each variant would make of it, as far as the task can have it."""
    made = {}
    for name, apply in VARIANTS.items():
        with contextlib.suppress(UserError):
            made[name] = _settings(apply(base), aside)
    return made


def _differences(base: Settings, other: Settings) -> str:
    apart = [path for path in {**base, **other} if base.get(path) != other.get(path)]
    told = [f"{_short(path, apart)} {_value(other.get(path))}" for path in apart[:MAX_DIFFERENCES]]
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


IGNORED_FIELDS = re.compile(
    r"seed|env_steps|async_collection|eval\..*|compute\..*|checkpoint\..*"
    r"|replay\.(cache_bytes|max_disk_bytes|compression_level|prefetch_batches)"
)
"""Fields that make no other experiment of a run."""


@dataclass(frozen=True)
class Group:
    """The seeds of one experiment."""

    label: str
    runs: Sequence[Path]


def resolve_runs(paths: Sequence[Path]) -> list[Path]:
    """The runs that are named, and those in the folders that are; each once. `UserError` for what is neither."""
    runs: dict[Path, None] = {}
    for path in paths:
        inside = sorted(config.parent for config in path.glob(f"*/{CONFIG}")) if path.is_dir() else []
        found = inside if inside and not (path / CONFIG).exists() else [resolve_run_dir(path)]
        runs |= dict.fromkeys(found)
    if not runs:
        raise UserError("no run was named: yamame figure NAME RUN… --output FILE")
    return list(runs)


def single_run(paths: Sequence[Path]) -> Path:
    """For figures of a single run; `UserError` where several are named or none."""
    runs = resolve_runs(paths)
    if len(runs) > 1:
        raise UserError(f"this figure shows one run, and {len(runs)} were named: leave {runs[1]} and the like out")
    return runs[0]


def group_by_seed(paths: Sequence[Path]) -> list[Group]:
    """In the order in which their first runs are named.

    Called as their folders are (`LABEL-seed-0`, as `yamame sweep` does) where these are unambiguous,
    else by recipe, variants and differences of their settings.
    """
    members: dict[tuple, list[Path]] = {}
    configs: dict[tuple, tuple[str, RunConfig]] = {}
    for run in resolve_runs(paths):
        config, recipe = read_config(run), read_metadata(run).recipe
        settings = tuple(
            (path, repr(value)) for path, value in flatten_config(config).items() if not IGNORED_FIELDS.fullmatch(path)
        )
        members.setdefault((recipe, settings), []).append(run)
        configs.setdefault((recipe, settings), (recipe, config))
    labels = _names_of_folders(list(members.values())) or make_labels(list(configs.values()), aside=IGNORED_FIELDS)
    return _without_twins(dict(zip(members, labels, strict=True)), members)


def _names_of_folders(groups: Sequence[Sequence[Path]]) -> list[str] | None:
    names = [{series_of(run) for run in runs} for runs in groups]
    single = [next(iter(of_group)) for of_group in names if len(of_group) == 1]
    known = [name for name in single if name is not None]
    return known if len(set(known)) == len(groups) else None


def _without_twins(labels: Mapping[tuple, str], members: Mapping[tuple, Sequence[Path]]) -> list[Group]:
    """Groups; those whose labels are the same have a folder's name behind it."""
    given = list(labels.values())
    return [
        Group(label if given.count(label) == 1 else f"{label} ({members[key][0].name})", members[key])
        for key, label in labels.items()
    ]


def list_kept_checkpoints(run: Path) -> list[Path]:
    """Milestones, the best and the newest ones, in the order of their updates, each number of updates once."""
    folders = [run / folder for folder in (CHECKPOINTS, BEST, MILESTONES)]
    by_updates = {path.name: path for folder in folders for path in list_checkpoints(folder)}
    return [by_updates[name] for name in sorted(by_updates) if not name.endswith(".replaced")]


def checkpoint_updates(checkpoint: Path) -> int:
    """Gradient updates that made it."""
    return int(checkpoint.name.partition("-")[2])
