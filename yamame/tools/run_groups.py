"""Groups of runs of one experiment, such as seeds, and their labels."""

import contextlib
import json
import re
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

from yamame.algorithms.selection import algorithm_name, available_algorithms
from yamame.config.differences import flatten_config
from yamame.errors import UserError
from yamame.metrics.registry import read_metrics
from yamame.recipes.settings.presets import VARIANTS
from yamame.run_config import RunConfig, experiment_settings
from yamame.runs.checkpoint import list_checkpoints
from yamame.runs.directory import BEST, CHECKPOINTS, CONFIG, MILESTONES, resolve_run_dir
from yamame.training.run_files import random_baseline_return, read_config, read_metadata, read_result

FULL = "full"
"""Arm of a sweep without variants."""
MAX_DIFFERENCES = 2
"""Differences named in a label; more are counted."""
_SEPARATORS = " -_/.="
_RUN_NAME = re.compile(r"(?P<series>.+)-seed-\d+")
_PARTS = (*available_algorithms(), *VARIANTS)
"""What the name of an arm consists of, joined by +."""
_PART = f"(?:{'|'.join(sorted(map(re.escape, _PARTS), key=len, reverse=True))})"
_ARM = re.compile(rf"(?:^|-)({FULL}|{_PART}(?:\+{_PART})*)$")
_Run = TypeVar("_Run")
Settings = dict[str, Any]
"""Path of a field -> its value, of the fields that play a part in results."""


def seed_suffix(seed: int) -> str:
    """Return the end of the name of a run directory that says its seed."""
    return f"-seed-{seed}"


def strip_seed_suffix(run: Path) -> str | None:
    """Return what the name of a run directory says before `-seed-N`; None for another name."""
    match = _RUN_NAME.fullmatch(run.name)
    return match["series"] if match else None


def arm_parts(arm: str) -> Sequence[str]:
    """Return the names of which an arm consists: algorithms, and variants in the order in which they are applied."""
    return () if arm == FULL else arm.split("+")


def is_arm(arm: str) -> bool:
    """Return whether every part of an arm is an algorithm or a variant."""
    return all(part in _PARTS for part in arm_parts(arm))


def arm_order(arm: str) -> tuple[int, ...]:
    """Return a sort key: full, single algorithms, single variants, combinations."""
    parts = arm_parts(arm)
    return len(parts), *map(_PARTS.index, parts)


def arm_of(run: Path) -> str | None:
    """Return the arm in the name of a run of a sweep, `ARM-seed-N` or `ENV-ARM-seed-N`; None for another name."""
    series = strip_seed_suffix(run)
    match = None if series is None else _ARM.search(series)
    return match[1] if match else None


def color_numbers(runs: Sequence[Path]) -> list[int]:
    """Return the number of the color of each line, given by one run of each.

    The lines of different arms in the directory of a sweep have their colors in all figures and in the viewer, also if
    only some are shown. Other lines are numbered in their order.
    """
    arms = [arm_of(run) for run in runs]
    folders = {run.parent.resolve() for run in runs}
    if None in arms or len(folders) != 1 or len(set(arms)) < len(arms):
        return list(range(len(runs)))
    order = arms_in(*folders)
    return [order.index(arm) for arm in arms if arm is not None]


def arms_in(directory: Path) -> list[str]:
    """Return the arms of the runs in the directory of a sweep, in the order of their colors."""
    found = {arm for entry in directory.iterdir() if (arm := arm_of(entry)) is not None}
    return sorted(found, key=arm_order)


def make_labels(experiments: Sequence[tuple[str, RunConfig]]) -> list[str]:
    """Return a label for each (recipe, config): the recipe, or the difference from the base of the recipe.

    The base is the experiment from which most others are one variant away, the first of them if there are several.
    """
    is_one_recipe = len({recipe for recipe, _ in experiments}) == 1
    return [
        (text if is_one_recipe else f"{recipe}: {text}") if text else recipe
        for (recipe, _), text in zip(experiments, _differences_by_recipe(experiments), strict=True)
    ]


