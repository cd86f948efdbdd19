"""`check_env`: what is wrong or unusual about an environment, before training on it."""

import time
from collections.abc import Sequence
from contextlib import closing

import numpy as np
from gymnasium import spaces

from yamame.collect.collector import Collector, RandomPolicy
from yamame.collect.exploration import Explorer, NoExploration
from yamame.collect.faults import FaultToleranceConfig
from yamame.data.spaces import describe_space, leaf_name, walk_space
from yamame.data.trajectory import Trajectory
from yamame.envs.config import EnvConfig
from yamame.envs.env_fn import EnvFn, env_config
from yamame.envs.wrappers.instruction import is_goal_env

LARGE_BOUND = 1e6
"""Bounds of actions that were probably not meant as such."""
MIN_SECONDS = 3.0
"""Trials that take less time give no speed: starting takes a part of it."""


def check_env(
    env: EnvFn | str, *, horizon: int | None = None, attempts: int | None = 1, trials: int = 8, seed: int = 0
) -> list[str]:
    """Play trials with random actions, as training would; return what is unusual, one sentence each.

    Args:
        env: Function that makes the environment, or its Gymnasium id.
        horizon: As in `yamame.train`.
        attempts: As in `yamame.train`.
        trials: Number of trials.
        seed: Seed of the environment and of the actions.

    Raises:
        UserError: For whatever would stop training: spaces that cannot be used, a wrong interface, exceptions, invalid
            observations, rewards or masks.
    """
    config = env_config(env, horizon=horizon, attempts=attempts)
    started = time.perf_counter()
    played = _play(config, trials, seed)
    seconds = time.perf_counter() - started
    again, other = _play(config, trials, seed), _play(config, trials, seed + 1)
    num_steps = sum(map(len, played))
    steps_per_second = num_steps / seconds
    ends_early = any(len(trial) < config.max_trial_steps or trial.terminated.any() for trial in played)
    findings = {
        "the same seed and actions give different trials: sample from self.np_random, or runs cannot be repeated": (
            not _are_equal(played, again)
        ),
        "all seeds give the same first observation and the same rewards: is the task sampled in reset?": (
            _are_equal(played, other, first_only=True)
        ),
        f"no reward in {trials} trials of random actions: rewards that are rarer than that are hard to find": (
            not any(trial.reward.any() for trial in played)
        ),
        "the observation never changes": all(map(_is_constant, played)),
        f"no trial of random actions ended before the horizon of {config.max_trial_steps} steps": not ends_early,
        f"{steps_per_second:,.0f} steps per second: training mostly waits for the environment": (
            steps_per_second < 100 and seconds > MIN_SECONDS
        ),
    }
    return [*(finding for finding, applies in findings.items() if applies), *_space_findings(config, seed)]


def _space_findings(config: EnvConfig, seed: int) -> list[str]:
    """Return what is unusual about the spaces."""
    with closing(config.build(config.required_num_envs or 1, seed)) as envs:
        task = config.task_spec(envs)
    findings = []
    if is_goal_env(task.observation_space):
        findings.append(
            "goals are observations like others, and nothing is relabeled: compute_reward does not fall from one value "
            "to another at some distance, in every number of a goal"
        )
    for keys, leaf in walk_space(task.action_space):
        if isinstance(leaf, spaces.Box) and max(np.abs(leaf.low).max(), np.abs(leaf.high).max()) >= LARGE_BOUND:
            part = f"part {leaf_name(keys)!r} of the action" if keys else "the action"
            findings.append(
                f"{part} has bounds of {LARGE_BOUND:g} and more, {describe_space(leaf)}: random actions are of that "
                "size; declare the bounds of useful ones"
            )
    return findings


def _play(config: EnvConfig, trials: int, seed: int) -> list[Trajectory]:
    """Return the first trials of random actions. Raises `UserError` at the first fault."""
    envs = config.build(config.required_num_envs or 1, seed)
    explorer = Explorer(NoExploration(), envs.action_space, envs.num_envs, np.random.default_rng(0))
    played: list[Trajectory] = []
    with closing(Collector(envs, "", explorer, FaultToleranceConfig(max_restarts=0))) as collector:
        policy = RandomPolicy(envs.action_space, np.random.default_rng(seed))
        while len(played) < trials:
            played += [trial for _, trial in collector.step(policy, deterministic=False)]
    return played[:trials]


def _are_equal(ones: Sequence[Trajectory], others: Sequence[Trajectory], *, first_only: bool = False) -> bool:
    """Return whether trials have the same rewards and the same observations, or the same first observations."""

    def observations(trial: Trajectory) -> list[np.ndarray]:
        return [leaf[:1] if first_only else leaf for leaf in _leaves(trial)]

    return all(
        np.array_equal(one.reward, other.reward) and all(map(np.array_equal, observations(one), observations(other)))
        for one, other in zip(ones, others, strict=True)
    )


def _is_constant(trial: Trajectory) -> bool:
    return all((leaf == leaf[:1]).all() for leaf in _leaves(trial))


def _leaves(trial: Trajectory) -> list[np.ndarray]:
    return [trial.read_observation(name, 0, len(trial) + 1) for name in (*trial.observation, *trial.lazy_observation)]
