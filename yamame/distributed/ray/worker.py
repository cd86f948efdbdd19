"""`CollectorActor`: what Ray runs in a process of its own. It never raises: what goes wrong is an answer, too."""

import os
import socket
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Shaped
from torch import nn

from yamame.algorithms.base import AlgorithmConfig, build_model
from yamame.collect.collector import Collector
from yamame.collect.exploration import Explorer
from yamame.collect.faults import FaultMonitor
from yamame.config import RunConfig
from yamame.data.trajectory import Trajectory
from yamame.distributed.ray.messages import (
    CollectorFailure,
    CollectorInfo,
    CollectRequest,
    CollectResult,
    PolicyWeights,
)
from yamame.envs.config import EnvConfig, SingleEnvConfig
from yamame.errors import UserError
from yamame.types import Fault


def actor_state(config: AlgorithmConfig, model: nn.Module) -> dict[str, Shaped[np.ndarray, "..."]]:
    """Return copies of the weights that acting needs, by name."""
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in config.acting_state(model).items()}


def load_actor_state(
    config: AlgorithmConfig, model: nn.Module, tensors: Mapping[str, Shaped[np.ndarray, "..."]]
) -> None:
    """Load the result of `actor_state` into a model. Raises `ValueError` if it is of another network."""
    expected = set(config.acting_state(model))
    if expected != set(tensors):
        raise ValueError(f"not the weights of this network: {sorted(expected ^ set(tensors))}")
    try:
        model.load_state_dict({name: torch.tensor(value) for name, value in tensors.items()}, strict=False)
    except RuntimeError as problem:
        raise ValueError(f"not the weights of this network: {problem}") from problem


class CollectorWorker:
    """The share of one of a run's collectors in `config`, which is its learner's; trials go on from order to order.

    `seed` says, beside the run's own, which random streams it has. Raises `UserError` where its environments cannot be
    built.
    """

    def __init__(self, config: RunConfig, *, seed: tuple[int, ...]) -> None:
        num_envs = config.num_envs // config.ray.num_collectors
        acting, exploring, environments = np.random.SeedSequence(config.seed, spawn_key=seed).spawn(3)
        trials = _placed(config.env, config.ray.num_cpus_per_collector).build(
            num_envs, int(environments.generate_state(1)[0])
        )
        device = torch.device("cuda" if config.ray.num_gpus_per_collector else "cpu")
        self._algorithm = config.algorithm
        self._model = build_model(
            config.algorithm, config.env.task_spec(trials), context_length=config.resolved_context_length, seed=0
        ).to(device)
        generator = torch.Generator(device).manual_seed(int(acting.generate_state(1)[0]))
        self._policy = config.algorithm.build_policy(self._model, num_envs=num_envs, generator=generator)
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
            load_actor_state(self._algorithm, self._model, weights.tensors)
            self._policy.load_weights(self._model, version=weights.version)
            self._weights = weights.name


def _placed(env: EnvConfig, cpus: float) -> EnvConfig:
    """The environments, stepped in the collector's process where it has no cores for workers."""
    if isinstance(env, SingleEnvConfig) and env.num_workers is None and cpus < 2:
        stepped_here: dict[str, Any] = {"num_workers": 0}
        return replace(env, **stepped_here)
    return env


_LOOKS = 8
"""So often in `keep_seconds` it is looked whether anybody still asks."""

_Answer = TypeVar("_Answer")


class CollectorActor:
    """Made in an instant, so that Ray's answer says that it has a place; `prepare` then takes its time.

    With `keep_seconds` the process ends by itself when nobody has asked anything of it for so long.
    """

    def __init__(self, config: RunConfig, seed: tuple[int, ...], *, keep_seconds: float | None) -> None:
        self._config, self._seed = config, seed
        self._collector: CollectorWorker | None = None
        self._learner = ""
        self._asked, self._busy = time.monotonic(), False
        if keep_seconds is not None:
            threading.Thread(target=self._leave_when_forgotten, args=(keep_seconds,), daemon=True).start()

    def ping(self) -> CollectorInfo:
        """Who this is; nothing else happens, but that somebody has asked."""
        self._asked = time.monotonic()
        return CollectorInfo(host=socket.gethostname(), pid=os.getpid())

    def setup(self, learner: str = "") -> CollectorInfo | CollectorFailure:
        """Build environments and network; or, for a learner that takes it over from another one, begin new trials.

        Part of the trials in flight was ordered by the other one, whose count nobody has; what it has ordered besides
        and was not worked off yet never will be. `learner` names the one that counts from now on.
        """
        self._learner = learner
        return self._answered(self._prepare)

    def collect(
        self, request: CollectRequest, weights: PolicyWeights, learner: str = ""
    ) -> CollectResult | CollectorFailure:
        """See `CollectorWorker.work`; nothing is done for another learner than the one that it was prepared for."""
        if learner != self._learner:
            return CollectorFailure(message="it works for another learner")
        return self._answered(lambda: self._prepared().collect(request, weights))

    def _prepare(self) -> CollectorInfo:
        if self._collector is None:
            self._prepared()
        else:
            self._collector.reset_trials()
        return self.ping()

    def _prepared(self) -> CollectorWorker:
        if self._collector is None:
            torch.set_num_threads(max(1, int(self._config.ray.num_cpus_per_collector)))
            self._collector = CollectorWorker(self._config, seed=self._seed)
        return self._collector

    def _answered(self, work: Callable[[], _Answer]) -> _Answer | CollectorFailure:
        self._busy = True
        try:
            return work()
        except UserError as problem:
            return CollectorFailure(message=str(problem))
        except Exception as problem:
            what = " ".join(f"{type(problem).__name__}: {problem}".split())
            return CollectorFailure(message=what, traceback=traceback.format_exc())
        finally:
            self._asked, self._busy = time.monotonic(), False

    def _leave_when_forgotten(self, keep_seconds: float) -> None:
        while self._busy or time.monotonic() - self._asked < keep_seconds:
            time.sleep(keep_seconds / _LOOKS)
        os._exit(0)
