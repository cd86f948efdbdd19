"""Recipes: every module of this package is one, with functions `config(env=TASK) -> RunConfig` and `paper(env=TASK)`.

`config` is the preset `small`, for a CPU; `paper` has the settings of the paper. The constant `RECIPE` has what a run
costs and reaches, the docstring its source and what differs from the paper. What recipes share is in `settings/`.
A preset of a recipe, an algorithm, a size, variants and flags or overrides make the config of a run.
"""

import difflib
import importlib
import inspect
import pkgutil
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import chain
from textwrap import fill
from typing import Any

from yamame.config.differences import diff_configs, flatten_config
from yamame.config.flags import group_by_flag, parse_flags
from yamame.config.overrides import apply_overrides
from yamame.envs.config import EnvConfig
from yamame.envs.env_fn import EnvFnConfig
from yamame.envs.gymnasium import GymnasiumConfig, is_env_id
from yamame.errors import UserError
from yamame.recipes.settings.paper import paper_config
from yamame.recipes.settings.presets import (
    apply_algorithm,
    apply_presets,
    default_config,
    imitate_offline_data,
)
from yamame.run_config import RunConfig, experiment_settings
from yamame.training.run_files import RunMetadata

SMALL, PAPER = "small", "paper"
PRESETS = {SMALL: "config", PAPER: "paper"}
"""Preset -> the function of a recipe's module."""


@dataclass(frozen=True, kw_only=True)
class RecipeInfo:
    """What a run of a recipe costs and reaches."""

    summary: str
    """The task, in one sentence."""
    command: str
    """Command that trains with the recipe's own settings."""
    minutes: str = ""
    """Minutes of training on two CPU cores, in a few characters; "": not known."""
    score: str
    """Result of such a run and of random actions, in a few characters."""
    cost: str
    """Time and memory, in words."""
    expected: Mapping[str, str] = field(default_factory=dict)
    """Flags -> the result that was measured with them, of the preset `small`; "": the recipe's own settings."""

    @property
    def expected_text(self) -> str:
        """All results that were measured, in one sentence."""
        results = [f"with {flags}: {result}" if flags else result for flags, result in self.expected.items()]
        return "; ".join(results) or "not measured"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """An experiment by name, with one of its presets."""

    name: str
    preset: str
    env: EnvConfig
    """The default task."""
    make_config: Callable[..., RunConfig]
    """Returns the config for a task of the same class. Defaults of other fields can depend on the task and, where the
    function takes `env_steps`, on the number of steps."""
    info: RecipeInfo
    notes: str
    """Docstring of the module: source, and what differs from the paper."""
    algorithm: str | None = None
    """Algorithm that replaces the recipe's own, for which no results were measured; None: the recipe's own."""

    @property
    def description(self) -> str:
        """All that `yamame recipes NAME` prints."""
        info = self.info
        extra = self.env.required_extra
        lines = [info.summary, "", *([f"Install: pip install 'yamame[{extra}]'"] if extra else [])]
        lines += [f"Command: {info.command}", f"Score: {info.score}", f"Cost: {info.cost}"]
        lines += [
            f"Expected with {flags}: {result}" if flags else f"Expected: {result}"
            for flags, result in info.expected.items()
        ]
        return "\n".join([*(fill(line, 120, subsequent_indent="    ") for line in lines), "", self.notes])

    def config_for(self, env: EnvConfig, env_steps: int | None) -> RunConfig:
        """Return the config for a task and a number of steps; None, or a recipe with a fixed number: the recipe's."""
        if env_steps is None or "env_steps" not in inspect.signature(self.make_config).parameters:
            return self.make_config(env)
        return self.make_config(env, env_steps=env_steps)

    def expected_result(self, config: RunConfig) -> str:
        """Return the result that was measured with the settings of a run, in words; "" if there is none."""
        if self.preset != SMALL or self.algorithm is not None:
            return ""
        settings = experiment_settings(flatten_config(config), with_length=True)
        for flags, result in self.info.expected.items():
            measured = config_from_flags(self, [], shlex.split(flags))
            if experiment_settings(flatten_config(measured), with_length=True) == settings:
                return result
        return ""


def recipe_names() -> tuple[str, ...]:
    """Return the names of all recipes, sorted."""
    modules = (module for module in pkgutil.iter_modules(__path__) if not module.ispkg)
    return tuple(sorted(module.name.replace("_", "-") for module in modules))


@cache
def load_recipe(name: str, preset: str = SMALL) -> Recipe:
    """Return the recipe of a name. Raises `UserError` with the nearest name if there is none, or no such preset."""
    if name not in recipe_names():
        if is_env_id(name):
            raise UserError(f"{name} is a Gymnasium id, not a recipe: yamame train --env {name}")
        if ":" in name:
            raise UserError(f"{name} is an environment, not a recipe: yamame train --env {name}")
        nearest = [other for other in recipe_names() if name and name in other]
        nearest = nearest or difflib.get_close_matches(name, recipe_names(), n=1, cutoff=0.5)
        hint = f"did you mean {' or '.join(map(repr, nearest))}?" if nearest else "yamame recipes lists them"
        raise UserError(f"unknown recipe {name!r}: {hint}")
    check_preset(preset)
    module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    make_config = getattr(module, PRESETS[preset])
    return Recipe(
        name=name,
        preset=preset,
        env=inspect.signature(make_config).parameters["env"].default,
        make_config=make_config,
        info=module.RECIPE,
        notes=inspect.cleandoc(module.__doc__ or ""),
    )


