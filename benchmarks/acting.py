"""Time of a call of `LoadedPolicy.act`, for one and for many environments stepped together.

python benchmarks/acting.py RUN [--num-envs 1 64] [--steps 500] [--threads 1] [--json]

Observations are samples of the observation space. The first calls are not timed. Every environment starts a new trial
after as many steps as trials have in training.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from gymnasium.vector.utils import batch_space

import yamame
from yamame.training.run_files import read_task_spec

WARMUP_CALLS = 20


def call_seconds(run: Path, *, num_envs: int, steps: int) -> list[float]:
    """Return the seconds of each call of `act` after the warm-up."""
    policy, task = yamame.load(run, num_envs=num_envs), read_task_spec(run)
    space = batch_space(task.observation_space, num_envs)
    space.seed(0)
    seconds = []
    for call in range(WARMUP_CALLS + steps):
        if call % task.horizon == 0:
            policy.reset()
        observation = space.sample()
        start = time.perf_counter()
        policy.act(observation, reward=np.zeros(num_envs))
        seconds.append(time.perf_counter() - start)
    return seconds[WARMUP_CALLS:]


def main() -> None:
    """Print milliseconds per call: minimum, median and 99th percentile."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--num-envs", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for num_envs in options.num_envs:
        milliseconds = 1e3 * np.array(call_seconds(options.run, num_envs=num_envs, steps=options.steps))
        low, median, high = (float(np.percentile(milliseconds, percent)) for percent in (0, 50, 99))
        if options.json:
            print(json.dumps({"num_envs": num_envs, "min_ms": low, "median_ms": median, "percentile_99_ms": high}))
        else:
            print(f"num_envs {num_envs}: min {low:.2f}, median {median:.2f}, 99th percentile {high:.2f} ms")


if __name__ == "__main__":
    main()
