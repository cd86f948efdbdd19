"""`check_env`: what is wrong or unusual about an environment, before training on it."""

import re
import time
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from yamame.algorithms.base import build_model
from yamame.collect.collector import Collector, RandomPolicy
from yamame.collect.episode_checks import OwnEnvConfig, are_equal, episode_findings, read_leaves
from yamame.collect.exploration import Explorer, NoExploration
from yamame.collect.faults import FaultToleranceConfig
from yamame.collect.markers import marker_findings
from yamame.collect.task_checks import task_findings
from yamame.collect.undeclared import undeclared_findings
from yamame.data.actions import ACTION_MASK_KEY, num_choices
from yamame.data.schema import TaskSpec
from yamame.data.spaces import describe_space, leaf_name, leaf_names, walk_space
from yamame.data.trajectory import Trajectory
from yamame.envs.env_fn import EnvFn, env_config
from yamame.envs.gymnasium import make_env
from yamame.envs.vector.construction import call_env_fn
from yamame.envs.working_directory import kept_working_directory
from yamame.envs.wrapper_chain import wrapper_chain
from yamame.envs.wrappers.instruction import is_goal_env
from yamame.errors import UserError
from yamame.recipes import recipe_names
from yamame.recipes.settings.presets import default_config
from yamame.training.memory_estimate import check_memory

LARGE_BOUND = 1e6
"""Bounds of actions that were probably not meant as such."""
MIN_SECONDS = 3.0
"""Trials that take less time give no speed: starting takes a part of it."""
MIN_FLOAT32_STEPS = 100
"""Numbers that differ by fewer steps of float32 than this are reported as rounded, where steps are large."""
MIN_VARYING_STEP, MIN_CONSTANT_STEP = 2.0**-7, 2.0
"""Smallest step of float32 that is large: for numbers that vary, from 1e5 on, and for constant ones, from 2e7 on."""
_UNUSED_MASK = re.compile(
    r"(get_)?(\w*(legal|valid|avail|available|possible|allowed|feasible)\w*_(actions|moves)|(\w*_)?masks?)"
)
"""Names that environments give to their masks, which are not used."""


@kept_working_directory()
def check_env(
    env: EnvFn | str, *, horizon: int | None = None, attempts: int | None = 1, trials: int = 8, seed: int = 0
) -> list[str]:
    """Play trials with random actions, as training would; return what is unusual, one sentence each.

    It finds trials that the seed does not determine, such as those with random numbers of `np.random`; episodes that
    repeat, seeds that change nothing, copies that share state, and attempts that do not share their task; tasks,
    observations and rewards that never vary; horizons that no trial reaches or that all exceed; goals that are reached
    at once; masks under a name that is not used; observations that are not in the space, or whose numbers mark missing
    values; numbers that float32 rounds; slow environments. It does not find what random actions do not reach within
    these trials (the first 32 steps, for repeated episodes, shared state and attempts), an environment that is the same
    for every seed although it should vary, a hidden task that repeats behind observations that vary, rewards that are
    wrong, and what happens in other processes only.

    Args:
        env: Function that makes the environment, or its Gymnasium id.
        horizon: As in `yamame.train`.
        attempts: As in `yamame.train`.
        trials: Number of trials.
        seed: Seed of the environment and of the actions.

    Raises:
        UserError: For whatever would stop training: spaces that cannot be used, by the adapters or by the networks of
            the default agent, a wrong interface, exceptions, invalid observations, rewards or masks.
    """
    if isinstance(env, str) and env in recipe_names():
        raise UserError(f"{env} is a recipe, whose environment needs no check: pass a function or a Gymnasium id")
    config = env_config(env, horizon=horizon, attempts=attempts)
    with closing(config.build(config.required_num_envs or 1, seed)) as envs:
        task = config.task_spec(envs)
    remarks = _build_model(config, task, seed)
    started = time.perf_counter()
    played, reward_finding = _play(config, trials, seed)
    seconds = time.perf_counter() - started
    (again, _), (other, _) = _play(config, trials, seed), _play(config, trials, seed + 1)
    is_reproducible = are_equal(played, again)
    num_steps = sum(map(len, played))
    steps_per_second = num_steps / seconds
    truncated_at = _time_limit(played) if attempts == 1 else None
    tolerance = played[0].goals.tolerance if played[0].goals else 0.0
    ends_early = any(len(trial) < config.max_trial_steps or trial.terminated.any() for trial in played)
    findings = {
        "the same seed and actions give different trials: sample from self.np_random, or runs cannot be repeated": (
            not is_reproducible
        ),
        "all seeds give the same first observation and the same rewards: is the task sampled in reset?": (
            are_equal(played, other, first_only=True)
        ),
        f"no reward in {trials} trials of random actions: rewards that are rarer than that are hard to find": (
            not any(trial.reward.any() for trial in played)
        ),
        "the observation never changes": all(map(_is_constant, played)),
        f"no trial of random actions ended before the horizon of {config.max_trial_steps} steps": not ends_early,
        f"every trial is truncated after {truncated_at} steps: pass horizon={truncated_at}, which sets the discount": (
            truncated_at is not None and truncated_at < config.max_trial_steps
        ),
        "every trial of random actions reaches its goal in the first step, within the tolerance of "
        f"{tolerance:g} in each number: set env.goal_tolerance": (
            tolerance > 0 and all(len(trial) == 1 and trial.reward.all() for trial in played)
        ),
        f"{steps_per_second:,.0f} steps per second: training mostly waits for the environment": (
            steps_per_second < 100 and seconds > MIN_SECONDS
        ),
    }
    return [
        *(finding for finding, applies in findings.items() if applies),
        *filter(None, [reward_finding]),
        *remarks,
        *episode_findings(config, seed, is_reproducible=is_reproducible),
        *(task_findings(config, seed) if is_reproducible and attempts != 1 else []),
        *_rounded_leaves(played),
        *_unused_masks(env, played),
        *undeclared_findings(env),
        *marker_findings(played),
        *_space_findings(task),
    ]


