"""`yamame bench replay`: throughput of store and sampler, and the learner's wait for batches."""

import math
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from yamame.components import TrainingComponents, build_components
from yamame.data.sampler import ReplayConfig
from yamame.data.store import LMDBReplayStore
from yamame.data.trajectory import Trajectory
from yamame.errors import UserError, check_range
from yamame.tools.bench.measure import BenchResult, PeakMemory, describe_machine, seconds_per_call, synchronize
from yamame.tools.bench.options import BatchOptions, describe_config, run_config

LEARNING_SECONDS = 2.0
"""Minimum time of updates to measure the wait fraction."""


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
                batches, waits, memory = self._sampling(parts)
                compute = parts.algorithm.compute
        return BenchResult(
            bench="replay",
            samples={
                "writes_per_second": writes,
                "reads_per_second": cold,
                "cached_reads_per_second": cached,
                "milliseconds_per_batch": batches,
                "learner_wait_fraction": waits,
            },
            scalars={"peak_memory_bytes": memory.num_bytes},
            config=describe_config(self, compute),
            machine=describe_machine(compute.device),
        )

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
            store.sync()
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


def _open(folder: Path, replay: ReplayConfig) -> LMDBReplayStore:
    return LMDBReplayStore(folder, capacity_trajectories=replay.capacity_trajectories, cache_bytes=replay.cache_bytes)


def _drop_page_cache(folder: Path) -> None:
    """Drop the files of a folder from the page cache, so that the next reads go to the disk."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _reads_per_second(store: LMDBReplayStore, ids: Sequence[int]) -> float:
    start = time.perf_counter()
    for trajectory_id in ids:
        store.get(trajectory_id)
    return len(ids) / (time.perf_counter() - start)
