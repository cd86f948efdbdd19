"""`CollectorWorker`: environments and a policy of their own, which work off orders; it knows nothing of Ray."""

import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from yamame.environments.config import EnvConfig, SingleEnvConfig
from yamame.model.policy import Policy
from yamame.records.fault import Fault
from yamame.records.trajectory import Trajectory
from yamame.rollout.collect import Collector
from yamame.rollout.exploration import Explorer
from yamame.rollout.faults import FaultMonitor
from yamame.run.cluster.orders import CollectResult, CollectRequest, PolicyWeights
from yamame.run.cluster.weights import load_actor_state
from yamame.run.config import RunConfig
from yamame.run.new_agent import build_agent


class CollectorWorker:
    """The share of one of a run's collectors in `config`, which is its learner's; trials go on from order to order.

    `seed` says, beside the run's own, which random streams it has. Raises `UserError` where its environments cannot be
    built.
    """

    def __init__(self, config: RunConfig, *, seed: tuple[int, ...]) -> None:
        num_envs = config.num_envs // config.collectors
        acting, exploring, environments = np.random.SeedSequence(config.seed, spawn_key=seed).spawn(3)
        trials = _placed(config.env, config.remote.cpus_per_collector).build(
            num_envs, int(environments.generate_state(1)[0])
        )
        device = torch.device("cuda" if config.remote.gpus_per_collector else "cpu")
        self._agent = build_agent(config, trials.observation_space, trials.action_space, trials.horizon, seed=0)
        self._agent.to(device)
        generator = torch.Generator(device).manual_seed(int(acting.generate_state(1)[0]))
        self._policy = Policy(self._agent, num_envs=num_envs, generator=generator)
        explorer = Explorer(config.exploration, trials.action_space, num_envs, np.random.default_rng(exploring))
        self._collector = Collector(trials, config.env.task_name, explorer, config.fault_tolerance)
        self._faults: list[Fault] = []
        self._collector.faults = FaultMonitor(config.fault_tolerance, forward_to=self._faults.append)
        self._weights = ""
        self._idle_since = time.monotonic()

    def collect(self, request: CollectRequest, weights: PolicyWeights) -> CollectResult:
        """Act as ordered. Raises what environments raise that cannot be begun anew."""
        began = time.monotonic()
        self._take(weights)
        collector = self._collector
        collector.env_steps, finished = request.env_steps, collector.faults.finished
        trajectories: list[Trajectory] = []
        vector_steps = 0
        while not vector_steps or (vector_steps < request.vector_steps and time.monotonic() - began < request.seconds):
            ended = collector.step(self._policy, deterministic=request.deterministic)
            trajectories += [trajectory for _, trajectory in ended]
            vector_steps += 1
        faults, self._faults[:] = tuple(self._faults), ()
        idle_seconds, self._idle_since = began - self._idle_since, time.monotonic()
        return CollectResult(
            request_id=request.request_id,
            version=weights.version,
            vector_steps=vector_steps,
            env_steps=collector.env_steps - request.env_steps,
            trajectories=trajectories,
            num_finished=collector.faults.finished - finished,
            faults=faults,
            seconds=self._idle_since - began,
            idle_seconds=idle_seconds,
        )

    def reset_trials(self) -> None:
        """Drop the trials in flight."""
        self._collector.reset_trials()

    def close(self) -> None:
        """Close the environments."""
        self._collector.close()

    def _take(self, weights: PolicyWeights) -> None:
        if weights.name != self._weights:
            load_actor_state(self._agent, weights.tensors)
            self._policy.load_weights(self._agent, version=weights.version)
            self._weights = weights.name


def _placed(env: EnvConfig, cpus: float) -> EnvConfig:
    """The environments, stepped in the collector's process where it has no cores for workers."""
    if isinstance(env, SingleEnvConfig) and env.num_workers is None and cpus < 2:
        stepped_here: dict[str, Any] = {"num_workers": 0}
        return replace(env, **stepped_here)
    return env
