"""Choice between stepping environments in this process and in worker processes, by measured speed."""

import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np

from yamame.data.actions import (
    ACTION_MASK_KEY,
    check_action_space,
    num_choices,
    sample_uniform_actions,
    split_env_actions,
    to_env_action,
)
from yamame.envs.base import EpisodeVectorEnv
from yamame.envs.vector.action_masks import ActionMaskExtractor
from yamame.envs.vector.faults import WorkerError, stack_observations
from yamame.envs.vector.serial import SerialVectorEnv, make_envs
from yamame.envs.vector.subproc import STEP_TIMEOUT_SECONDS, SubprocVectorEnv
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
    masks = ActionMaskExtractor(action_mask_key, env.observation_space, check_action_space(env.action_space))
    env = masks.with_method(env)
    rng = np.random.default_rng(0)
    env.action_space.seed(0)
    observation, info = env.reset(seed=0)
    medians: list[float] = []
    while len(medians) < _MEASUREMENTS and not (medians and time.perf_counter() > deadline):
        seconds: list[float] = []
        while len(seconds) < _STEPS and not (seconds and time.perf_counter() > deadline):
            action = _sample_action(env, masks, observation, info, rng)
            started = time.perf_counter()
            observation, _, terminated, truncated, info = env.step(action)
            seconds.append(time.perf_counter() - started)
            if terminated or truncated:
                observation, info = env.reset()
        medians.append(statistics.median(seconds))
    return min(medians)


def _sample_action(
    env: gymnasium.Env[Any, Any],
    masks: ActionMaskExtractor,
    observation: Any,
    info: Mapping[str, Any],
    rng: np.random.Generator,
) -> Any:
    """Return a random action, among those that the mask allows if there is one."""
    leaves = stack_observations(env.observation_space, [observation]) if masks.in_observation else {}
    leaves = masks.add_to(leaves, masks.from_infos([info]), np.zeros(1, np.int64), np.zeros(1, np.bool_))
    if ACTION_MASK_KEY not in leaves:
        return env.action_space.sample()
    space = check_action_space(env.action_space)
    sizes = num_choices(space)
    action = sample_uniform_actions(rng.random((1, len(sizes))), sizes, leaves[ACTION_MASK_KEY])
    action = action[:, 0] if isinstance(space, gymnasium.spaces.Discrete) else action
    return split_env_actions(space, to_env_action(space, action))[0]


def available_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
