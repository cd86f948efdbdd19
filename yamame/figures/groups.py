"""Runs that differ by their seeds alone, and what to call them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from yamame.figures.labels import make_labels
from yamame.many.planned_run import name_of_folder
from yamame.records.errors import UserError
from yamame.run.config import RunConfig
from yamame.run.difference import settings_of
from yamame.run.run_directory import CONFIG, resolve_run_dir
from yamame.run.session import read_metadata, read_config

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

    Called as their folders are (`LABEL-seed-0`, as `yamame ablate` and `yamame suite` do) where these are unambiguous,
    else by recipe, variants and differences of their settings.
    """
    members: dict[tuple, list[Path]] = {}
    configs: dict[tuple, tuple[str, RunConfig]] = {}
    for run in resolve_runs(paths):
        config, recipe = read_config(run), read_metadata(run).recipe
        settings = tuple(
            (path, repr(value)) for path, value in settings_of(config).items() if not IGNORED_FIELDS.fullmatch(path)
        )
        members.setdefault((recipe, settings), []).append(run)
        configs.setdefault((recipe, settings), (recipe, config))
    labels = _names_of_folders(list(members.values())) or make_labels(list(configs.values()), aside=IGNORED_FIELDS)
    return _without_twins(dict(zip(members, labels, strict=True)), members)


def _names_of_folders(groups: Sequence[Sequence[Path]]) -> list[str] | None:
    names = [{name_of_folder(run) for run in runs} for runs in groups]
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