def _space_findings(task: TaskSpec) -> list[str]:
    """Return what is unusual about the spaces."""
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


def _build_model(config: OwnEnvConfig, task: TaskSpec, seed: int) -> list[str]:
    """Build the networks of the default agent, which refuses what training would; return its remarks on the task."""
    run = default_config(config)
    check_memory(run, task)
    build_model(run.algorithm, task, context_length=run.resolved_context_length, seed=seed)
    return run.algorithm.remarks(task)


def _play(config: OwnEnvConfig, trials: int, seed: int) -> tuple[list[Trajectory], str | None]:
    """Return the first trials of random actions and what is wrong with the size of rewards, if anything.

    Raises `UserError` at the first fault.
    """
    envs = config.build(config.required_num_envs or 1, seed)
    explorer = Explorer(NoExploration(), envs.action_space, envs.num_envs, np.random.default_rng(0))
    played: list[Trajectory] = []
    with closing(Collector(envs, "", explorer, FaultToleranceConfig(max_restarts=0))) as collector:
        policy = RandomPolicy(envs.action_space, np.random.default_rng(seed))
        while len(played) < trials:
            played += [trial for _, trial in collector.step(policy, deterministic=False)]
    return played[:trials], collector.rewards.finding()


def _rounded_leaves(played: list[Trajectory]) -> list[str]:
    """Return a finding for each float32 leaf with numbers so large, for how they differ, that float32 rounds them."""
    findings: list[str] = []
    for name, leaf in played[0].observation.items():
        if leaf.dtype != np.float32:
            continue
        values = np.concatenate([trial.observation[name].reshape(len(trial) + 1, -1) for trial in played])
        low, high = values.min(axis=0), values.max(axis=0)
        step = np.spacing(np.maximum(np.abs(low), np.abs(high)))
        varies_little = (high > low) & (high - low < MIN_FLOAT32_STEPS * step) & (step >= MIN_VARYING_STEP)
        is_rounded = varies_little | (step >= MIN_CONSTANT_STEP) & (high == low)
        if is_rounded.any():
            worst = int(is_rounded.argmax())
            findings.append(
                f"observation {name!r} has numbers from {low[worst]:.10g} to {high[worst]:.10g}, which float32 rounds "
                f"to multiples of {step[worst]:.2g}: declare np.float64, or subtract a constant"
            )
    return findings


def _is_constant(trial: Trajectory) -> bool:
    return all((leaf == leaf[:1]).all() for leaf in read_leaves(trial))


def _time_limit(trials: list[Trajectory]) -> int | None:
    """Return the length at which every trial is truncated; None if one terminates or they have several lengths."""
    lengths = {len(trial) for trial in trials}
    return lengths.pop() if len(lengths) == 1 and not any(trial.terminated.any() for trial in trials) else None


def _unused_masks(env: EnvFn | str, played: list[Trajectory]) -> list[str]:
    """Return a finding if an environment without action masks has them under another name."""
    if any(ACTION_MASK_KEY in (*trial.observation, *trial.lazy_observation) for trial in played):
        return []
    with closing(make_env(env) if isinstance(env, str) else call_env_fn(env)) as made:
        if not isinstance(made, gymnasium.Env) or not num_choices(made.action_space):
            return []
        info: Any = made.reset(seed=0)[1]
        names = {*info, *(name for each in wrapper_chain(made) for name in dir(each))}
        names |= set(leaf_names(made.observation_space))
    return [
        f"{name} of the environment is not used: return the mask in info['action_mask'] at every reset and step, or "
        "from a method action_masks(), or name an entry of info or of the observation by env.action_mask_key"
        for name in sorted(map(str, names))
        if _UNUSED_MASK.fullmatch(name.rpartition("/")[2])
    ][:1]
