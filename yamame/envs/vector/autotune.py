"""Where single environments are stepped: in this process or in worker processes, whichever is faster."""

import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np

from yamame.data.actions import ACTION_MASK_KEY
from yamame.envs.base import EpisodeVectorEnv
from yamame.envs.vector.restarting import WorkerError
from yamame.envs.vector.serial import SerialVectorEnv, make_envs
from yamame.envs.vector.subproc import STEP_SECONDS, SubprocVectorEnv
from yamame.errors import UserError

ROUND_TRIP_SECONDS = 150e-6
"""What a vector step costs beyond the environments' own time where there are workers: signals, waking up, copies."""
WORKER_SECONDS = 20e-6
"""What each worker adds to that."""
MIN_SPEEDUP = 1.3
"""Workers are used where they are expected to be this many times faster."""
_SPIN_TURNS, _TURN_SECONDS = 300_000, 80e-9
_ROUNDS, _STEPS, _SECONDS = 3, 32, 0.25


def make_vector_env(
    make: Callable[[], Any],
    num_envs: int,
    seed: int,
    workers: int | None,
    *,
    action_mask_key: str = ACTION_MASK_KEY,
    step_seconds: float = STEP_SECONDS,
) -> EpisodeVectorEnv:
    """`num_envs` environments of one kind; what they do does not depend on where they are. Those that fail are made
    anew.

    `workers` is the number of processes, 0 for this one, None for what is expected to be fastest. Then workers that
    cannot begin (a function that cannot be sent to them, say) cost one line on stderr; where they were asked for, they
    raise `UserError` or `WorkerError`. So does a `make` that makes no `gymnasium.Env`, or the same one twice.
    `action_mask_key` is where they say which actions they allow (see `ActionMaskExtractor`), `step_seconds` how long a worker may take
    for a step (see `SubprocVectorEnv`).
    """
    chosen = autotune_num_workers(make, num_envs) if workers is None else workers
    if chosen:
        try:
            return SubprocVectorEnv(
                make, num_envs, seed, chosen, action_mask_key=action_mask_key, step_seconds=step_seconds
            )
        except (UserError, WorkerError) as problem:
            if workers is not None:
                raise
            reason = str(problem).splitlines()[0]
            print(f"not using worker processes: {reason}; stepping environments in this one", file=sys.stderr)
    return SerialVectorEnv(make_envs(make, num_envs), seed, make=make, action_mask_key=action_mask_key)


def autotune_num_workers(make: Callable[[], gymnasium.Env[Any, Any]], num_envs: int) -> int:
    """Worker processes for `num_envs` environments that `make` makes, by timing one of its own; 0: none.

    Takes some milliseconds for environments that are cheap, a quarter of a second or a few steps for others. The
    global random streams of `random` and NumPy stay where they were.
    """
    cores = available_cores()
    if num_envs == 1 or cores == 1 or os.name != "posix":
        return 0
    streams = random.getstate(), np.random.get_state()
    try:
        with closing(make()) as environment:
            seconds = measure_step_seconds(environment)
    except Exception:  # whatever is wrong shows again, and is told properly, where the environment is used
        return 0
    finally:
        random.setstate(streams[0])
        np.random.set_state(streams[1])
    return best_num_workers(seconds, num_envs, cores, openmp_spin_seconds())


def best_num_workers(step_seconds: float, num_envs: int, cores: int, spin_seconds: float = 0.0) -> int:
    """The number of workers that steps `num_envs` environments fastest, or 0 where that is not clearly faster.

    `spin_seconds`: how long threads of this process go on keeping the other cores busy after the policy has acted.
    """

    def cost(workers: int) -> float:
        alone = -(-num_envs // workers) * step_seconds
        shared = min(alone, spin_seconds / 2)  # a worker that shares its core is half as fast
        return alone + shared + ROUND_TRIP_SECONDS + workers * WORKER_SECONDS

    best = min(range(2, min(cores, num_envs) + 1), key=cost, default=0)
    return best if best and num_envs * step_seconds > MIN_SPEEDUP * cost(best) else 0


def openmp_spin_seconds() -> float:
    """How long idle OpenMP threads wait for more work before they sleep, as the environment variables set it.

    Workers on few cores gain when that is short: `GOMP_SPINCOUNT=3000` before Python starts.
    """
    if os.environ.get("OMP_NUM_THREADS") == "1" or os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive":
        return 0.0
    turns = os.environ.get("GOMP_SPINCOUNT", "")
    return (int(turns) if turns.isdecimal() else _SPIN_TURNS) * _TURN_SECONDS


def measure_step_seconds(environment: gymnasium.Env[Any, Any]) -> float:
    """Seconds of one step with random actions: the smallest of a few medians, for a busy machine only adds to them."""
    deadline = time.perf_counter() + _SECONDS
    environment.action_space.seed(0)
    environment.reset(seed=0, options={"new_task": True})
    medians: list[float] = []
    while len(medians) < _ROUNDS and not (medians and time.perf_counter() > deadline):
        seconds: list[float] = []
        while len(seconds) < _STEPS and not (seconds and time.perf_counter() > deadline):
            action = environment.action_space.sample()
            started = time.perf_counter()
            _, _, terminated, truncated, _ = environment.step(action)
            seconds.append(time.perf_counter() - started)
            if terminated or truncated:
                environment.reset(options={"new_task": True})
        medians.append(statistics.median(seconds))
    return min(medians)


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
