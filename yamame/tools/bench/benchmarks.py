"""The benchmarks of `yamame bench`."""

import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from yamame.algorithms.amago.learner import Learner
from yamame.collect.background import never
from yamame.collect.experience import LocalExperience
from yamame.config.flags import list_flags, parse_flags
from yamame.data.batch import Batch
from yamame.data.sampler import ReplayConfig
from yamame.data.store import ReplayStore
from yamame.data.trajectory import Trajectory
from yamame.distributed.sharding import resolve_parallelism
from yamame.envs.config import EnvConfig
from yamame.envs.dark_key_to_door import DarkKeyToDoorConfig
from yamame.envs.popgym import PopgymConfig
from yamame.envs.tmaze import PassiveTMazeConfig
from yamame.errors import ConfigFieldError, UserError, check_range
from yamame.metrics.progress import ProgressBar
from yamame.metrics.registry import read_metrics
from yamame.nets.sequence.transformer import TransformerConfig
from yamame.recipes import config_from_flags, load_recipe
from yamame.run_config import EvalConfig, RunConfig
from yamame.tools.bench.measure import (
    BenchResult,
    PeakMemory,
    flops_per_update,
    matmul_peak,
    seconds_per_call,
    synchronize,
    time_updates,
)
from yamame.tools.bench.options import (
    BatchOptions,
    BenchOptions,
    SizedOptions,
    pack_windows,
    run_config,
    spell_out_switches,
    split_flags,
    suggest,
)
from yamame.training.components import TrainingComponents, build_components, resolve_run_compute
from yamame.training.trainer import Trainer

LEARNING_SECONDS = 2.0
"""Minimum time of updates to measure the wait fraction of the replay benchmark."""


@dataclass(frozen=True, kw_only=True)
class LearnerBench(BatchOptions):
    """Updates per second on one synthetic batch on the learner's device."""

    def run(self) -> BenchResult:
        """Run the benchmark."""
        self.use_threads()
        config = run_config(self, self.network.task(self.context))
        with (
            tempfile.TemporaryDirectory() as folder,
            closing(build_components(config, Path(folder), restarts=0)) as parts,
        ):
            assert isinstance(parts.algorithm, Learner)
            return self._measure(parts.algorithm, pack_windows(self, config.replay))

    def _measure(self, learner: Learner, batch: Batch) -> BenchResult:
        compute, device = learner.compute, learner.compute.device
        squares = [(side, side, side) for side in (512, 2048, *([8192] if device.type == "cuda" else []))]
        encoder = self.network.agent("transformer").trajectory_encoder
        assert isinstance(encoder, TransformerConfig)
        widening = (len(batch.reward), encoder.d_model, encoder.d_ff)
        peak = matmul_peak(device, compute.dtype, [*squares, widening])
        batch = batch.to(device)
        self.print_warmup(compute, "update")
        times = time_updates(lambda: learner.update(batch), warmup=self.warmup, repeats=self.repeats, device=device)
        learner.raise_if_diverged()
        flops, transitions = flops_per_update(learner.agent, self.window_lengths), int(batch.loss_mask.sum())
        samples = {
            "updates_per_second": [1.0 / each for each in times.seconds],
            "tokens_per_second": [transitions / each for each in times.seconds],
            "matmul_peak_fraction": [flops / each / peak for each in times.seconds],
        }
        scalars = {
            "matmul_peak_gflops": peak / 1e9,
            "flops_per_update": flops,
            "tokens_per_update": transitions,
            "warmup_seconds": times.warmup_seconds,
            "peak_memory_bytes": times.peak_memory_bytes,
        }
        return self.result("learner", compute, samples, scalars)


