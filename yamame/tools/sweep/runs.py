"""The runs of a sweep: which ones it consists of, which of them its directory holds, and their training.

A run is named `ARM-seed-N`, or `ENV-ARM-seed-N` where a benchmark has several environments. An arm is `full`, the
unmodified recipe, or variants joined by +.
"""

import difflib
import re
import shutil
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from itertools import combinations
from pathlib import Path
from typing import Any

from yamame import recipes
from yamame.config.serialization import first_difference
from yamame.errors import UserError, describe_error
from yamame.experiments.benchmarks import Benchmark, benchmark_names, load_benchmark
from yamame.recipes.settings.presets import VARIANTS, apply_variants
from yamame.run_config import RunConfig
from yamame.runs.directory import (
    CHECKPOINTS,
    CONFIG,
    LOCK,
    METADATA,
    OFFLINE,
    REPLAY,
    SPACES,
    RunLockedError,
    lock_run_dir,
)
from yamame.tools.evaluations import EVALUATIONS
from yamame.tools.report import write_report_if_finished
from yamame.training import start as run_api
from yamame.training.callbacks import Callback
from yamame.training.run_files import read_config, read_metadata, read_result

FULL = "full"
CSV, MARKDOWN, JSON, CURVES, SCORES = "results.csv", "results.md", "results.json", "curves.png", "scores.png"
RESULT_FILES = (CSV, MARKDOWN, JSON, CURVES, SCORES, EVALUATIONS)
"""Files of the report, beside the runs."""
_RUN_NAME = re.compile(r"(?P<series>.+)-seed-\d+")
_OWN_FLAGS = {"--seed": "--seeds", "--variant": "--variants", "--run-dir": "--output-dir"}
"""Flag of `yamame train` -> the flag of the sweep that replaces it."""
_BEFORE_CONFIG = {LOCK, REPLAY, OFFLINE, CHECKPOINTS, SPACES, METADATA}
"""Entries that a run directory can hold before its config is written."""


class RunStatus(Enum):
    """Progress of a planned run."""

    PENDING = auto()
    STARTED = auto()
    FINISHED = auto()


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One environment, arm and seed."""

    recipe: str
    preset: str = recipes.SMALL
    series: str
    """Name without the seed, such as `no-memory` or `RepeatFirstEasy-full`."""
    config: RunConfig
    directory: Path

    @property
    def title(self) -> str:
        """As progress and failures name it."""
        return f"{self.series} seed {self.config.seed}"

    def status(self) -> RunStatus:
        """Read the progress from the run's directory. Raises `UserError` if it holds another config or a longer run."""
        if not (self.directory / CONFIG).exists():
            return RunStatus.PENDING
        found = read_config(self.directory)
        require_same_config(self.directory, found, self.config, allow_longer=False)
        is_shorter = found.env_steps < self.config.env_steps
        return RunStatus.STARTED if is_shorter or read_result(self.directory) is None else RunStatus.FINISHED


@dataclass(frozen=True)
class FoundRun:
    """A run in the directory of a sweep, finished or not."""

    env_name: str
    arm: str
    directory: Path


def find_benchmark(name: str) -> Benchmark:
    """Return the benchmark of a name, or the one task of the recipe of that name; `UserError` if there is neither."""
    if name in benchmark_names():
        return load_benchmark(name)
    return Benchmark(recipe=recipes.load_recipe(name).name, title=name)


def choose_env_names(benchmark: Benchmark, envs: str | None, difficulty: str | None, all_envs: bool) -> list[str]:
    """Return the environments that the flags choose, `[""]` for a recipe of one task; `UserError` for bad flags."""
    num_given = sum((envs is not None, difficulty is not None, all_envs))
    if not benchmark.env_names:
        if num_given:
            raise UserError(f"{benchmark.recipe} is a single task: leave out --envs, --difficulty and --all")
        return [""]
    if num_given != 1:
        raise UserError("choose the environments by one of --envs A,B, --difficulty easy|medium|hard and --all")
    if all_envs:
        return list(benchmark.env_names)
    if difficulty is not None:
        if difficulty not in benchmark.difficulties:
            raise UserError(f"unknown difficulty {difficulty!r}: choose among {', '.join(benchmark.difficulties)}")
        return list(benchmark.difficulties[difficulty])
    chosen = list(dict.fromkeys(_split(envs)))
    if not chosen:
        raise UserError(f"--envs is empty: give names such as {','.join(benchmark.env_names[:2])}")
    for name in chosen:
        if name not in benchmark.env_names:
            nearest = difflib.get_close_matches(name, benchmark.env_names, n=1, cutoff=0.0)[0]
            raise UserError(f"{benchmark.recipe} has no environment {name!r}: did you mean {nearest!r}?")
    return chosen


