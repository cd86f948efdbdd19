"""What a study will cost on this machine, from a few seconds of measuring each kind of run."""

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from yamame.collect.background import never
from yamame.collect.collector import Collector, Policy
from yamame.collect.exploration import Explorer, NoExploration
from yamame.run_config import RunConfig
from yamame.runs.directory import REPLAY
from yamame.tools.bench.measure import seconds_per_call
from yamame.tools.histories import ScriptedLearner, scripted_histories, write_histories
from yamame.tools.study.execute import RunStatus
from yamame.tools.study.plan import PlannedArm
from yamame.training.components import build_components

MEASURE_SECONDS = 1.5
"""Seconds of collection for each kind of run."""
MAX_TOKENS = 4096
"""Transitions of the timed update; the time of a whole batch is proportional."""
NUM_HISTORIES = 8
"""Learning histories from which a run on such data is measured."""


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Speed of one kind of run, with an untrained agent."""

    env_steps_per_second: float
    updates_per_second: float
    updates_per_env_step: float | None = None
    """Of algorithms on policy, whose updates depend on their trials; None: as the config says."""

    def updates(self, config: RunConfig) -> int:
        """Return the number of updates of a run."""
        if self.updates_per_env_step is None:
            return config.total_updates
        return round(config.env_steps * self.updates_per_env_step)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Estimated cost of all runs that are not finished."""

    num_runs: int
    env_steps: int
    updates: int
    seconds: float

    def to_text(self) -> str:
        """Return the cost in one line."""
        if not self.num_runs:
            return "all runs are finished"
        hours, minutes = self.seconds / 3600, self.seconds / 60
        time_text = f"{hours:,.1f} hours" if hours >= 1 else f"{minutes:,.1f} minutes"
        return (
            f"{self.num_runs} runs, {self.env_steps:,} environment steps, {self.updates:,} updates: about {time_text} "
            "on this machine"
        )


def estimate_cost(arms: Sequence[PlannedArm], measure: Callable[[RunConfig], Speed] | None = None) -> Cost:
    """Return the cost of the runs that are not finished. Runs that differ in `--env.name` only share a measurement."""
    measure = measure or measure_speed
    speeds: dict[tuple[str, ...], Speed] = {}
    num_runs = env_steps = updates = 0
    seconds = 0.0
    for each in arms:
        configs = [run.config for run in each.runs if run.status() is not RunStatus.FINISHED]
        if not configs:
            continue
        key = (each.arm.recipe, each.arm.algorithm or "", *each.arm.variants, *_without_name(each.arm.flags))
        if key not in speeds:
            speeds[key] = _measure_with_histories(configs[0], measure) if each.arm.histories else measure(configs[0])
        for config in configs:
            num_runs += 1
            env_steps += _collected(config)
            updates += speeds[key].updates(config)
            seconds += _seconds(config, speeds[key])
    return Cost(num_runs=num_runs, env_steps=env_steps, updates=updates, seconds=seconds)


def measure_speed(config: RunConfig) -> Speed:
    """Measure collection with all environments, and updates on the first trials."""
    if config.offline.is_offline_only:
        return _speed_on_stored_data(config)
    if config.algorithm.is_on_policy:
        return _speed_on_policy(config)
    env_steps = _collection_speed(config)
    context = config.resolved_context_length
    fraction = min(1.0, MAX_TOKENS / (config.replay.batch_size * context))
    batch_size = max(1, round(config.replay.batch_size * fraction))
    replay = replace(config.replay, batch_size=batch_size, unrewarded_keep_prob=1.0, prefer_rewarded_prob=0.0)
    alone = replace(config, num_envs=1, replay=replay)
    with tempfile.TemporaryDirectory() as folder, closing(build_components(alone, Path(folder), restarts=0)) as parts:
        while not len(parts.replay.store):
            parts.replay.store.extend(parts.experience.collect(1, never)[0])
        batch, learner = parts.replay.sampler.sample(), parts.algorithm
        learner.update(batch)
        (seconds,) = seconds_per_call(lambda: learner.update(batch), repeats=1, device=learner.compute.device)
    whole = config.replay.batch_size / batch_size
    return Speed(env_steps_per_second=env_steps, updates_per_second=1.0 / (seconds * whole))


