"""`yamame bench end-to-end`: whole runs of a recipe and the fractions of their time."""

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
from yamame.trainer import Trainer


@dataclass(frozen=True, kw_only=True)
class EndToEndBench(BenchOptions):
    """Environment steps and updates per second of a run without evaluations. Other flags are those of the recipe."""

    repeats: int = 3
    """Timed runs; median, minimum and maximum are reported."""
    warmup: int = 1
    """Untimed runs of one iteration before."""
    recipe: str = "passive-tmaze"
    """A name that `yamame recipes` lists."""
    env_steps: int = 20_000
    """Environment steps of a run, all environments."""

    def run(self, recipe_flags: Sequence[str]) -> BenchResult:
        """Run the benchmark on the recipe's config with these flags."""
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
            _measure_run(replace(config, env_steps=min(config.resolved_env_steps_per_iteration, config.env_steps)))
        with memory:
            runs = [_measure_run(config) for _ in range(self.repeats)]
        return BenchResult(
            bench="end-to-end",
            samples={name: [run[name] for run in runs] for name in runs[0]},
            scalars={"peak_memory_bytes": memory.num_bytes},
            config={**describe_config(self, compute), "recipe_flags": list(recipe_flags)},
            machine=describe_machine(compute.device),
        )


def _measure_run(config: RunConfig) -> dict[str, float]:
    """Return the speeds of a run and the fractions of its time."""
    with tempfile.TemporaryDirectory() as folder, closing(Trainer(config, Path(folder))) as run:
        if run.train(ProgressBar(config.env_steps, quiet=True)):
            raise KeyboardInterrupt
        iterations = read_metrics(Path(folder))
        seconds, waited = run.state.train_seconds, run.components.replay.sampler.wait_seconds
        updating = sum(each["time/update_seconds"] for each in iterations)
        return {
            "env_steps_per_second": run.components.collector.env_steps / seconds,
            "updates_per_second": run.components.algorithm.num_updates / seconds,
            "collect_fraction": sum(each["time/collect_seconds"] for each in iterations) / seconds,
            "learn_fraction": (updating - waited) / seconds,
            "wait_fraction": waited / seconds,
            "train_seconds": seconds,
        }
