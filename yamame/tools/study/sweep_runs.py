"""The runs of a sweep: which ones it consists of, and which of them its directory holds.

A run is named `ARM-seed-N`, or `ENV-ARM-seed-N` where a benchmark has several environments. An arm is `full`, the
unmodified recipe, or an algorithm and variants joined by +.
"""

import difflib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from yamame import recipes
from yamame.algorithms.selection import available_algorithms
from yamame.config.differences import first_difference
from yamame.errors import UserError
from yamame.recipes.settings.presets import VARIANTS
from yamame.run_config import RunConfig
from yamame.runs.directory import CONFIG
from yamame.studies import find_benchmark
from yamame.studies.base import Arm, Panel, Study
from yamame.tools.run_groups import FULL, arm_order, arm_parts, is_arm, strip_seed_suffix
from yamame.tools.study.evaluations import EVALUATIONS
from yamame.tools.study.execute import PlannedRun, require_same_config
from yamame.tools.study.plan import PlannedArm, arm_config, refuse_flags, runs_in_order, seed_runs
from yamame.training.run_files import read_config, read_metadata

CSV, MARKDOWN, JSON, CURVES, SCORES = "results.csv", "results.md", "results.json", "curves.png", "scores.png"
RESULT_FILES = (CSV, MARKDOWN, JSON, CURVES, SCORES, EVALUATIONS)
"""Files of the report, beside the runs."""
_OWN_FLAGS = {
    "--seed": "--seeds",
    "--variant": "--variants",
    "--algorithm": "--variants",
    "--model": "--variants",
    "--run-dir": "--output-dir",
}
"""Flag of `yamame train` -> the flag of the sweep that replaces it."""


@dataclass(frozen=True)
class FoundRun:
    """A run in the directory of a sweep, finished or not."""

    panel: Panel
    arm: str
    directory: Path


def sweep_study(name: str) -> Study:
    """Return the benchmark of a name, or the one task of the recipe of that name; `UserError` if there is neither."""
    if benchmark := find_benchmark(name):
        return benchmark
    recipe = recipes.load_recipe(name).name
    return Study(name=name, title=name, panels=(Panel(title=name, arms=(Arm(label=FULL, recipe=recipe),)),))


def recipe_of(study: Study) -> str:
    """Return the recipe of all panels."""
    return study.panels[0].arms[0].recipe


def choose_panels(study: Study, envs: str | None, difficulty: str | None, all_envs: bool) -> list[Panel]:
    """Return the environments that the flags choose, or the one task of a recipe; `UserError` for bad flags."""
    num_given = sum((envs is not None, difficulty is not None, all_envs))
    if not study.benchmark:
        if num_given:
            raise UserError(f"{study.name} is a single task: leave out --envs, --difficulty and --all")
        return list(study.panels)
    if num_given != 1:
        raise UserError("choose the environments by one of --envs A,B, --difficulty easy|medium|hard and --all")
    if all_envs:
        return list(study.panels)
    if difficulty is not None:
        known = dict.fromkeys(panel.difficulty for panel in study.panels)
        if difficulty not in known:
            raise UserError(f"unknown difficulty {difficulty!r}: choose among {', '.join(known)}")
        return [panel for panel in study.panels if panel.difficulty == difficulty]
    by_name = {panel.title: panel for panel in study.panels}
    chosen = list(dict.fromkeys(_split(envs)))
    if not chosen:
        raise UserError(f"--envs is empty: give names such as {','.join(list(by_name)[:2])}")
    for name in chosen:
        if name not in by_name:
            nearest = difflib.get_close_matches(name, by_name, n=1, cutoff=0.0)[0]
            raise UserError(f"{study.benchmark} has no environment {name!r}: did you mean {nearest!r}?")
    return [by_name[name] for name in chosen]


def choose_arms(variants: str | None, defaults: Sequence[str] = (), *, no_full: bool = False) -> list[str]:
    """Return the arms of `--variants A,B+C`, `full` first.

    Raises `UserError` for no arm, an arm named twice, or one of several algorithms.
    """
    names = list(defaults) if variants is None else _split(variants)
    if (variants is not None or no_full) and not names:
        raise UserError(f"--variants: name what to compare, such as {','.join(list(VARIANTS)[:2])}")
    if FULL in names and no_full:
        raise UserError(f"{FULL} is named by --variants and excluded by --no-full: leave one out")
    arms = [name for name in names if name != FULL]
    seen: dict[frozenset[str], str] = {}
    for arm in arms:
        parts = frozenset(arm_parts(arm))
        if len(parts) < len(arm_parts(arm)):
            raise UserError(f"--variants: {arm} names a variant twice")
        if len(parts.intersection(available_algorithms())) > 1:
            raise UserError(f"--variants: {arm} names several algorithms: an arm has one")
        if parts in seen:
            raise UserError(f"--variants: {seen[parts]} is named twice (as {arm}): leave one out")
        seen[parts] = arm
    return arms if no_full else [FULL, *arms]