@dataclass(frozen=True, kw_only=True)
class CollectorBench(SizedOptions):
    """Environment steps per second with exploration; finished trials are stored as in a run."""

    warmup: int = 1
    """Untimed repeats before, of `horizon` steps each."""
    env: str = "passive-tmaze"
    """passive-tmaze, dark-key-to-door or popgym:NAME."""
    num_envs: int = 24
    """Number of environments."""
    horizon: int = 0
    """Steps of a trial and of each repeat (longer than the context: the memory rolls); 0: the context.
    POPGym's episodes have their own lengths."""
    workers: int | None = None
    """Subprocesses of POPGym's environments; 0: none; None: autotuned."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "num_envs", ge=1)
        check_range(self, "horizon", ge=0)
        if self.workers is not None and not isinstance(self.task, PopgymConfig):
            raise ConfigFieldError(self, "workers", f"is for popgym:NAME alone, not {self.env}: remove it")
        if self.steps < max(2, self.context):
            raise ConfigFieldError(self, "horizon", f"must be at least 2 and the context, {self.context}")
        if self.context > self.task.max_trial_steps:
            raise ConfigFieldError(
                self, "context", f"must be at most the {self.task.max_trial_steps} steps of {self.task.task_name}"
            )

    @property
    def steps(self) -> int:
        """`horizon` with 0 resolved."""
        return self.horizon or self.context

    @property
    def task(self) -> EnvConfig:
        """The task. Raises `ConfigFieldError` for an unknown name."""
        if self.env == "passive-tmaze":
            return PassiveTMazeConfig(horizon=self.steps - 1)
        if self.env == "dark-key-to-door":
            return DarkKeyToDoorConfig(horizon=self.steps)
        suite, _, name = self.env.partition(":")
        if suite != "popgym":
            raise ConfigFieldError(self, "env", f"{self.env!r}: give passive-tmaze, dark-key-to-door or popgym:NAME")
        return PopgymConfig(name=name, num_workers=self.workers)

    def run(self) -> BenchResult:
        """Run the benchmark."""
        self.use_threads()
        config = run_config(self, self.task, num_envs=self.num_envs)
        with (
            tempfile.TemporaryDirectory() as folder,
            closing(build_components(config, Path(folder), restarts=0)) as parts,
        ):
            return self._measure(parts)

    def _measure(self, parts: TrainingComponents) -> BenchResult:
        assert isinstance(parts.experience, LocalExperience)
        policy, environments = parts.experience.policy, parts.experience.environments
        policy.act = acting = _Stopwatch(policy.act)  # type: ignore[method-assign]
        environments.step = stepping = _Stopwatch(environments.step)  # type: ignore[method-assign]
        memory = PeakMemory(parts.algorithm.compute.device)
        self.print_warmup(parts.algorithm.compute, "repeat")
        for _ in range(self.warmup):
            self._collect(parts)
        names = ("env_steps_per_second", "milliseconds_per_act", "policy_fraction", "environment_fraction")
        samples: dict[str, list[float]] = {name: [] for name in names}
        with memory:
            for _ in range(self.repeats):
                acting.seconds = stepping.seconds = 0.0
                seconds, env_steps = self._collect(parts)
                samples["env_steps_per_second"].append(env_steps / seconds)
                samples["milliseconds_per_act"].append(1e3 * acting.seconds / self.steps)
                samples["policy_fraction"].append(acting.seconds / seconds)
                samples["environment_fraction"].append(stepping.seconds / seconds)
        return self.result("collector", parts.algorithm.compute, samples, {"peak_memory_bytes": memory.num_bytes})

    def _collect(self, parts: TrainingComponents) -> tuple[float, int]:
        """Return seconds and environment steps of one repeat."""
        start, before = time.perf_counter(), parts.experience.env_steps
        for _ in range(self.steps):
            trajectories, _ = parts.experience.collect(1, never)
            parts.replay.store.extend(trajectories)
        return time.perf_counter() - start, parts.experience.env_steps - before


class _Stopwatch:
    """Calls a function and adds up the seconds that it takes."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.seconds = 0.0

    def __call__(self, *args: Any, **options: Any) -> Any:
        start = time.perf_counter()
        result = self._function(*args, **options)
        self.seconds += time.perf_counter() - start
        return result


