"""Which runs a suite consists of, and how far each has come."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from pathlib import Path

from yamame.environments.popgym import POPGYM_NAMES, check_name
from yamame.records.errors import UserError
from yamame.run.config import RunConfig
from yamame.run.config_json import to_json
from yamame.run.run_directory import CONFIG
from yamame.run.session import read_config, read_result
from yamame.settings.catalogue import load_recipe
from yamame.settings.resolve import settings_from_flags

RECIPE = "popgym"
LEVELS = ("easy", "medium", "hard")
_OF_THE_SUITE = {"--env.name": "--names", "--seed": "--seeds"}


class Standing(Enum):
    """How far a planned run has come."""

    NEW = auto()
    BEGUN = auto()
    FINISHED = auto()


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One environment and one seed."""

    name: str
    seed: int
    config: RunConfig
    directory: Path

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.name} seed {self.seed}"

    def standing(self) -> Standing:
        """How far it has come. Raises `UserError` where its folder holds a run with other settings."""
        if not (self.directory / CONFIG).exists():
            return Standing.NEW
        found = read_config(self.directory)
        if found.env_steps > self.config.env_steps or _unlike(found, self.config):
            raise UserError(
                f"{self.directory} was trained with other settings ({_difference(found, self.config)}): "
                "choose another --directory"
            )
        longer = found.env_steps < self.config.env_steps
        return Standing.BEGUN if longer or read_result(self.directory) is None else Standing.FINISHED


def chosen_names(names: str | None, level: str | None, everything: bool) -> list[str]:
    """The environments that the flags choose; `UserError` for none, for several ways at once and for unknown names."""
    if sum((names is not None, level is not None, everything)) != 1:
        raise UserError("choose the environments by one of --names A,B, --level easy|medium|hard and --all")
    if names is not None:
        chosen = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
        if not chosen:
            raise UserError("--names is empty: give names such as RepeatPreviousEasy,AutoencodeEasy")
        for name in chosen:
            check_name(name)
        return chosen
    if level is not None and level not in LEVELS:
        raise UserError(f"unknown level {level!r}: choose among {', '.join(LEVELS)}")
    return [name for name in POPGYM_NAMES if level is None or name.endswith(level.capitalize())]


def chosen_seeds(seeds: str) -> list[int]:
    """`0,1,2` -> those numbers; `UserError` for anything else."""
    parts = [part.strip() for part in seeds.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise UserError(f"--seeds: {seeds!r} is not a list of numbers such as 0,1,2")
    return list(dict.fromkeys(map(int, parts)))


def plan(
    names: Sequence[str],
    seeds: Sequence[int],
    directory: Path,
    *,
    flags: Sequence[str] = (),
    variants: Sequence[str] = (),
    size: str | None = None,
) -> list[PlannedRun]:
    """Every environment with every seed, all environments before the second seed; `flags` are those of the recipe.

    Raises `UserError` for flags that no run can have.
    """
    for flag in (flag.partition("=")[0] for flag in flags):
        if flag in _OF_THE_SUITE:
            raise UserError(f"{flag} belongs to the suite: use {_OF_THE_SUITE[flag]}")
    recipe = load_recipe(RECIPE)
    configs = {name: settings_from_flags(recipe, variants, ["--env.name", name, *flags], size=size) for name in names}
    return [
        PlannedRun(
            name=name,
            seed=seed,
            config=replace(configs[name], seed=seed),
            directory=directory / f"{name}-seed-{seed}",
        )
        for seed in seeds
        for name in names
    ]


def _unlike(found: RunConfig, wanted: RunConfig) -> bool:
    return to_json(replace(found, env_steps=wanted.env_steps)) != to_json(wanted)


def _difference(found: RunConfig, wanted: RunConfig) -> str:
    """The first field that differs, with both values."""
    one, other = (dict(_leaves(to_json(config))) for config in (found, wanted))
    path = next(path for path in {**one, **other} if one.get(path) != other.get(path))
    return f"{path} {json.dumps(one.get(path))}, not {json.dumps(other.get(path))}"


def _leaves(described: object, path: str = "") -> list[tuple[str, object]]:
    if not isinstance(described, dict):
        return [(path, described)]
    return [leaf for name, part in described.items() for leaf in _leaves(part, f"{path}.{name}".lstrip("."))]
