"""Rows of `paper_runs.py`: the paper's tasks at the paper's number of environment steps."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from yamame.collect.exploration import NoExploration
from yamame.config.serialization import to_json
from yamame.envs.config import EnvConfig
from yamame.envs.popgym import PopgymConfig
from yamame.envs.wind import WindConfig
from yamame.recipes import config_from_flags, load_recipe, make_metadata
from yamame.recipes.settings.presets import amago_config, apply_size, default_config, replace_learner_fields
from yamame.run_config import RunConfig
from yamame.studies.memory_and_meta_rl import DARK_9X9
from yamame.studies.popgym import FIG3
from yamame.training.run_files import RunMetadata

EVALUATIONS = 50
"""Evaluations during a run, apart from rows that keep their recipe's schedule."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A task, its agent and the length of its run."""

    name: str
    recipe: str = ""
    """Recipe of the agent; "": the default agent on `env`."""
    env: EnvConfig | None = None
    flags: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    env_steps: int | None = None
    """None: those of the recipe, with its schedules."""
    seeds: tuple[int, ...] = (0,)
    hours: float
    """Limit in hours of a core."""
    measure: Literal["return_mean", "success_rate"] = "return_mean"
    """What the paper reports."""
    paper: str = ""
    """The paper's number, or its words; "": unknown."""
    source: str
    """Where the paper reports it, and how its setting differs."""
    after: str = ""
    """What the row waits for: it is skipped unless it is named."""


@dataclass(frozen=True)
class Run:
    """A row with a seed."""

    row: Row
    seed: int
    tiny: bool = False

    @property
    def name(self) -> str:
        return f"{self.row.name}-seed{self.seed}"

    def flags(self) -> list[str]:
        """Return the flags of the recipe: those of the row, and the schedules of a run of its length."""
        return [*self.row.flags, *schedule_flags(self.row), "--seed", str(self.seed)]

    def command(self) -> str:
        """Return the command line that trains the same run."""
        if not self.row.recipe:
            return f"python benchmarks/paper_runs.py --rows {self.row.name}"
        variants = [word for name in self.row.variants for word in ("--variant", name)]
        return shlex.join(["yamame", "train", self.row.recipe, *variants, *self.flags()])

    def config(self) -> RunConfig:
        """Return the config. Raises `UserError` if it cannot run."""
        row = self.row
        if row.recipe:
            config = config_from_flags(load_recipe(row.recipe), row.variants, self.flags())
        else:
            config = default_row_config(row, self.seed)
        config = shrink(config) if self.tiny else config
        _ = config.resolved_context_length, to_json(config)
        return config

    def metadata(self) -> RunMetadata:
        """Return the origin of the config."""
        if not self.row.recipe:
            return RunMetadata(recipe=self.row.name, command=self.command())
        return replace(make_metadata(load_recipe(self.row.recipe), self.config()), command=self.command())


def schedule_flags(row: Row) -> list[str]:
    """Return the flags of a run of `row.env_steps`: the recipe's schedules, stretched from its own length.

    The learning rate decays and noise is annealed over the same fraction of the run, which has `EVALUATIONS`
    evaluations. None for a row with the recipe's length.
    """
    if row.env_steps is None:
        return []
    base = config_from_flags(load_recipe(row.recipe), row.variants, row.flags)
    stretch = row.env_steps / base.env_steps
    decay = amago_config(base).learner.lr_decay_updates
    stretched = {
        "--env-steps": row.env_steps,
        "--learner.lr-decay-updates": round(stretch * decay),
        "--exploration.anneal-env-steps": round(stretch * anneal_env_steps(base)),
        "--eval.interval-env-steps": row.env_steps // EVALUATIONS,
    }
    return [word for flag, value in stretched.items() if value for word in (flag, str(value))]


def anneal_env_steps(config: RunConfig) -> int:
    """Return the environment steps after which the noise of a run no longer changes."""
    assert not isinstance(config.exploration, NoExploration)
    steps: int = config.exploration.anneal_env_steps  # type: ignore[attr-defined]
    return steps


def default_row_config(row: Row, seed: int) -> RunConfig:
    """Return the default agent's config for a row."""
    assert row.env is not None and row.env_steps is not None
    config = default_config(row.env, env_steps=row.env_steps)
    interval = row.env_steps // EVALUATIONS
    return replace(config, seed=seed, eval=replace(config.eval, interval_env_steps=interval))


TINY_STEPS, TINY_ITERATIONS = 24, 12
"""Length of a trial, where it can be set, and of a window; iterations of a run."""