def common_name(names: Sequence[str]) -> str:
    """Return the common start of names without a number or `seed` at its end; "" if fewer than three letters remain."""
    if len(set(names)) == 1:
        return names[0]
    letters = takewhile(lambda equal: len(set(equal)) == 1, zip(*names, strict=False))
    common = "".join(letter for letter, *_ in letters).rstrip(_SEPARATORS + "0123456789")
    common = common.removesuffix("seed").rstrip(_SEPARATORS)
    return common if len(common) > 2 else ""


def _differences_by_recipe(experiments: Sequence[tuple[str, RunConfig]]) -> list[str]:
    """Return the difference of each experiment from the base of its recipe; empty for the base.

    Where a recipe has several algorithms, it is the algorithm and the difference from the base among its runs.
    """
    texts: dict[int, str] = {}
    for recipe in dict.fromkeys(recipe for recipe, _ in experiments):
        by_algorithm: dict[str, list[int]] = {}
        for number, (of, config) in enumerate(experiments):
            if of == recipe:
                by_algorithm.setdefault(algorithm_name(config.algorithm), []).append(number)
        for algorithm, numbers in by_algorithm.items():
            name = algorithm if len(by_algorithm) > 1 else ""
            of_algorithm = _differences_from_base([experiments[number][1] for number in numbers])
            texts |= {
                number: ": ".join(filter(None, (name, text)))
                for number, text in zip(numbers, of_algorithm, strict=True)
            }
    return [texts[number] for number in range(len(experiments))]


def _differences_from_base(configs: Sequence[RunConfig]) -> list[str]:
    """Return the difference of each config from the base; empty for the base."""
    if len(configs) == 1:
        return [""]
    settings = [_settings(config) for config in configs]
    variants = [_variants(config) for config in configs]
    num_explained = [
        sum(each != own and each in made.values() for each in settings)
        for own, made in zip(settings, variants, strict=True)
    ]
    base = num_explained.index(max(num_explained))
    names = [next((name for name, made in variants[base].items() if made == each), "") for each in settings]
    return [
        "" if number == base else names[number] or _differences(settings[base], each)
        for number, each in enumerate(settings)
    ]


def _settings(config: RunConfig) -> Settings:
    return experiment_settings(flatten_config(config))


def _variants(base: RunConfig) -> dict[str, Settings]:
    """Return the settings after each variant that applies to the task."""
    made = {}
    for name, apply in VARIANTS.items():
        with contextlib.suppress(UserError):
            made[name] = _settings(apply(base))
    return made


def _differences(base: Settings, other: Settings) -> str:
    apart = [path for path in {**base, **other} if base.get(path) != other.get(path)]
    texts = [f"{_short(path, apart)} {_value(other.get(path))}" for path in apart[:MAX_DIFFERENCES]]
    more = len(apart) - len(texts)
    return ", ".join(texts) + (f" and {more} more" if more else "")


def _short(path: str, paths: Sequence[str]) -> str:
    """The shortest end of a path that distinguishes it from the others."""
    parts = path.split(".")
    for count in range(1, len(parts)):
        end = ".".join(parts[-count:])
        if parts[-count] != "type" and sum(f".{other}".endswith(f".{end}") for other in paths) == 1:
            return end
    return path


def _value(value: object) -> str:
    text = json.dumps(value) if not isinstance(value, str) else value.rpartition(":")[2]
    return text if len(text) <= 24 else f"{text[:23]}…"


@dataclass(frozen=True)
class Group:
    """The runs of one experiment."""

    label: str
    runs: Sequence[Path]


def resolve_runs(paths: Sequence[Path]) -> list[Path]:
    """Return the runs among the paths and in the directories among them, each once. Raises `UserError` for others."""
    runs: dict[Path, None] = {}
    for path in paths:
        inside = sorted(config.parent for config in path.glob(f"*/{CONFIG}")) if path.is_dir() else []
        found = inside if inside and not (path / CONFIG).exists() else [resolve_run_dir(path)]
        runs |= dict.fromkeys(found)
    if not runs:
        raise UserError("no run was given: yamame figure NAME RUN… --output FILE")
    return list(runs)


def single_run(paths: Sequence[Path]) -> Path:
    """Return the only run. Raises `UserError` for several or none."""
    runs = resolve_runs(paths)
    if len(runs) > 1:
        raise UserError(f"this figure shows one run, got {len(runs)}: remove {runs[1]}")
    return runs[0]