def choose_arm_flags(texts: Sequence[str], arms: Sequence[str]) -> dict[str, list[str]]:
    """Return the flags of each arm of `--arm-flags "ARM --FIELD VALUE"`.

    Raises `UserError` for an arm that is not in `arms` or is named twice, and for one without flags.
    """
    chosen: dict[str, list[str]] = {}
    for text in texts:
        try:
            arm, *flags = shlex.split(text)
        except ValueError as error:
            raise UserError(f"--arm-flags {text!r}: give an arm and its flags, such as 'ppo --num-envs 8'") from error
        if arm not in arms:
            raise UserError(f"--arm-flags: {arm!r} is no arm of this sweep: choose among {', '.join(arms)}")
        if arm in chosen:
            raise UserError(f"--arm-flags: {arm} is named twice: give all its flags in one word")
        if not flags:
            raise UserError(f"--arm-flags: {arm} has no flags: give them in the same quoted word")
        chosen[arm] = flags
    return chosen


def plan_sweep(
    study: Study,
    directory: Path,
    *,
    panels: Sequence[Panel],
    arms: Sequence[str],
    seeds: Sequence[int],
    flags: Sequence[str] = (),
    arm_flags: Mapping[str, Sequence[str]] = {},
    preset: str = recipes.SMALL,
    size: str | None = None,
) -> list[PlannedRun]:
    """Return every environment and arm with every seed, all of them before the second seed.

    Preset, size and flags make the recipe of the arm's algorithm, to which the variants are applied: a flag may concern
    what a variant removes, and cannot undo the variant. `arm_flags` are further flags of single arms, which cannot
    change the task. Raises `UserError` for bad flags, for arms that do not differ, and if the directory holds something
    else, such as other runs of these environments with another config.
    """
    own_flags = {**_OWN_FLAGS, **({"--env.name": "--envs"} if study.benchmark else {})}
    refuse_flags(flags, own_flags, "sweep")
    for arm, added in arm_flags.items():
        refuse_flags(added, own_flags, "sweep")
        if of_task := next((flag for flag in added if flag.startswith("--env.")), None):
            raise UserError(f"--arm-flags: {arm}: {of_task} changes the task: all arms have the same one")
    planned = []
    for panel in panels:
        configs = {arm: _config_of(panel, arm, preset, flags, arm_flags, size) for arm in arms}
        _require_different(configs)
        for arm, config in configs.items():
            of_panel, name = panel_arm(panel, arm), _series(study, panel, arm)
            runs = seed_runs(of_panel, config, seeds, name=name, preset=preset, directory=directory)
            planned.append(PlannedArm(arm=of_panel, config=config, runs=runs))
    for found in find_runs(directory, study):
        if found.panel in panels:
            config = read_config(found.directory)
            wanted = _config_of(found.panel, found.arm, preset, flags, arm_flags, size)
            require_same_config(found.directory, config, replace(wanted, seed=config.seed))
    return runs_in_order(planned)


def find_runs(directory: Path, study: Study) -> list[FoundRun]:
    """Return all runs in the directory of a sweep, in the order of environments and arms; none without a directory.

    Raises `UserError` for a directory that is a run itself, that holds a run of something else, or that holds
    anything but parts of a sweep.
    """
    if not directory.is_dir():
        return []
    if (directory / CONFIG).exists():
        raise UserError(f"{directory} is a run itself: choose another --output-dir")
    entries = sorted(entry for entry in directory.iterdir() if not entry.name.startswith("."))
    known = {entry: _parse(entry, study) for entry in entries}
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
            if recipe != recipe_of(study):
                raise _holds_other(directory, f"{entry.name} of {recipe}")
            runs.append(found)
    return sorted(runs, key=lambda run: (study.panels.index(run.panel), arm_order(run.arm)))


def panel_arm(panel: Panel, arm: str) -> Arm:
    """Return an arm of an environment. The paper's score is that of the full one."""
    full, known = panel.arms[0], available_algorithms()
    return replace(
        full,
        label=arm,
        algorithm=next((part for part in arm_parts(arm) if part in known), full.algorithm),
        variants=tuple(part for part in arm_parts(arm) if part not in known),
        published=full.published if arm == FULL else None,
    )


def _config_of(
    panel: Panel,
    arm: str,
    preset: str,
    flags: Sequence[str],
    arm_flags: Mapping[str, Sequence[str]],
    size: str | None,
) -> RunConfig:
    """Return the config of an arm. If it has another algorithm or flags of its own, an error names it."""
    of_panel, added = panel_arm(panel, arm), arm_flags.get(arm, ())
    try:
        return arm_config(of_panel, preset, [*flags, *added], size)
    except UserError as error:
        if of_panel.algorithm is None and not added:
            raise
        raise UserError(f"{arm}: {error}") from error


def _require_different(configs: Mapping[str, RunConfig]) -> None:
    for (one, config), (other, other_config) in combinations(configs.items(), 2):
        if not first_difference(config, other_config):
            raise UserError(f"--variants: {other} is the same as {one} here: leave it out")


def _series(study: Study, panel: Panel, arm: str) -> str:
    return f"{panel.title}-{arm}" if study.benchmark else arm


def _parse(run: Path, study: Study) -> FoundRun | None:
    series = strip_seed_suffix(run) or ""
    for panel in study.panels:
        arm = series.removeprefix(f"{panel.title}-") if study.benchmark else series
        if series == _series(study, panel, arm) and is_arm(arm):
            return FoundRun(panel, arm, run)
    return None


def _holds_other(directory: Path, what: str) -> UserError:
    return UserError(f"{directory} holds something else ({what}): choose another --output-dir")


def _split(names: str | None) -> list[str]:
    return [name.strip() for name in (names or "").split(",") if name.strip()]
