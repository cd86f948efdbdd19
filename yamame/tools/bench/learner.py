"""`yamame bench learner`: updates on one batch."""

import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from yamame.algorithms.amago.learner import Learner
from yamame.components import build_components
from yamame.data.batch import Batch
from yamame.data.packing import Window, pack
from yamame.data.sampler import ReplayConfig
from yamame.nets.sequence.transformer import TransformerConfig
from yamame.tools.bench.measure import (
    BenchResult,
    PeakMemory,
    describe_machine,
    flops_per_update,
    matmul_peak,
    seconds_per_call,
    synchronize,
)
from yamame.tools.bench.options import BatchOptions, describe_config, run_config


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
        memory = PeakMemory(device)
        start = time.perf_counter()
        for _ in range(self.warmup):
            learner.update(batch)
        synchronize(device)
        warmup_seconds = time.perf_counter() - start
        with memory:
            seconds = seconds_per_call(lambda: learner.update(batch), repeats=self.repeats, device=device)
        learner.raise_if_diverged()
        flops, transitions = flops_per_update(learner.agent, self.window_lengths), int(batch.loss_mask.sum())
        return BenchResult(
            bench="learner",
            samples={
                "updates_per_second": [1.0 / each for each in seconds],
                "tokens_per_second": [transitions / each for each in seconds],
                "matmul_peak_fraction": [flops / each / peak for each in seconds],
            },
            scalars={
                "matmul_peak_gflops": peak / 1e9,
                "flops_per_update": flops,
                "tokens_per_update": transitions,
                "warmup_seconds": warmup_seconds,
                "peak_memory_bytes": memory.num_bytes,
            },
            config=describe_config(self, compute),
            machine=describe_machine(device),
        )


def pack_windows(options: BatchOptions, replay: ReplayConfig) -> Batch:
    """Return a packed batch of noise with windows of `options.window_lengths`."""
    rng = np.random.default_rng(options.seed)
    trials = [options.network.random_trajectory(rng, length, options.context) for length in options.window_lengths]
    windows = [Window(trajectory=trial, start=0, length=len(trial)) for trial in trials]
    return pack(
        windows,
        pad_tokens_to_multiple_of=replay.pad_tokens_to_multiple_of,
        pad_seqlen_to_multiple_of=replay.pad_seqlen_to_multiple_of,
    )