def choose_arms(variants: str | None, defaults: Sequence[str] = (), *, no_full: bool = False) -> list[str]:
    """Return the arms of `--variants A,B+C`, `full` first. Raises `UserError` for no arm or an arm named twice."""
    names = list(defaults) if variants is None else _split(variants)
    if (variants is not None or no_full) and not names:
        raise UserError(f"--variants: name what to compare, such as {','.join(list(VARIANTS)[:2])}")
    if FULL in names and no_full:
        raise UserError(f"{FULL} is named by --variants and excluded by --no-full: leave one out")
    arms = [name for name in names if name != FULL]
    seen: dict[frozenset[str], str] = {}
    for arm in arms:
        parts = frozenset(arm_variants(arm))
        if len(parts) < len(arm_variants(arm)):
            raise UserError(f"--variants: {arm} names a variant twice")
        if parts in seen:
            raise UserError(f"--variants: {seen[parts]} is named twice (as {arm}): leave one out")
        seen[parts] = arm
    return arms if no_full else [FULL, *arms]


def choose_seeds(seeds: str) -> list[int]:
    """Return the numbers of `0,1,2`; `UserError` for anything else."""
    parts = [part.strip() for part in seeds.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise UserError(f"--seeds: {seeds!r} is not a list of numbers such as 0,1,2")
    return list(dict.fromkeys(map(int, parts)))


def plan_runs(
    benchmark: Benchmark,
    directory: Path,
    *,
    env_names: Sequence[str],
    arms: Sequence[str],
    seeds: Sequence[int],
    flags: Sequence[str] = (),
    preset: str = recipes.SMALL,
    size: str | None = None,
) -> list[PlannedRun]:
    """Return every environment and arm with every seed, all of them before the second seed.

    Preset, size and flags make the full recipe, to which the variants are applied: a flag may concern what a variant
    removes, and cannot undo the variant. Raises `UserError` for bad flags, for arms that do not differ, and if the
    directory holds something else, such as other runs of these environments with another config.
    """
    instead = {**_OWN_FLAGS, **({"--env.name": "--envs"} if benchmark.env_names else {})}
    for flag in (flag.partition("=")[0] for flag in flags):
        if flag in instead:
            raise UserError(f"{flag} is set by the sweep: use {instead[flag]}")
    full = {name: _full_config(recipes.load_recipe(benchmark.recipe, preset), name, flags, size) for name in env_names}
    configs = {(name, arm): apply_variants(config, arm_variants(arm)) for name, config in full.items() for arm in arms}
    for name, config in full.items():
        _require_different({FULL: config, **{arm: configs[name, arm] for arm in arms}})
    for found in find_runs(directory, benchmark):
        if found.env_name in full:
            config = read_config(found.directory)
            wanted = replace(apply_variants(full[found.env_name], arm_variants(found.arm)), seed=config.seed)
            require_same_config(found.directory, config, wanted)
    return [
        PlannedRun(
            recipe=benchmark.recipe,
            preset=preset,
            series=_series(name, arm),
            config=replace(config, seed=seed),
            directory=directory / f"{_series(name, arm)}-seed-{seed}",
        )
        for seed in seeds
        for (name, arm), config in configs.items()
    ]


def find_runs(directory: Path, benchmark: Benchmark) -> list[FoundRun]:
    """Return all runs in the directory of a sweep, in the order of environments and arms; none without a directory.

    Raises `UserError` for a directory that is a run itself, that holds a run of something else, or that holds
    anything but parts of a sweep.
    """
    if not directory.is_dir():
        return []
    if (directory / CONFIG).exists():
        raise UserError(f"{directory} is a run itself: choose another --output-dir")
    entries = sorted(entry for entry in directory.iterdir() if not entry.name.startswith("."))
    known = {entry: _parse(entry, benchmark) for entry in entries}
    strangers = [entry for entry in entries if known[entry] is None and entry.name not in RESULT_FILES]
    if strangers and len(strangers) == len(entries):
        raise _holds_other(directory, strangers[0].name)
    runs = []
    for entry in entries:
        if (entry / CONFIG).exists():
            found = known[entry]
            if found is None:
                raise _holds_other(directory, entry.name)
            recipe = read_metadata(entry).recipe
            if recipe != benchmark.recipe:
                raise _holds_other(directory, f"{entry.name} of {recipe}")
            runs.append(found)
    env_order = ["", *benchmark.env_names]
    return sorted(runs, key=lambda run: (env_order.index(run.env_name), _arm_order(run.arm)))


def strip_seed_suffix(run: Path) -> str | None:
    """Return what the name of a run directory says before `-seed-N`; None for another name."""
    match = _RUN_NAME.fullmatch(run.name)
    return match["series"] if match else None


def require_same_config(directory: Path, found: RunConfig, wanted: RunConfig, *, allow_longer: bool = True) -> None:
    """Raise `UserError` if a directory holds another config. A shorter run can be resumed, so it is no difference."""
    ignore_length = allow_longer or found.env_steps < wanted.env_steps
    difference = first_difference(replace(found, env_steps=wanted.env_steps) if ignore_length else found, wanted)
    if difference:
        raise UserError(f"{directory} was trained with another config ({difference}): choose another --output-dir")


def arm_variants(arm: str) -> Sequence[str]:
    """Return the variants of an arm, in the order in which they are applied."""
    return () if arm == FULL else arm.split("+")


def _full_config(recipe: recipes.Recipe, env_name: str, flags: Sequence[str], size: str | None) -> RunConfig:
    of_env = ["--env.name", env_name] if env_name else []
    return recipes.config_from_flags(recipe, (), [*of_env, *flags], size=size)


def _require_different(configs: Mapping[str, RunConfig]) -> None:
    for (one, config), (other, other_config) in combinations(configs.items(), 2):
        if not first_difference(config, other_config):
            raise UserError(f"--variants: {other} is the same as {one} here: leave it out")


def _series(env_name: str, arm: str) -> str:
    return f"{env_name}-{arm}" if env_name else arm


def _parse(run: Path, benchmark: Benchmark) -> FoundRun | None:
    series = strip_seed_suffix(run)
    for name in benchmark.env_names or [""]:
        arm = (series or "").removeprefix(f"{name}-")
        if series == _series(name, arm) and all(variant in VARIANTS for variant in arm_variants(arm)):
            return FoundRun(name, arm, run)
    return None


def _arm_order(arm: str) -> tuple[int, ...]:
    """Sort key: full, single variants, combinations."""
    variants = arm_variants(arm)
    return len(variants), *map(list(VARIANTS).index, variants)


def _holds_other(directory: Path, what: str) -> UserError:
    return UserError(f"{directory} holds something else ({what}): choose another --output-dir")


def _split(names: str | None) -> list[str]:
    return [name.strip() for name in (names or "").split(",") if name.strip()]


@dataclass
class Outcome:
    """Runs of this call that are not finished."""

    failed: dict[str, str] = field(default_factory=dict)
    """Title -> error, in one line."""
    in_progress: list[str] = field(default_factory=list)
    """Titles of the runs that another process trains."""
    stopped_by: str = ""
    """Name of the signal that stopped the sweep."""


def train_or_resume(run: PlannedRun, quiet: bool, callbacks: Sequence[Callback] = ()) -> Mapping[str, Any]:
    """Train a run, or resume it from its latest checkpoint."""
    if run.status() is RunStatus.STARTED:
        result = run_api.resume_run(run.directory, env_steps=None, quiet=quiet, config=run.config, callbacks=callbacks)
    else:
        metadata = recipes.make_metadata(recipes.load_recipe(run.recipe, run.preset), run.config)
        result = run_api.train_run(run.config, metadata, run_dir=run.directory, quiet=quiet, callbacks=callbacks)
    write_report_if_finished(result)
    return result


def execute(
    runs: Sequence[PlannedRun], *, quiet: bool, train: Callable[[PlannedRun, bool], Mapping[str, Any]]
) -> Outcome:
    """Train or resume the runs that are not finished, one after the other until a signal; report those that fail.

    `train` is a function like `train_or_resume`. Raises `UserError`, before any training, if a directory holds a run
    with another config.
    """
    remaining = [run for run in runs if run.status() is not RunStatus.FINISHED]
    outcome = Outcome()
    for number, run in enumerate(remaining, start=len(runs) - len(remaining) + 1):
        _log(f"[{number}/{len(runs)}] {run.title}")
        try:
            status = run.status()
            if status is RunStatus.FINISHED:  # by another process, since the sweep began
                continue
            if status is RunStatus.PENDING:
                _remove_unstarted(run.directory)
            outcome.stopped_by = train(run, quiet).get("stopped_by", "")
        except RunLockedError:
            outcome.in_progress.append(run.title)
            _log(f"{run.title} is in progress in another process")
        except UserError as error:
            outcome.failed[run.title] = " ".join(str(error).split())
            _log(f"{run.title} failed: {outcome.failed[run.title]}")
        except Exception as error:  # an environment can raise anything; the other runs continue
            outcome.failed[run.title] = describe_error(error)
            traceback.print_exc()
        if outcome.stopped_by:
            break
    return outcome


def _remove_unstarted(directory: Path) -> None:
    """Remove the remains of a process that was killed before its run had a config."""
    if directory.is_dir() and any(directory.iterdir()):
        with lock_run_dir(directory):
            if not all(_precedes_config(entry) for entry in directory.iterdir()):
                raise UserError(f"{directory} holds something else: remove it or choose another --output-dir")
            shutil.rmtree(directory)


def _precedes_config(entry: Path) -> bool:
    return entry.name in _BEFORE_CONFIG or entry.name.startswith(f"{REPLAY}-") or entry.suffix == ".partial"


def _log(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
