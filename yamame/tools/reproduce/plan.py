"""The runs of an experiment: their configs and directories. Experiments share runs of the same agent and task."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from yamame.algorithms.amago.config import AMAGOConfig
from yamame.errors import UserError
from yamame.experiments import Arm, Experiment
from yamame.recipes import config_from_flags, load_recipe
from yamame.recipes.settings.presets import VARIANTS, apply_variants
from yamame.run_config import RunConfig
from yamame.runs.directory import CONFIG
from yamame.tools.sweep.runs import PlannedRun
from yamame.training.run_files import RunResult, read_result

RUNS = "runs"
"""Directory of all runs, in that of all experiments with one preset and budget."""
_MAX_NAME = 100


@dataclass(frozen=True, kw_only=True)
class PlannedArm:
    """An arm with a run for each seed."""

    arm: Arm
    runs: Sequence[PlannedRun] = ()
    skipped: str = ""
    """Why it has no runs: its variants change nothing in this preset."""

    @property
    def config(self) -> RunConfig:
        """Config of the first seed."""
        return self.runs[0].config


def plan_arms(
    experiment: Experiment,
    directory: Path,
    *,
    preset: str,
    seeds: Sequence[int],
    budget: float = 1.0,
    flags: Sequence[str] = (),
    size: str | None = None,
) -> list[PlannedArm]:
    """Return all arms of an experiment, each once, in their order. Raises `UserError` for bad flags.

    Args:
        experiment: Figure or table.
        directory: Directory of all experiments with this preset and budget.
        preset: Preset of the recipes.
        seeds: Seeds of each arm.
        budget: Fraction of the environment steps of the recipes.
        flags: Flags for all runs, after those of the arms.
        size: Network size; None: that of the preset.
    """
    arms = dict.fromkeys((arm.recipe, arm.flags, arm.variants) for arm in experiment.arms)
    by_key = {(arm.recipe, arm.flags, arm.variants): arm for arm in reversed(experiment.arms)}
    return [_plan_arm(by_key[key], directory, preset, seeds, budget, flags, size) for key in arms]


def scale_budget(config: RunConfig, fraction: float) -> RunConfig:
    """Return a run with a fraction of the environment steps, and schedules shortened with it."""

    def scaled(number: int) -> int:
        return max(1, round(number * fraction)) if number else 0

    if fraction == 1.0:
        return config
    if isinstance(config.algorithm, AMAGOConfig):
        learner = config.algorithm.learner
        learner = replace(
            learner,
            lr_warmup_updates=scaled(learner.lr_warmup_updates),
            lr_decay_updates=scaled(learner.lr_decay_updates),
        )
        config = replace(config, algorithm=replace(config.algorithm, learner=learner))
    anneal = getattr(config.exploration, "anneal_env_steps", 0)
    annealed: dict[str, Any] = {"anneal_env_steps": scaled(anneal)} if anneal else {}
    milestones = scaled(config.checkpoint.milestone_interval_env_steps)
    return replace(
        config,
        env_steps=scaled(config.env_steps),
        learning_starts=scaled(config.learning_starts),
        exploration=replace(config.exploration, **annealed),
        eval=replace(config.eval, interval_env_steps=scaled(config.eval.interval_env_steps)),
        checkpoint=replace(config.checkpoint, milestone_interval_env_steps=milestones),
    )


def _plan_arm(
    arm: Arm, directory: Path, preset: str, seeds: Sequence[int], budget: float, flags: Sequence[str], size: str | None
) -> PlannedArm:
    recipe = load_recipe(arm.recipe, preset)
    for flag in (flag.partition("=")[0] for flag in flags):
        if flag in ("--seed", "--env-steps", "--variant", "--run-dir"):
            raise UserError(f"{flag} is set by the experiment: use --seeds, --budget or --output-dir")
    config = config_from_flags(recipe, (), [*arm.flags, *flags], size=size)
    for variant in arm.variants:
        if VARIANTS[variant](config) == config:
            return PlannedArm(arm=arm, skipped=f"{variant} changes nothing in the preset {preset}")
        config = apply_variants(config, [variant])
    config = scale_budget(config, budget)
    name = run_name(arm)
    runs = [
        PlannedRun(
            recipe=arm.recipe,
            preset=preset,
            series=name,
            config=replace(config, seed=seed),
            directory=directory / RUNS / f"{name}-seed-{seed}",
        )
        for seed in seeds
    ]
    return PlannedArm(arm=arm, runs=runs)


def finished_result(run: PlannedRun) -> RunResult | None:
    """Return the result of a run; None if it is not finished, or not started."""
    return read_result(run.directory) if (run.directory / CONFIG).exists() else None


def run_name(arm: Arm) -> str:
    """Return the name of an arm's runs without the seed, such as `crafter-env.horizon-2000+no-memory`."""
    flags = re.sub(r"[^\w.]+", "-", " ".join(arm.flags)).strip("-")
    name = "+".join(["-".join(filter(None, (arm.recipe, flags))), *arm.variants])
    if len(name) <= _MAX_NAME:
        return name
    return f"{name[:_MAX_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
