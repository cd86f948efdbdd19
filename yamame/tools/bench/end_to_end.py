"""`yamame bench end-to-end`: whole runs of a recipe, and where their time goes."""

import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from yamame.components import resolve_run_compute
from yamame.config import EvalConfig, RunConfig
from yamame.metrics import read_metrics
from yamame.progress import ProgressBar
from yamame.recipes import config_from_flags, load_recipe
from yamame.tools.bench.measure import BenchResult, PeakMemory, describe_machine
from yamame.tools.bench.options import BenchOptions, describe_config
from yamame.train import Trainer


@dataclass(frozen=True, kw_only=True)
class EndToEndBench(BenchOptions):
    """Environment steps and updates a second of a run, without evaluations. Further flags are the recipe's."""

    repeats: int = 3
    """Runs, of which the median is given, with the least and the greatest."""
    warmup: int = 1
    """Runs of one round before them."""
    recipe: str = "passive-tmaze"
    """A name that `yamame recipes` lists."""
    env_steps: int = 20_000
    """Length of a run in environment steps, summed over all environments."""

    def run(self, recipe_flags: Sequence[str]) -> BenchResult:
        """Measure runs of the recipe's config with these flags."""
        self.use_threads()
        config = config_from_flags(load_recipe(self.recipe), [], recipe_flags)
        config = replace(
            config,
            env_steps=self.env_steps,
            compute=replace(config.compute, device=self.device, dtype=self.dtype, compile=self.compile),
            eval=EvalConfig(trials=1, final_trials=1, num_envs=1),
        )
        compute = resolve_run_compute(config)
        memory = PeakMemory(compute.device)
        for _ in range(self.warmup):
            _shares_of_a_run(replace(config, env_steps=min(config.resolved_env_steps_per_iteration, config.env_steps)))
        with memory:
            runs = [_shares_of_a_run(config) for _ in range(self.repeats)]
        return BenchResult(
            bench="end-to-end",
            samples={name: [run[name] for run in runs] for name in runs[0]},
            scalars={"peak_memory_bytes": memory.num_bytes},
            config={**describe_config(self, compute), "recipe_flags": list(recipe_flags)},
            machine=describe_machine(compute.device),
        )


def _shares_of_a_run(config: RunConfig) -> dict[str, float]:
    """Speeds of a run from its first step to its last, and what shares of that time go where."""
    with tempfile.TemporaryDirectory() as folder, closing(Trainer(config, Path(folder))) as run:
        if run.train(ProgressBar(config.env_steps, quiet=True)):
            raise KeyboardInterrupt
        rounds = read_metrics(Path(folder))
        seconds, waited = run.state.train_seconds, run.components.replay.sampler.wait_seconds
        updating = sum(each["time/update_seconds"] for each in rounds)
        return {
            "env_steps_per_second": run.components.collector.env_steps / seconds,
            "updates_per_second": run.components.algorithm.num_updates / seconds,
            "collect_fraction": sum(each["time/collect_seconds"] for each in rounds) / seconds,
            "learn_fraction": (updating - waited) / seconds,
            "wait_fraction": waited / seconds,
            "train_seconds": seconds,
        }
