"""Which runs a comparison consists of: its arms differ from the full recipe by their variants alone."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from yamame.config import RunConfig
from yamame.config_io import settings_difference
from yamame.errors import UserError
from yamame.presets import apply_variants
from yamame.recipe_loader import load_recipe, settings_from_flags
from yamame.runs import read_config
from yamame.tools.ablate.arms import FULL, Arm
from yamame.tools.ablate.found import found_runs
from yamame.tools.many.planned_run import PlannedRun, plan_runs, require_same_settings
from yamame.tools.many.words import refuse_own_flags

_OF_THE_COMPARISON = {"--seed": "--seeds", "--variant": "--variants", "--run-dir": "--output-dir"}


def plan(
    recipe: str,
    arms: Sequence[Arm],
    seeds: Sequence[int],
    directory: Path,
    *,
    flags: Sequence[str] = (),
    size: str | None = None,
) -> list[PlannedRun]:
    """Every arm with every seed, all arms before the second seed.

    Size and flags make the full recipe, variants are applied to that: so a flag may concern what a variant removes,
    and cannot undo it. Raises `UserError` for flags that no run can have, for arms that do not differ, and where the
    folder holds something else, other arms with other settings included.
    """
    refuse_own_flags(flags, _OF_THE_COMPARISON, "comparison")
    full = settings_from_flags(load_recipe(recipe), (), flags, size=size)
    configs = {arm.name: apply_variants(full, arm.variants) for arm in arms}
    _require_different({FULL: full, **configs})
    for run in found_runs(directory, recipe):
        config = read_config(run.directory)
        wanted = replace(apply_variants(full, run.arm.variants), seed=config.seed)
        require_same_settings(run.directory, config, wanted)
    return plan_runs(recipe, configs, seeds, directory)


def _require_different(configs: Mapping[str, RunConfig]) -> None:
    for (one, of_one), (other, of_other) in combinations(configs.items(), 2):
        if not settings_difference(of_one, of_other):
            what = "changes nothing here" if one == FULL else f"is the same as {one} here"
            raise UserError(f"--variants: {other} {what}: leave it out")
