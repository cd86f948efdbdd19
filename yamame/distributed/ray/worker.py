"""`CollectorActor`: the Ray actor of a collector, and its messages. It never raises: failures are replies."""

import os
import socket
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Shaped
from torch import nn
from typing_extensions import override

from yamame.algorithms.base import AlgorithmConfig, build_model
from yamame.collect.collector import Collector
from yamame.collect.exploration import Explorer
from yamame.collect.faults import FaultMonitor, FaultToleranceConfig
from yamame.data.trajectory import Trajectory
from yamame.envs.config import EnvConfig, SingleEnvConfig
from yamame.errors import UserError, describe_error
from yamame.run_config import RunConfig
from yamame.types import Fault


@dataclass(frozen=True, kw_only=True)
class PolicyWeights:
    """Weights that a learner sends to collectors."""

    version: int
    """Number of updates made so far."""
    tensors: Mapping[str, Shaped[np.ndarray, "..."]]


@dataclass(frozen=True, kw_only=True)
class CollectRequest:
    """A request to one collector."""

    weight_sync: int
    """Number of weight syncs of the learner so far."""
    vector_steps: int
    """Maximum number of steps of all environments of the collector."""
    seconds: float
    """Time limit; at least one step is made."""
    env_steps: int
    """Environment steps of the whole run so far, for the exploration schedule."""
    deterministic: bool


@dataclass(frozen=True, kw_only=True)
class CollectResult:
    """Result of a request."""

    vector_steps: int
    env_steps: int
    """Number of transitions."""
    trajectories: Sequence[Trajectory]
    """Trials that ended, in order; they may have started in earlier requests."""
    num_finished: int
    """Number of trials that completed without a fault."""
    faults: Sequence[Fault]
    seconds: float
    """Duration."""
    idle_seconds: float
    """Time without a request before it."""


@dataclass(frozen=True, kw_only=True)
class CollectorFailure:
    """Reply of a collector that failed."""

    message: str
    traceback: str = ""
    """Empty for a `UserError`."""


def actor_state(config: AlgorithmConfig, model: nn.Module) -> dict[str, Shaped[np.ndarray, "..."]]:
    """Return copies of the weights that acting needs, by name."""
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in config.collecting_state(model).items()}


def load_actor_state(
    config: AlgorithmConfig, model: nn.Module, tensors: Mapping[str, Shaped[np.ndarray, "..."]]
) -> None:
    """Load the result of `actor_state` into a model. Raises `ValueError` if it is of another network."""
    expected = set(config.collecting_state(model))
    if expected != set(tensors):
        raise ValueError(f"not the weights of this network: {sorted(expected ^ set(tensors))}")
    try:
        model.load_state_dict({name: torch.tensor(value) for name, value in tensors.items()}, strict=False)
    except RuntimeError as problem:
        raise ValueError(f"not the weights of this network: {problem}") from problem