def _speed_on_policy(config: RunConfig) -> Speed:
    """Measure collection, and all updates of the first iteration that has some."""
    env_steps = _collection_speed(config)
    vector_steps = -(-config.resolved_env_steps_per_iteration // config.num_envs)
    with tempfile.TemporaryDirectory() as folder, closing(build_components(config, Path(folder), restarts=0)) as parts:
        learner, replay = parts.algorithm, parts.replay
        while not (due := learner.updates_due(replay)):
            replay.store.extend(parts.experience.collect(vector_steps, never)[0])
        start = time.perf_counter()
        for batch in learner.batches(replay, due):
            learner.update(batch)
        seconds = time.perf_counter() - start
        return Speed(
            env_steps_per_second=env_steps,
            updates_per_second=due / seconds,
            updates_per_env_step=due / parts.experience.env_steps,
        )


def _speed_on_stored_data(config: RunConfig) -> Speed:
    """Measure updates, and the steps of evaluations: a run makes no others."""
    with tempfile.TemporaryDirectory() as folder:
        replay = Path(folder) / REPLAY
        with closing(build_components(config, replay, restarts=0)) as parts:
            learner, sampler = parts.algorithm, parts.replay.sampler
            batch = sampler.sample()
            learner.update(batch)
            (seconds,) = seconds_per_call(lambda: learner.update(batch), repeats=1, device=learner.compute.device)
            policy = config.algorithm.build_policy(
                learner.model,
                num_envs=config.num_envs,
                generator=torch.Generator(learner.compute.device),
                cuda_graph=learner.compute.cuda_graph,
            )
            return Speed(env_steps_per_second=_acting_speed(config, policy), updates_per_second=1.0 / seconds)


def _acting_speed(config: RunConfig, policy: Policy) -> float:
    """Measure the steps of environments whose trials are not kept."""
    envs = config.env.build(config.num_envs, config.seed)
    explorer = Explorer(NoExploration(), envs.action_space, envs.num_envs, np.random.default_rng(config.seed))
    with closing(Collector(envs, config.env.task_name, explorer, config.fault_tolerance)) as collector:
        collector.step(policy, deterministic=False)
        start, steps = time.perf_counter(), 0
        while time.perf_counter() - start < MEASURE_SECONDS:
            collector.step(policy, deterministic=False)
            steps += config.num_envs
        return steps / (time.perf_counter() - start)


def _measure_with_histories(config: RunConfig, measure: Callable[[RunConfig], Speed]) -> Speed:
    """Measure a run whose learning histories are not written yet, with a few of them."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "histories"
        write_histories(
            data, scripted_histories(config.env, ScriptedLearner(), count=NUM_HISTORIES, seed=config.seed), config.env
        )
        return measure(replace(config, offline=replace(config.offline, data=(str(data),))))


def _collection_speed(config: RunConfig) -> float:
    with tempfile.TemporaryDirectory() as folder, closing(build_components(config, Path(folder), restarts=0)) as parts:
        parts.experience.collect(1, never)
        start, before = time.perf_counter(), parts.experience.env_steps
        while time.perf_counter() - start < MEASURE_SECONDS:
            parts.experience.collect(1, never)
        return (parts.experience.env_steps - before) / (time.perf_counter() - start)


def _seconds(config: RunConfig, speed: Speed) -> float:
    """Return the time of a run: collection, updates and evaluations, whose trials last to the horizon."""
    interval = config.eval.interval_env_steps
    trials = config.eval.final_trials + (config.eval.trials * (config.env_steps // interval) if interval else 0)
    steps = _collected(config) + trials * config.env.max_trial_steps
    return steps / speed.env_steps_per_second + speed.updates(config) / speed.updates_per_second


def _collected(config: RunConfig) -> int:
    """Return the environment steps of training: none on stored data alone."""
    return 0 if config.offline.is_offline_only else config.env_steps


def _without_name(flags: Sequence[str]) -> list[str]:
    """Return flags without `--env.name VALUE`."""
    at = flags.index("--env.name") if "--env.name" in flags else len(flags)
    return [*flags[:at], *flags[at + 2 :]]
