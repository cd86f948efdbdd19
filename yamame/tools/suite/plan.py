"""Which runs a suite consists of."""

from collections.abc import Sequence
from pathlib import Path

from yamame.envs.popgym import POPGYM_NAMES, validate_name
from yamame.errors import UserError
from yamame.recipe_loader import load_recipe, settings_from_flags
from yamame.tools.many.planned_run import PlannedRun, plan_runs
from yamame.tools.many.words import refuse_own_flags

RECIPE = "popgym"
LEVELS = ("easy", "medium", "hard")
_OF_THE_SUITE = {"--env.name": "--envs", "--seed": "--seeds"}


def chosen_names(names: str | None, level: str | None, everything: bool) -> list[str]:
    """The environments that the flags choose; `UserError` for none, for several ways at once and for unknown names."""
    if sum((names is not None, level is not None, everything)) != 1:
        raise UserError("choose the environments by one of --envs A,B, --difficulty easy|medium|hard and --all")
    if names is not None:
        chosen = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
        if not chosen:
            raise UserError("--envs is empty: give names such as RepeatPreviousEasy,AutoencodeEasy")
        for name in chosen:
            validate_name(name)
        return chosen
    if level is not None and level not in LEVELS:
        raise UserError(f"unknown level {level!r}: choose among {', '.join(LEVELS)}")
    return [name for name in POPGYM_NAMES if level is None or name.endswith(level.capitalize())]


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
    refuse_own_flags(flags, _OF_THE_SUITE, "suite")
    recipe = load_recipe(RECIPE)
    configs = {name: settings_from_flags(recipe, variants, ["--env.name", name, *flags], size=size) for name in names}
    return plan_runs(RECIPE, configs, seeds, directory)
