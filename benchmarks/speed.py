"""Speed of learner, collector and replay on this machine: `make bench`, or `python benchmarks/speed.py --json`.

Medians over repeats after a warm-up. Run it on a quiet machine; compare only figures of one run.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from yamame.environments.popgym import PopgymConfig
from yamame.environments.tmaze import PassiveTMazeConfig
from yamame.model.agent import AgentConfig
from yamame.model.timestep_encoders.vector import VectorEncoderConfig
from yamame.model.trajectory_encoders.transformer import TransformerConfig
from yamame.run.build import Parts, build
from yamame.run.config import RunConfig
from yamame.run.defaults import default_config

REPEATS = 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options = parser.parse_args()
    peak = matrix_peak()
    results: dict[str, Any] = {"machine": machine(), "matmul_peak_gflops": peak, "repeats": REPEATS}
    print(f"float32 matrix product: {peak:.0f} GFLOP/s on {torch.get_num_threads()} threads")
    for name, config in cases().items():
        with tempfile.TemporaryDirectory() as folder:
            parts = build(config, Path(folder), restarts=0)
            with closing(parts):
                results[name] = measure(config, parts)
        print(name, json.dumps(results[name]))
    if options.json:
        print(json.dumps(results))


def cases() -> dict[str, RunConfig]:
    """The paper's sizes on tasks that we have."""
    popgym = AgentConfig(
        timestep_encoder=VectorEncoderConfig(hidden=(512, 512), width=200),
        trajectory_encoder=TransformerConfig(width=256, layers=3, heads=8, feedforward=1024),
    )
    tmaze = AgentConfig(
        timestep_encoder=VectorEncoderConfig(hidden=(128, 128), width=128),
        trajectory_encoder=TransformerConfig(width=128, layers=2, heads=8, feedforward=512),
    )
    return {
        "tmaze size, passive T-Maze, context 31": case(PassiveTMazeConfig(horizon=30), tmaze),
        "popgym size, passive T-Maze, context 64": case(PassiveTMazeConfig(horizon=63), popgym),
        "popgym size, passive T-Maze, context 128": case(PassiveTMazeConfig(horizon=127), popgym),
        "popgym size, RepeatPreviousEasy": case(PopgymConfig(name="RepeatPreviousEasy"), popgym),
    }


def case(env: PassiveTMazeConfig | PopgymConfig, agent: AgentConfig) -> RunConfig:
    return replace(default_config(env), agent=agent, context_length=min(128, env.trial_length))


def measure(config: RunConfig, parts: Parts) -> dict[str, Any]:
    steps = 4 * 24 * min(128, config.env.trial_length)
    collected = []
    for trajectory in parts.collector.collect(parts.policy, steps, False):
        collected.append(trajectory)
    started = time.perf_counter()
    parts.store.append_all(collected)
    writes = len(collected) / (time.perf_counter() - started)
    batch = parts.sampler.sample()

    def collect() -> None:
        for _ in parts.collector.collect(parts.policy, steps, False):
            pass

    acting, updating, sampling = (
        timed(work) for work in (collect, lambda: parts.learner.update(batch), parts.sampler.sample)
    )
    return {
        "env_steps_per_second": round(steps / acting),
        "updates_per_second": round(1 / updating, 2),
        "tokens_per_second": round(int(batch.valid.sum()) / updating),
        "writes_per_second": round(writes),
        "milliseconds_per_batch": round(1e3 * sampling, 2),
    }


def timed(work: Callable[[], Any]) -> float:
    """Median seconds of one call."""
    for _ in range(2):
        work()
    seconds = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def matrix_peak() -> float:
    """GFLOP/s of a float32 matrix product in this process."""
    left, right = (torch.from_numpy(np.ones((2048, 2048), np.float32)) for _ in range(2))
    return 2 * 2048**3 / timed(lambda: left @ right) / 1e9


def machine() -> dict[str, Any]:
    return {"cores": os.cpu_count(), "platform": platform.machine(), "torch": torch.__version__}


if __name__ == "__main__":
    main()
