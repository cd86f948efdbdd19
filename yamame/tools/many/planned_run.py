"""A run among many that are to be made, and how far it has come."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from pathlib import Path

from yamame.config import RunConfig
from yamame.config_io import settings_difference
from yamame.errors import UserError
from yamame.run_dir import CONFIG
from yamame.runs import read_config, read_result

_FOLDER = re.compile(r"(?P<name>.+)-seed-\d+")


class Standing(Enum):
    """How far a planned run has come."""

    NEW = auto()
    BEGUN = auto()
    FINISHED = auto()


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One name and one seed."""

    recipe: str
    name: str
    """What sets it apart from the others, the seed aside, such as its environment."""
    seed: int
    config: RunConfig
    directory: Path

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.name} seed {self.seed}"

    def standing(self) -> Standing:
        """How far it has come. Raises `UserError` where its folder holds a run with other settings or a longer one."""
        if not (self.directory / CONFIG).exists():
            return Standing.NEW
        found = read_config(self.directory)
        require_same_settings(self.directory, found, self.config, longer=False)
        longer = found.env_steps < self.config.env_steps
        return Standing.BEGUN if longer or read_result(self.directory) is None else Standing.FINISHED


def plan_runs(recipe: str, configs: Mapping[str, RunConfig], seeds: Sequence[int], directory: Path) -> list[PlannedRun]:
    """Every name with every seed, all names before the second seed."""
    return [
        PlannedRun(
            recipe=recipe,
            name=name,
            seed=seed,
            config=replace(config, seed=seed),
            directory=directory / f"{name}-seed-{seed}",
        )
        for seed in seeds
        for name, config in configs.items()
    ]


def name_of_folder(directory: Path) -> str | None:
    """The name of the planned run whose folder is called like this one; None where none is."""
    match = _FOLDER.fullmatch(directory.name)
    return match["name"] if match else None


def require_same_settings(directory: Path, found: RunConfig, wanted: RunConfig, *, longer: bool = True) -> None:
    """Raise `UserError` if what a folder holds differs from what is wanted; `longer` says whether it may be longer.

    A run that is shorter can go on, so it differs in nothing.
    """
    may_differ = longer or found.env_steps < wanted.env_steps
    difference = settings_difference(replace(found, env_steps=wanted.env_steps) if may_differ else found, wanted)
    if difference:
        raise UserError(f"{directory} was trained with other settings ({difference}): choose another --output-dir")
