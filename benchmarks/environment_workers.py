"""Vector steps a second of single environments: in this process, in AsyncVectorEnv, in our workers.

`python benchmarks/environment_workers.py [--envs 24] [--workers 2] [--json]`; medians over blocks of steps. No policy
acts between the steps: `chosen` is what would be chosen for such a loop (idle OpenMP threads of a policy take cores).
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv

from yamame.envs.base import EpisodeVectorEnv
from yamame.envs.gymnasium import make_env
from yamame.envs.popgym import make_popgym
from yamame.envs.vector.autotune import available_cores, best_num_workers, measure_step_seconds
from yamame.envs.vector.gymnasium_adapter import make_episode_vector_env
from yamame.envs.vector.serial import SerialVectorEnv, make_envs
from yamame.envs.vector.subproc import SubprocVectorEnv
from yamame.envs.wrappers.trials import TrialWrapper

BLOCKS, BLOCK_SECONDS = 7, 0.2
Maker = Callable[[], gymnasium.Env[Any, Any]]


class BusyEnv(gymnasium.Env[np.ndarray, int]):
    """Computes for a given time at every step."""

    def __init__(self, seconds: float) -> None:
        self.observation_space = spaces.Box(-1.0, 1.0, (16,), np.float32)
        self.action_space = spaces.Discrete(4)
        self.seconds = seconds
        self.observation = np.zeros(16, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self.observation, {}

    def step(self, action: int) -> Any:
        ends = time.perf_counter() + self.seconds
        while time.perf_counter() < ends:
            pass
        return self.observation, 0.0, False, False, {}


CASES: dict[str, Maker] = {
    "popgym RepeatPreviousEasy": partial(make_popgym, "RepeatPreviousEasy"),
    "busy 15 us": partial(BusyEnv, 15e-6),
    "busy 50 us": partial(BusyEnv, 50e-6),
    "busy 200 us": partial(BusyEnv, 200e-6),
    "busy 1 ms": partial(BusyEnv, 1e-3),
    "HalfCheetah-v5": partial(make_env, "HalfCheetah-v5"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envs", type=int, default=24)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options = parser.parse_args()
    envs, workers = options.envs, options.workers
    results: dict[str, Any] = {"cores": available_cores(), "envs": envs, "workers": workers, "cases": {}}
    print(f"vector steps a second of {envs} environments on {results['cores']} cores")
    print(f"{'':28}{'us/step':>9}{'serial':>9}{'async':>9}{'workers':>9}{'gain':>7}  chosen")
    for name, make in CASES.items():
        case = {
            "step_microseconds": round(1e6 * measure_step_seconds(make()), 1),
            "serial": speed(SerialVectorEnv(make_envs(make, envs), 0)),
            "async": speed(make_episode_vector_env(AsyncVectorEnv([make] * envs), 0)),
            "workers": speed(SubprocVectorEnv(make, envs, 0, workers)),
        }
        chosen = best_num_workers(case["step_microseconds"] / 1e6, envs, results["cores"])
        results["cases"][name] = case | {"chosen": chosen}
        figures = "".join(f"{case[key]:9.0f}" for key in ("serial", "async", "workers"))
        gain = case["workers"] / case["serial"]
        print(f"{name:28}{case['step_microseconds']:9.1f}{figures}{gain:7.2f}  {chosen or 'this process'}", flush=True)
    if options.json:
        print(json.dumps(results))


def speed(environments: EpisodeVectorEnv) -> float:
    """Vector steps a second with random actions, resets included."""
    trials, rng = TrialWrapper(environments, horizon=10**9, attempts=1), np.random.default_rng(0)
    space = environments.action_space
    shape = (trials.num_envs, *space.shape)
    discrete = isinstance(space, spaces.Discrete)
    actions = rng.integers(space.n, size=shape) if discrete else rng.uniform(-1, 1, shape).astype(np.float32)
    trials.reset()
    speeds = []
    for _ in range(BLOCKS):
        steps, started = 0, time.perf_counter()
        while time.perf_counter() - started < BLOCK_SECONDS:
            trials.step(actions)
            steps += 1
        speeds.append(steps / (time.perf_counter() - started))
    trials.close()
    return round(statistics.median(speeds), 1)


if __name__ == "__main__":
    main()