def shrink(config: RunConfig) -> RunConfig:
    """Return the same kind of run at a size that a CPU trains in seconds."""
    settable = {field.name for field in fields(config.env)}
    sizes: dict[str, Any] = {"horizon": TINY_STEPS, "attempt_length": TINY_STEPS // 3}
    env = replace(config.env, **{name: size for name, size in sizes.items() if name in settable})
    num_envs, updates_per_env_step = 4, 1 / 24
    per_iteration = num_envs * TINY_STEPS
    env_steps = TINY_ITERATIONS * per_iteration
    config = apply_size(config, "tiny")
    if amago_config(config).learner.lr_decay_updates:
        config = replace_learner_fields(config, lr_decay_updates=int(env_steps * updates_per_env_step))
    return replace(
        config,
        env=env,
        num_envs=num_envs,
        env_steps=env_steps,
        env_steps_per_iteration=per_iteration,
        updates_per_env_step=updates_per_env_step,
        learning_starts=0,
        context_length=min(config.context_length, TINY_STEPS),
        eval=replace(config.eval, interval_env_steps=env_steps // 4, trials=4, final_trials=8, num_envs=4),
        replay=replace(config.replay, batch_size=2),
        checkpoint=replace(config.checkpoint, interval_seconds=0.0),
    )


SUCCESS: Literal["success_rate"] = "success_rate"
PAPERS_DELIVERY = ("no-world-model", "no-token-shift")
IN_PROCESS = ("--env.num-workers", "0")
BFLOAT16 = ("--compute.dtype", "bfloat16")
"""Also for narrow networks: with AVX512-BF16 and a compiler their updates take two thirds of the time."""

ROWS = (
    Row(
        name="maze-runner-15",
        recipe="maze-runner",
        flags=BFLOAT16,
        env_steps=5_760_000,
        seeds=(0, 1, 2),
        hours=3,
        measure=SUCCESS,
        paper="nearly perfect",
        source="figure 8, in words",
    ),
    Row(
        name="passive-tmaze-500",
        recipe="passive-tmaze",
        flags=("--env.horizon", "500"),
        hours=3,
        paper="1.0",
        source="figure 5, in corridors of 1,500 steps and more",
    ),
    Row(
        name="passive-tmaze-1500",
        recipe="passive-tmaze",
        flags=("--env.horizon", "1500"),
        hours=3,
        paper="1.0",
        source="figure 5",
    ),
    Row(
        name="dark-key-to-door-9x9",
        recipe="dark-key-to-door",
        flags=(*DARK_9X9, *BFLOAT16),
        env_steps=22_200_000,
        hours=9,
        paper="39.5",
        source="figure 5",
    ),
    Row(
        name="half-cheetah-velocity",
        recipe="half-cheetah-velocity",
        flags=(*IN_PROCESS, *BFLOAT16),
        env_steps=20_457_600,  # 612,000 updates
        seeds=(2,),
        hours=9,
        paper="-57.6",
        source="figure 5, after 612,000 updates",
    ),
    Row(
        name="maze-runner-30",
        recipe="maze-runner",
        flags=("--env.size", "30", *BFLOAT16),
        env_steps=14_400_000,
        hours=7,
        measure=SUCCESS,
        source="figure 8, a curve that is not known",
    ),
    Row(
        name="package-delivery",
        recipe="package-delivery",
        flags=BFLOAT16,
        variants=PAPERS_DELIVERY,
        env_steps=2_592_000,
        hours=2,
        measure=SUCCESS,
        source="figure 7, a curve that is not known",
    ),
    Row(
        name="package-delivery-no-relabeling",
        recipe="package-delivery",
        flags=BFLOAT16,
        variants=(*PAPERS_DELIVERY, "no-relabeling"),
        env_steps=2_592_000,
        hours=2,
        measure=SUCCESS,
        paper="as random actions",
        source="figure 7, in words",
    ),
    Row(
        name="package-delivery-twice",
        recipe="package-delivery",
        flags=BFLOAT16,
        variants=PAPERS_DELIVERY,
        env_steps=5_184_000,
        hours=4,
        measure=SUCCESS,
        source="twice the steps of figure 7",
    ),
    Row(
        name="wind-default",
        env=WindConfig(),
        env_steps=1_000_000,
        seeds=(0, 1, 2),
        hours=2,
        paper="61.7",
        source="figure 5, after 1.02 million steps",
    ),
    Row(
        name="crafter",
        recipe="crafter",
        flags=(*IN_PROCESS, *BFLOAT16),
        env_steps=10_000_000,
        hours=14,
        paper="62 % of the sub-goals",
        source="figure 9, random instructions after 32 million steps in trials of 2,000",
    ),
    *(
        Row(
            name=f"popgym-{panel.title}",
            env=PopgymConfig(name=panel.title, num_workers=0),
            env_steps=1_500_000,
            hours=2,
            paper="" if panel.arms[0].published is None else f"{panel.arms[0].published:g}",
            source="figure 3, after 15 million steps",
            after="the default agent's next change",
        )
        for panel in FIG3.panels
    ),
)


def all_runs(*, tiny: bool = False) -> Iterator[Run]:
    """Iterate over the runs of all rows, in their order."""
    return (Run(row, seed, tiny) for row in ROWS for seed in row.seeds)
