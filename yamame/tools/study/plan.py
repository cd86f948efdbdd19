"""The runs of a study: the config and the directory of each arm and seed."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from yamame import recipes
from yamame.config.differences import flatten_config
from yamame.config.overrides import apply_overrides
from yamame.errors import UserError
from yamame.recipes.settings.presets import VARIANTS, apply_variants
from yamame.run_config import RunConfig, experiment_settings, resolve_offline_length
from yamame.studies.base import Arm, Study
from yamame.tools.run_groups import resolve_runs, seed_suffix
from yamame.tools.study.execute import PlannedRun, finished_result
from yamame.training.run_files import read_config, read_metadata

RUNS, HISTORIES = "runs", "histories"
"""Directories of the runs of a reproduction, and of their data, in that of all studies with one preset and budget."""
_MAX_NAME = 100
_SCHEDULES = re.compile(
    r"learning_starts|updates_anneal_env_steps|exploration\.(anneal|random)_env_steps"
    r"|learner\.(lr_(warmup|decay)_(updates|env_steps)|bonus_anneal_env_steps|entropy_decay_env_steps)"
    r"|learner\.target_entropy_anneal_updates|novelty\.num_updates|replay\.prefer_rewarded_anneal_(start|end)_env_steps"
)
"""Settings that go with the length of a run."""
_LENGTHS = ("env_steps", "offline.total_updates", "eval.interval_env_steps", "checkpoint.milestone_interval_env_steps")
"""The length of a run, and what happens at intervals of it."""
_OWN_FLAGS = {
    "--seed": "--seeds",
    "--env-steps": "--budget",
    "--variant": "--panels",
    "--algorithm": "--panels",
    "--model": "--panels",
    "--run-dir": "--output-dir",
}
"""Flag of `yamame train` -> the flag of a reproduction that replaces it."""


@dataclass(frozen=True, kw_only=True)
class PlannedArm:
    """An arm with a run for each seed."""

    arm: Arm
    config: RunConfig | None = None
    """Config of the arm; None if it is skipped."""
    runs: Sequence[PlannedRun] = ()
    taken_over: Sequence[Path] = ()
    """Finished runs of other directories, in place of runs with their seeds."""
    skipped: str = ""
    """Why it has no runs: its variants change nothing in this preset."""

    @property
    def directories(self) -> list[Path]:
        """Directories of all runs."""
        return [*self.taken_over, *(run.directory for run in self.runs)]


def plan(
    study: Study,
    directory: Path,
    *,
    preset: str,
    seeds: Sequence[int],
    budget: float = 1.0,
    flags: Sequence[str] = (),
    size: str | None = None,
) -> list[PlannedArm]:
    """Return all arms of a study, each once, in their order; studies share the runs of the same agent and task.

    Args:
        study: Figure or table.
        directory: Directory of all studies with this preset and budget.
        preset: Preset of the recipes.
        seeds: Seeds of each arm.
        budget: Fraction of the environment steps of the recipes.
        flags: Flags for all runs, after those of the arms.
        size: Network size; None: that of the preset.

    Raises:
        UserError: For bad flags.
    """
    refuse_flags(flags, _OWN_FLAGS, "experiment")
    arms: dict[tuple[Any, ...], Arm] = {}
    for arm in study.arms:
        arms.setdefault(arm_key(arm), arm)
    return [_plan_arm(arm, directory, preset, seeds, budget, flags, size) for arm in arms.values()]


def arm_key(arm: Arm) -> tuple[Any, ...]:
    """Return what decides about the runs of an arm: panels share arms of one key."""
    return arm.recipe, arm.algorithm, arm.histories, arm.flags, arm.variants


def runs_in_order(arms: Iterable[PlannedArm]) -> list[PlannedRun]:
    """Return all runs, those of the first seeds first."""
    return [run for of_seed in zip_longest(*(arm.runs for arm in arms)) for run in of_seed if run is not None]


def seed_runs(
    arm: Arm, config: RunConfig, seeds: Sequence[int], *, name: str, preset: str, directory: Path
) -> list[PlannedRun]:
    """Return a run for each seed, in directories `NAME-seed-N`."""
    return [
        PlannedRun(
            recipe=arm.recipe,
            preset=preset,
            algorithm=arm.algorithm,
            histories=arm.histories,
            series=name,
            config=replace(config, seed=seed),
            directory=directory / f"{name}{seed_suffix(seed)}",
        )
        for seed in seeds
    ]


def choose_seeds(seeds: str) -> list[int]:
    """Return the numbers of `0,1,2`; `UserError` for anything else."""
    parts = [part.strip() for part in seeds.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise UserError(f"--seeds: {seeds!r} is not a list of numbers such as 0,1,2")
    return list(dict.fromkeys(map(int, parts)))


def refuse_flags(flags: Sequence[str], instead: Mapping[str, str], command: str) -> None:
    """Raise `UserError` for a flag of `yamame train` that the command sets by a flag of its own."""
    for flag in (flag.partition("=")[0] for flag in flags):
        if flag in instead:
            raise UserError(f"{flag} is set by the {command}: use {instead[flag]}")


def take_over(arms: Sequence[PlannedArm], directory: Path) -> list[PlannedArm]:
    """Return the arms with the finished runs of a directory in place of runs that would be trained.

    A run is taken over by an arm if both have the same settings. Fields that play no part in results may differ, and so
    may the length and the schedules that go with it. The longest run of every seed is taken over.
    """
    finished = [run for run in resolve_runs([directory]) if finished_result(run) is not None]
    found = [(run, read_config(run), read_metadata(run).recipe) for run in finished]
    found.sort(key=lambda each: each[1].env_steps)

    def take(arm: PlannedArm) -> PlannedArm:
        if arm.config is None:
            return arm
        wanted = arm.arm.recipe, _settings(arm.config)
        taken = {config.seed: run for run, config, recipe in found if (recipe, _settings(config)) == wanted}
        runs = [run for run in arm.runs if run.config.seed not in taken]
        return replace(arm, taken_over=list(taken.values()), runs=runs)

    return [take(arm) for arm in arms]


def arm_config(arm: Arm, preset: str, flags: Sequence[str], size: str | None) -> RunConfig:
    """Return the config of an arm. Raises `UserError` for bad flags, and for a variant that changes nothing."""
    recipe = recipes.with_algorithm(recipes.load_recipe(arm.recipe, preset), arm.algorithm)
    config = apply_variants(recipes.config_from_flags(recipe, (), [*arm.flags, *flags], size=size), arm.variants)
    return resolve_offline_length(config)


def scale_budget(config: RunConfig, fraction: float) -> RunConfig:
    """Return a run with a fraction of the environment steps, and schedules and intervals shortened with it."""
    if fraction == 1.0:
        return config
    whole = {path: value for path, value in flatten_config(config).items() if value and follows_length(path)}
    scaled = apply_overrides(config, {path: max(1, round(value * fraction)) for path, value in whole.items()})
    return resolve_offline_length(scaled)


def follows_length(path: str) -> bool:
    """Return whether the field of a config is the length of a run, or shortened with it."""
    return path in _LENGTHS or _SCHEDULES.fullmatch(path) is not None


def run_name(arm: Arm) -> str:
    """Return the name of an arm's runs without the seed, such as `crafter-env.horizon-2000+no-memory`."""
    flags = re.sub(r"[^\w.]+", "-", " ".join(arm.flags)).strip("-")
    name = "+".join(["-".join(filter(None, (arm.recipe, arm.algorithm, flags))), *arm.variants])
    if len(name) <= _MAX_NAME:
        return name
    return f"{name[:_MAX_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _plan_arm(
    arm: Arm, directory: Path, preset: str, seeds: Sequence[int], budget: float, flags: Sequence[str], size: str | None
) -> PlannedArm:
    data = ("--offline.data", str(directory / HISTORIES / run_name(arm))) if arm.histories else ()
    config = arm_config(replace(arm, variants=(), flags=(*data, *arm.flags)), preset, flags, size)
    for variant in arm.variants:
        if VARIANTS[variant](config) == config:
            return PlannedArm(arm=arm, skipped=f"{variant} changes nothing in the preset {preset}")
        config = apply_variants(config, [variant])
    config = scale_budget(config, budget)
    runs = seed_runs(arm, config, seeds, name=run_name(arm), preset=preset, directory=directory / RUNS)
    return PlannedArm(arm=arm, config=config, runs=runs)


def _settings(config: RunConfig) -> dict[str, Any]:
    settings = experiment_settings(flatten_config(config))
    return {path: value for path, value in settings.items() if not _SCHEDULES.fullmatch(path)}