@dataclass(frozen=True, kw_only=True)
class ReplayBench(BatchOptions):
    """Trajectories written and read per second, milliseconds per batch, and the learner's wait fraction."""

    warmup: int = 2
    """Untimed repeats before."""
    trajectories: int = 512
    """Number of trajectories written and read."""
    store_dir: str = ""
    """Directory of the temporary store; empty: that of the system."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "trajectories", ge=1)

    def run(self) -> BenchResult:
        """Run the benchmark."""
        self.use_threads()
        if self.store_dir and not Path(self.store_dir).is_dir():
            raise UserError(f"--store-dir {self.store_dir} is not a directory: create it, or remove the option")
        config = run_config(self, self.network.task(self.context))
        config = replace(config, replay=ReplayConfig(capacity_trajectories=self.trajectories, batch_size=self.batch))
        trials = self._trials()
        with tempfile.TemporaryDirectory(dir=self.store_dir or None) as folder:
            writes = self._writes(Path(folder, "alone"), config.replay, trials)
            cold, cached = self._reads(Path(folder, "alone"), config.replay)
            with closing(build_components(config, Path(folder, "learned"), restarts=0)) as parts:
                parts.replay.store.extend(trials)
                self.print_warmup(parts.algorithm.compute, "update")
                batches, waits, memory = self._sampling(parts)
                compute = parts.algorithm.compute
        samples = {
            "writes_per_second": writes,
            "reads_per_second": cold,
            "cached_reads_per_second": cached,
            "milliseconds_per_batch": batches,
            "learner_wait_fraction": waits,
        }
        return self.result("replay", compute, samples, {"peak_memory_bytes": memory.num_bytes})

    def _trials(self) -> list[Trajectory]:
        rng = np.random.default_rng(self.seed)
        lengths = [self.window_lengths[index % self.batch] for index in range(self.trajectories)]
        return [self.network.random_trajectory(rng, length, self.context) for length in lengths]

    def _writes(self, folder: Path, replay: ReplayConfig, trials: Sequence[Trajectory]) -> list[float]:
        """Return trajectories appended per second, one by one as in a run; the oldest are evicted."""
        speeds = []
        with _open(folder, replay) as store:
            for _ in range(self.warmup + self.repeats):
                start = time.perf_counter()
                for trial in trials:
                    store.append(trial)
                speeds.append(len(trials) / (time.perf_counter() - start))
            store.mark_checkpoint()
        return speeds[self.warmup :]

    def _reads(self, folder: Path, replay: ReplayConfig) -> tuple[list[float], list[float]]:
        """Return trajectories read per second in random order: from the disk, and again from the cache."""
        rng = np.random.default_rng(self.seed)
        cold, cached = [], []
        for _ in range(self.repeats):
            _drop_page_cache(folder)
            with _open(folder, replay) as store:
                ids = rng.permutation(store.ids()).tolist()
                cold.append(_reads_per_second(store, ids))
                cached.append(_reads_per_second(store, ids))
        return cold, cached

    def _sampling(self, parts: TrainingComponents) -> tuple[list[float], list[float], PeakMemory]:
        """Return milliseconds per batch, and the fraction of its time that the learner waits for prefetched ones."""
        sampler, learner = parts.replay.sampler, parts.algorithm
        device = learner.compute.device
        memory = PeakMemory(device)
        for _ in range(self.warmup):
            learner.update(sampler.sample())
        once = seconds_per_call(lambda: learner.update(sampler.sample()), repeats=1, device=device)[0]
        updates = max(8, math.ceil(LEARNING_SECONDS / once))
        batches = seconds_per_call(sampler.sample, repeats=self.repeats, device=device)
        waits = []
        with memory:
            for _ in range(self.repeats):
                start, waited = time.perf_counter(), sampler.wait_seconds
                for batch in sampler.iter_batches(updates):
                    learner.update(batch)
                synchronize(device)
                waits.append((sampler.wait_seconds - waited) / (time.perf_counter() - start))
        learner.raise_if_diverged()
        return [1e3 * seconds for seconds in batches], waits, memory


def _open(folder: Path, replay: ReplayConfig) -> ReplayStore:
    return ReplayStore(folder, capacity_trajectories=replay.capacity_trajectories, cache_bytes=replay.cache_bytes)


def _drop_page_cache(folder: Path) -> None:
    """Drop the files of a folder from the page cache, so that the next reads go to the disk."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            if sys.platform == "linux":
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _reads_per_second(store: ReplayStore, ids: Sequence[int]) -> float:
    start = time.perf_counter()
    for trajectory_id in ids:
        store.get(trajectory_id)
    return len(ids) / (time.perf_counter() - start)


@dataclass(frozen=True, kw_only=True)
class EndToEndBench(BenchOptions):
    """Environment steps and updates per second of a run without evaluations, by one learner.

    Other flags are those of the recipe; `--compute.device` is `--device`, and so for `dtype` and `compile`.
    """

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
        config = resolve_parallelism(config)
        compute = resolve_run_compute(config)
        memory = PeakMemory(compute.device)
        self.print_warmup(compute, "run")
        for _ in range(self.warmup):
            _measure_run(replace(config, env_steps=min(config.resolved_env_steps_per_iteration, config.env_steps)))
        with memory:
            runs = [_measure_run(config) for _ in range(self.repeats)]
        samples = {name: [run[name] for run in runs] for name in runs[0]}
        result = self.result("end-to-end", compute, samples, {"peak_memory_bytes": memory.num_bytes})
        return replace(result, config={**result.config, "recipe_flags": list(recipe_flags)})


def _measure_run(config: RunConfig) -> dict[str, float]:
    """Return the speeds of a run and the fractions of its time."""
    with tempfile.TemporaryDirectory() as folder, closing(Trainer(config, Path(folder))) as run:
        if run.train(ProgressBar(config.env_steps, quiet=True)):
            raise KeyboardInterrupt
        iterations = read_metrics(Path(folder))
        seconds, waited = run.state.train_seconds, run.components.replay.sampler.wait_seconds
        updating = sum(each["time/update_seconds"] for each in iterations)
        return {
            "env_steps_per_second": run.env_steps / seconds,
            "updates_per_second": run.components.algorithm.num_updates / seconds,
            "collect_fraction": sum(each["time/collect_seconds"] for each in iterations) / seconds,
            "learn_fraction": (updating - waited) / seconds,
            "wait_fraction": waited / seconds,
            "train_seconds": seconds,
        }


BENCHES = {"learner": LearnerBench, "collector": CollectorBench, "replay": ReplayBench, "end-to-end": EndToEndBench}


def parse_benchmark(name: str, flags: Sequence[str]) -> Callable[[], BenchResult]:
    """Return a function that runs the benchmark. Raises `UserError` for an unknown benchmark or flag."""
    if name not in BENCHES:
        raise UserError(f"unknown benchmark {name!r}: {suggest(name, list(BENCHES))}")
    options, prog = BENCHES[name](), f"yamame bench {name}"
    if not isinstance(options, EndToEndBench):
        return parse_flags(options, spell_out_switches(flags), prog).run
    own, of_recipe = split_flags(flags, {*list_flags(options), "--help", "-h"})
    return partial(parse_flags(options, own, prog).run, of_recipe)
