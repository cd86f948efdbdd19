"""Choice between stepping environments in this process and in worker processes, by measured speed."""

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
from typing_extensions import override

from yamame.data.actions import ACTION_MASK_KEY, action_shape, num_choices, sample_uniform_actions
from yamame.envs.base import EpisodeVectorEnv
from yamame.envs.vector.construction import make_envs
from yamame.envs.vector.faults import WorkerError
from yamame.envs.vector.serial import SerialVectorEnv
from yamame.envs.vector.subproc import STEP_TIMEOUT_SECONDS, SubprocVectorEnv
from yamame.envs.working_directory import kept_working_directory
from yamame.errors import UserError

ROUND_TRIP_SECONDS = 150e-6
"""Overhead of a vector step in workers: signals, wake-ups, copies."""
WORKER_SECONDS = 20e-6
"""Overhead added by each worker."""
MIN_SPEEDUP = 1.3
"""Workers are used if they are expected to be faster by this factor."""
_DEFAULT_SPIN_COUNT, _SPIN_SECONDS = 300_000, 80e-9
_MEASUREMENTS, _STEPS, _MAX_SECONDS = 3, 32, 0.25


def make_vector_env(
    env_fn: Callable[[], Any],
    num_envs: int,
    seed: int,
    num_workers: int | None,
    *,
    action_mask_key: str = ACTION_MASK_KEY,
    step_timeout_seconds: float = STEP_TIMEOUT_SECONDS,
) -> EpisodeVectorEnv:
    """Return `num_envs` environments, which are replaced when they fail. Results do not depend on `num_workers`.

    Args:
        env_fn: Makes one `gymnasium.Env`.
        num_envs: Number of environments.
        seed: Seed of all of them.
        num_workers: Number of subprocesses; 0: this process; None: autotuned, with a line on stderr and this process if
            workers cannot start.
        action_mask_key: See `ActionMaskExtractor`.
        step_timeout_seconds: See `SubprocVectorEnv`.

    Raises:
        UserError: If `env_fn` does not make `gymnasium.Env`s, or makes the same one twice.
        WorkerError: If workers that were asked for cannot start.
    """
    chosen = autotune_num_workers(env_fn, num_envs, action_mask_key) if num_workers is None else num_workers
    if chosen:
        try:
            return SubprocVectorEnv(
                env_fn,
                num_envs,
                seed,
                chosen,
                action_mask_key=action_mask_key,
                step_timeout_seconds=step_timeout_seconds,
            )
        except (UserError, WorkerError) as error:
            if num_workers is not None:
                raise
            reason = str(error).splitlines()[0]
            print(f"not using worker processes: {reason}; stepping environments in this process", file=sys.stderr)
    return SerialVectorEnv(make_envs(env_fn, num_envs), seed, env_fn=env_fn, action_mask_key=action_mask_key)


@kept_working_directory()
def autotune_num_workers(
    env_fn: Callable[[], gymnasium.Env[Any, Any]], num_envs: int, action_mask_key: str = ACTION_MASK_KEY
) -> int:
    """Return the best number of workers for `num_envs` environments, 0 for none, by timing one environment.

    Takes milliseconds for fast environments, a quarter of a second or a few steps for others. The global random states
    of `random` and NumPy are restored.
    """
    cores = available_cores()
    if num_envs == 1 or cores == 1 or os.name != "posix":
        return 0
    random_states = random.getstate(), np.random.get_state()
    try:
        with closing(env_fn()) as env:
            seconds = measure_step_seconds(env, action_mask_key)
    except Exception:  # the same error is raised, with a proper message, where the environment is used
        return 0
    finally:
        random.setstate(random_states[0])
        np.random.set_state(random_states[1])
    return best_num_workers(seconds, num_envs, cores, openmp_spin_seconds())


def best_num_workers(step_seconds: float, num_envs: int, cores: int, spin_seconds: float = 0.0) -> int:
    """Return the number of workers that steps `num_envs` environments fastest; 0 if none is clearly faster.

    Args:
        step_seconds: Time of one step of one environment.
        num_envs: Number of environments.
        cores: Number of CPU cores.
        spin_seconds: Time for which the threads of this process keep the other cores busy after the policy has acted.
    """

    def cost(workers: int) -> float:
        stepping = -(-num_envs // workers) * step_seconds
        contention = min(stepping, spin_seconds / 2)  # a worker that shares its core is half as fast
        return stepping + contention + ROUND_TRIP_SECONDS + workers * WORKER_SECONDS

    best = min(range(2, min(cores, num_envs) + 1), key=cost, default=0)
    return best if best and num_envs * step_seconds > MIN_SPEEDUP * cost(best) else 0


def openmp_spin_seconds() -> float:
    """Return how long idle OpenMP threads spin before they sleep, according to the environment variables.

    A short time helps workers on few cores: set `GOMP_SPINCOUNT=3000` before Python starts.
    """
    if os.environ.get("OMP_NUM_THREADS") == "1" or os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive":
        return 0.0
    count = os.environ.get("GOMP_SPINCOUNT", "")
    return (int(count) if count.isdecimal() else _DEFAULT_SPIN_COUNT) * _SPIN_SECONDS


def measure_step_seconds(env: gymnasium.Env[Any, Any], action_mask_key: str = ACTION_MASK_KEY) -> float:
    """Return the seconds of one step with random actions: the minimum of several medians, to exclude other load."""
    deadline = time.perf_counter() + _MAX_SECONDS
    timed = _TimedEnv(env)
    envs = SerialVectorEnv([timed], 0, action_mask_key=action_mask_key)
    rng, everywhere = np.random.default_rng(0), np.ones(1, np.bool_)
    sizes, shape = num_choices(envs.action_space), (1, *action_shape(envs.action_space))
    observation = envs.reset(everywhere, everywhere)
    medians: list[float] = []
    while len(medians) < _MEASUREMENTS and not (medians and time.perf_counter() > deadline):
        timed.seconds.clear()
        while len(timed.seconds) < _STEPS and not (timed.seconds and time.perf_counter() > deadline):
            if sizes:
                mask = observation.get(ACTION_MASK_KEY)
                action = sample_uniform_actions(rng.random((1, len(sizes))), sizes, mask).reshape(shape)
            else:
                action = rng.uniform(-1.0, 1.0, shape).astype(np.float32)
            step = envs.step(action)
            ended = step.terminated | step.truncated
            observation = envs.reset(everywhere, everywhere) if ended[0] else step.observation
        medians.append(statistics.median(timed.seconds))
    return min(medians)


class _TimedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Measures the seconds of each step."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.seconds: list[float] = []

    @override
    def step(self, action: Any) -> Any:
        started = time.perf_counter()
        result = self.env.step(action)
        self.seconds.append(time.perf_counter() - started)
        return result


def available_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