def own_recipe(env: EnvFnConfig | GymnasiumConfig, preset: str = SMALL) -> Recipe:
    """Return the default agent on an environment of the user as a recipe. Raises `UserError` for an unknown preset."""
    check_preset(preset)
    info = RecipeInfo(
        summary="An environment of yours, with the settings of the default agent.",
        command="yamame train --env MODULE:FUNCTION",
        score="depends on the environment",
        cost="depends on the environment",
    )
    make_config = _small_config if preset == SMALL else _paper_config
    return Recipe(name=env.task_name, preset=preset, env=env, make_config=make_config, info=info, notes="")


def with_algorithm(recipe: Recipe, name: str | None) -> Recipe:
    """Return the recipe with another algorithm: its task and networks, and the algorithm's own settings otherwise.

    Unchanged for None and for the algorithm that it has. Raises `UserError` for an unknown name.
    """
    if name is None or apply_algorithm(own := recipe.make_config(recipe.env), name) is own:
        return recipe
    return replace(recipe, make_config=partial(_config_with_algorithm, recipe, name), algorithm=name)


def _config_with_algorithm(recipe: Recipe, name: str, env: EnvConfig, *, env_steps: int | None = None) -> RunConfig:
    config = recipe.config_for(env, env_steps)
    return apply_algorithm(config if env_steps is None else replace(config, env_steps=env_steps), name)


def _small_config(env: EnvConfig, *, env_steps: int = 300_000) -> RunConfig:
    return _with_required_num_envs(default_config(env, env_steps=env_steps))


def _paper_config(env: EnvConfig) -> RunConfig:
    return _with_required_num_envs(paper_config(env))


def _with_required_num_envs(config: RunConfig) -> RunConfig:
    required = config.env.required_num_envs
    return config if required is None else replace(config, num_envs=required)


def check_preset(name: str) -> None:
    """Raise `UserError` for an unknown preset."""
    if name not in PRESETS:
        raise UserError(f"unknown preset {name!r}: choose among {', '.join(PRESETS)}")


def check_argument_order(recipe: str, rest: Sequence[str], command: str) -> None:
    """Raise `UserError` where the first argument is no recipe and a later one is."""
    if recipe not in recipe_names() and any(word in recipe_names() for word in rest):
        raise UserError(f"the recipe comes before its flags: yamame {command} RECIPE --field value")


def config_from_flags(
    recipe: Recipe,
    variants: Sequence[str],
    flags: Sequence[str],
    *,
    size: str | None = None,
    model: str | None = None,
) -> RunConfig:
    """Return the config for `--field value` flags: first those of the task and its number of steps, then what purely
    offline data needs (small preset), size, model, variants and other flags.

    Raises `UserError` for flags that are unknown or do not fit.
    """
    prog = f"yamame train {recipe.name}"
    early = [
        [flag, *words] for flag, words in group_by_flag(flags) if flag.startswith("--env.") or flag == "--env-steps"
    ]
    config = recipe.make_config(recipe.env)
    if early:
        parsed = parse_flags(config, list(chain.from_iterable(early)), prog)
        env_steps = parsed.env_steps if any(flag == "--env-steps" for flag, *_ in early) else None
        config = recipe.config_for(parsed.env, env_steps)
    offline = [[flag, *words] for flag, words in group_by_flag(flags) if flag.startswith("--offline.")]
    if offline and recipe.preset == SMALL:
        config = imitate_offline_data(parse_flags(config, list(chain.from_iterable(offline)), prog))
    return parse_flags(apply_presets(config, variants, size=size, model=model), flags, prog)


def config_from_overrides(
    recipe: Recipe,
    variants: Sequence[str],
    overrides: Mapping[str, Any],
    *,
    size: str | None = None,
    model: str | None = None,
) -> RunConfig:
    """Return the config for `{"env.horizon": 60, "agent": {...}}`, applied in the same order as flags."""
    early = {name: value for name, value in overrides.items() if name.partition(".")[0] in ("env", "env_steps")}
    applied = apply_overrides(recipe.make_config(recipe.env), early)
    others = {name: value for name, value in overrides.items() if name.partition(".")[0] != "env"}
    env_steps = applied.env_steps if "env_steps" in early else None
    config = recipe.config_for(applied.env, env_steps)
    if recipe.preset == SMALL:
        offline = {name: value for name, value in overrides.items() if name.partition(".")[0] == "offline"}
        config = imitate_offline_data(apply_overrides(config, offline))
    config = apply_presets(config, variants, size=size, model=model)
    return apply_overrides(config, others)


def make_metadata(recipe: Recipe, config: RunConfig, command: Sequence[str] = ()) -> RunMetadata:
    """Return what a run stores about its origin: the recipe, the command, and the fields that differ from the recipe.

    The task is compared with the recipe's own, the number of steps with that for this task, and all else with the
    recipe's config for both and for the algorithm.
    """
    steps = recipe.make_config(config.env).env_steps, config.env_steps
    of_steps = {"env_steps": steps} if steps[0] != steps[1] else {}
    of_task = {f"env.{path}": pair for path, pair in diff_configs(recipe.env, config.env).items()}
    of_algorithm = {} if recipe.algorithm is None else {"algorithm": (None, recipe.algorithm)}
    return RunMetadata(
        recipe=recipe.name,
        preset=recipe.preset,
        expected=recipe.expected_result(config),
        command=shlex.join(command),
        overrides={
            **of_algorithm,
            **of_task,
            **of_steps,
            **diff_configs(recipe.config_for(config.env, config.env_steps), config),
        },
    )