def group_by_seed(paths: Sequence[Path]) -> list[Group]:
    """Return the groups in the order of their first runs, with one run for each seed: the longest one.

    A label is the name that the folders of a group share (`NAME-seed-0`, as `yamame sweep` does) and, unless the name
    has it, the variant or the difference of the settings. A group whose folders share no name has the recipe for it, as
    has a single group whose folder is not called `NAME-seed-0`.
    """
    members: dict[tuple, list[Path]] = {}
    configs: dict[tuple, tuple[str, RunConfig]] = {}
    seeds: dict[Path, int] = {}
    for run in resolve_runs(paths):
        config, recipe = read_config(run), read_metadata(run).recipe
        if recipe == "gymnasium":  # which is that of all environments
            recipe = config.env.task_name
        experiment = (recipe, *((path, repr(value)) for path, value in _settings(config).items()))
        members.setdefault(experiment, []).append(run)
        seeds[run] = config.seed
        configs.setdefault(experiment, (recipe, config))
    for experiment, runs in members.items():
        by_seed = longest_by_seed(runs, seed=seeds.__getitem__, length=_length)
        members[experiment] = [longest for longest, _ in by_seed]
        for longest, others in by_seed:
            for run in others:
                print(f"{run} is left out: {longest} has the same seed and settings", file=sys.stderr)
    is_one = len(members) == 1
    names = [
        common_name([strip_seed_suffix(run) or ("" if is_one else run.name) for run in runs])
        for runs in members.values()
    ]
    experiments = list(configs.values())
    differences, unnamed = _differences_by_recipe(experiments), make_labels(experiments)
    labels = [
        _with_difference(name, text) if name else label
        for name, text, label in zip(names, differences, unnamed, strict=True)
    ]
    return _make_unique(dict(zip(members, labels, strict=True)), members)


def common_random_return(groups: Sequence[Group]) -> float | None:
    """Return the mean return of random actions in the first run; None if it is unknown or the groups differ in task."""
    tasks = [
        {path: repr(value) for path, value in _settings(read_config(group.runs[0])).items() if path.startswith("env.")}
        for group in groups
    ]
    return random_baseline_return(groups[0].runs[0]) if all(task == tasks[0] for task in tasks) else None


def longest_by_seed(
    runs: Sequence[_Run], *, seed: Callable[[_Run], Hashable], length: Callable[[_Run], Any]
) -> list[tuple[_Run, list[_Run]]]:
    """Return the longest run of each seed and the others of its seed, in the order of their first runs."""
    by_seed: dict[Hashable, list[_Run]] = {}
    for run in runs:
        by_seed.setdefault(seed(run), []).append(run)
    longest = [max(same, key=length) if len(same) > 1 else same[0] for same in by_seed.values()]
    return [
        (best, [run for run in same if run is not best]) for best, same in zip(longest, by_seed.values(), strict=True)
    ]


def _length(run: Path) -> tuple[float, bool]:
    """Return the last logged environment steps, and whether the run is finished."""
    last = max((line["env_steps"] for line in read_metrics(run)), default=0)
    return float(last), read_result(run) is not None


def _with_difference(name: str, difference: str) -> str:
    """Return a name followed by the parts of a difference that it does not have."""
    missing = [part for part in difference.split(": ") if _letters(part) not in _letters(name)]
    return ": ".join([name, *missing])


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text)).lower()


def _make_unique(labels: Mapping[tuple, str], members: Mapping[tuple, Sequence[Path]]) -> list[Group]:
    """Return the groups; equal labels are followed by the name of a folder."""
    given = list(labels.values())
    return [
        Group(label if given.count(label) == 1 else f"{label} ({members[key][0].name})", members[key])
        for key, label in labels.items()
    ]


def list_kept_checkpoints(run: Path) -> list[Path]:
    """Return milestones, the best and the latest checkpoints by number of updates, each number once."""
    folders = [run / folder for folder in (CHECKPOINTS, BEST, MILESTONES)]
    by_updates = {path.name: path for folder in folders for path in list_checkpoints(folder)}
    return [by_updates[name] for name in sorted(by_updates) if not name.endswith(".replaced")]


def checkpoint_updates(checkpoint: Path) -> int:
    """Return the number of updates of a checkpoint."""
    return int(checkpoint.name.partition("-")[2])