class CollectorWorker:
    """A collector's shard of the environments, and its policy; trials continue from one request to the next.

    Args:
        config: Of its learner.
        seed: Selects its random streams, in addition to the seed of the run.

    Raises:
        UserError: If the environments cannot be built.
    """

    def __init__(self, config: RunConfig, *, seed: tuple[int, ...]) -> None:
        num_envs = config.num_envs // config.ray.num_collectors
        acting, exploring, environments = np.random.SeedSequence(config.seed, spawn_key=seed).spawn(3)
        trials = _adapt_num_workers(config.env, config.ray.num_cpus_per_collector).build(
            num_envs, int(environments.generate_state(1)[0])
        )
        device = torch.device("cuda" if config.ray.num_gpus_per_collector else "cpu")
        self._algorithm = config.algorithm
        self._model = build_model(
            config.algorithm, config.env.task_spec(trials), context_length=config.resolved_context_length, seed=0
        ).to(device)
        generator = torch.Generator(device).manual_seed(int(acting.generate_state(1)[0]))
        self._policy = config.algorithm.build_policy(
            self._model,
            num_envs=num_envs,
            generator=generator,
            collects=True,
            cuda_graph=config.compute.cuda_graph,
        )
        explorer = Explorer(config.exploration, trials.action_space, num_envs, np.random.default_rng(exploring))
        self.collector = Collector(trials, config.env.task_name, explorer, config.fault_tolerance)
        self._version: int | None = None
        self._idle_since = time.monotonic()

    def collect(self, request: CollectRequest, weights: PolicyWeights) -> CollectResult:
        """Act as requested. Raises exceptions of environments that cannot be restarted."""
        started = time.monotonic()
        if weights.version != self._version:
            load_actor_state(self._algorithm, self._model, weights.tensors)
            self._policy.load_weights(self._model, version=weights.version)
            self._version = weights.version
        collector = self.collector
        recorder = collector.faults = _FaultRecorder(collector.faults.config)
        collector.env_steps = request.env_steps
        trajectories: list[Trajectory] = []
        vector_steps = 0
        while not vector_steps or (
            vector_steps < request.vector_steps and time.monotonic() - started < request.seconds
        ):
            ended = collector.step(self._policy, deterministic=request.deterministic)
            trajectories += [trajectory for _, trajectory in ended]
            vector_steps += 1
        idle_seconds, self._idle_since = started - self._idle_since, time.monotonic()
        return CollectResult(
            vector_steps=vector_steps,
            env_steps=collector.env_steps - request.env_steps,
            trajectories=trajectories,
            num_finished=recorder.num_finished,
            faults=recorder.faults,
            seconds=self._idle_since - started,
            idle_seconds=idle_seconds,
        )


class _FaultRecorder(FaultMonitor):
    """Records the faults of one request, which the learner counts."""

    def __init__(self, config: FaultToleranceConfig) -> None:
        super().__init__(config)
        self.faults: list[Fault] = []
        self.num_finished = 0

    @override
    def record_faults(self, faults: Sequence[Fault], *, finished: int, worked: bool) -> None:
        self.faults += faults
        self.num_finished += finished


def _adapt_num_workers(env: EnvConfig, cpus: float) -> EnvConfig:
    """Step environments in the collector's process if it has no cores for workers."""
    if isinstance(env, SingleEnvConfig) and env.num_workers is None and cpus < 2:
        changes: dict[str, Any] = {"num_workers": 0}
        return replace(env, **changes)
    return env


_Reply = TypeVar("_Reply")


class CollectorActor:
    """Ray actor of a collector.

    Its constructor is fast, so that a reply to `ping` shows that it is scheduled; `setup` may be slow.

    Args:
        config: Of its learner.
        seed: Of the `CollectorWorker`.
    """

    def __init__(self, config: RunConfig, seed: tuple[int, ...]) -> None:
        self._config, self._seed = config, seed
        self._worker: CollectorWorker | None = None

    def ping(self) -> str:
        """Return the process and its host, for messages."""
        return f"process {os.getpid()} on {socket.gethostname()}"

    def setup(self) -> str | CollectorFailure:
        """Build environments and network; return the result of `ping`."""
        return self._reply(self._setup)

    def collect(self, request: CollectRequest, weights: PolicyWeights) -> CollectResult | CollectorFailure:
        """Call `CollectorWorker.collect`, after `setup`."""
        assert self._worker is not None
        worker = self._worker
        return self._reply(lambda: worker.collect(request, weights))

    def _setup(self) -> str:
        torch.set_num_threads(max(1, int(self._config.ray.num_cpus_per_collector)))
        self._worker = CollectorWorker(self._config, seed=self._seed)
        return self.ping()

    def _reply(self, fn: Callable[[], _Reply]) -> _Reply | CollectorFailure:
        try:
            return fn()
        except UserError as problem:
            return CollectorFailure(message=str(problem))
        except Exception as problem:
            return CollectorFailure(message=describe_error(problem), traceback=traceback.format_exc())
