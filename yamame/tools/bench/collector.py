"""`yamame bench collector`: an untrained policy acts and its trajectories are stored."""

import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Shaped

from yamame.algorithms.amago.policy import AMAGOPolicy
from yamame.collect.collector import Collector
from yamame.collect.policy import Policy
from yamame.components import TrainingComponents, build_components
from yamame.data.step import PolicyInput, VectorStep
from yamame.envs.base import TrialVectorEnv
from yamame.envs.config import EnvConfig
from yamame.envs.dark_key_to_door import DarkKeyToDoorConfig
from yamame.envs.popgym import PopgymConfig
from yamame.envs.tmaze import PassiveTMazeConfig
from yamame.errors import ConfigFieldError, check_range
from yamame.tools.bench.measure import BenchResult, PeakMemory, describe_machine
from yamame.tools.bench.options import SizedOptions, describe_config, run_config


@dataclass(frozen=True, kw_only=True)
class CollectorBench(SizedOptions):
    """Environment steps per second with exploration; finished trials are stored as in a run."""

    warmup: int = 1
    """Untimed repeats before, of `horizon` steps each."""
    env: str = "passive-tmaze"
    """passive-tmaze, dark-key-to-door or popgym:NAME."""
    num_envs: int = 24
    """Number of environments."""
    horizon: int = 0
    """Steps of a trial and of each repeat (longer than the context: the memory rolls); 0: the context.
    POPGym's episodes have their own lengths."""
    workers: int | None = None
    """Subprocesses of POPGym's environments; 0: none; None: autotuned."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "num_envs", ge=1)
        check_range(self, "horizon", ge=0)
        if self.steps < max(2, self.context):
            raise ConfigFieldError(self, "horizon", f"must be at least 2 and the context, {self.context}")
        if self.context > self.task.max_trial_steps:
            raise ConfigFieldError(
                self, "context", f"must be at most the {self.task.max_trial_steps} steps of {self.task.task_name}"
            )

    @property
    def steps(self) -> int:
        """`horizon` with 0 resolved."""
        return self.horizon or self.context

    @property
    def task(self) -> EnvConfig:
        """The task. Raises `ConfigFieldError` for an unknown name."""
        if self.env == "passive-tmaze":
            return PassiveTMazeConfig(horizon=self.steps - 1)
        if self.env == "dark-key-to-door":
            return DarkKeyToDoorConfig(horizon=self.steps)
        suite, _, name = self.env.partition(":")
        if suite != "popgym":
            raise ConfigFieldError(self, "env", f"{self.env!r}: give passive-tmaze, dark-key-to-door or popgym:NAME")
        return PopgymConfig(name=name, num_workers=self.workers)

    def run(self) -> BenchResult:
        """Run the benchmark."""
        self.use_threads()
        config = run_config(self, self.task, num_envs=self.num_envs)
        with (
            tempfile.TemporaryDirectory() as folder,
            closing(build_components(config, Path(folder), restarts=0)) as parts,
        ):
            return self._measure(parts)

    def _measure(self, parts: TrainingComponents) -> BenchResult:
        assert isinstance(parts.policy, AMAGOPolicy)
        policy = _TimedPolicy(parts.policy)
        environments = parts.collector.environments = _TimedEnvironments(parts.collector.environments)
        device = parts.algorithm.compute.device
        memory = PeakMemory(device)
        for _ in range(self.warmup):
            self._collect(parts, policy)
        measured: dict[str, list[float]] = {
            name: []
            for name in ("env_steps_per_second", "milliseconds_per_act", "policy_fraction", "environment_fraction")
        }
        with memory:
            for _ in range(self.repeats):
                policy.seconds = environments.seconds = 0.0
                seconds, env_steps = self._collect(parts, policy)
                measured["env_steps_per_second"].append(env_steps / seconds)
                measured["milliseconds_per_act"].append(1e3 * policy.seconds / self.steps)
                measured["policy_fraction"].append(policy.seconds / seconds)
                measured["environment_fraction"].append(environments.seconds / seconds)
        return BenchResult(
            bench="collector",
            samples=measured,
            scalars={"peak_memory_bytes": memory.num_bytes},
            config=describe_config(self, parts.algorithm.compute),
            machine=describe_machine(device),
        )

    def _collect(self, parts: TrainingComponents, policy: Policy) -> tuple[float, int]:
        """Return seconds and environment steps of one repeat."""
        collector = parts.collector
        assert isinstance(collector, Collector)
        start, before = time.perf_counter(), collector.env_steps
        for _ in range(self.steps):
            for _, trajectory in collector.step(policy, deterministic=False):
                parts.replay.store.append(trajectory)
        return time.perf_counter() - start, collector.env_steps - before


class _TimedPolicy:
    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.version, self.extras = policy.version, policy.extras
        self.seconds = 0.0

    def act(self, step: PolicyInput, *, deterministic: bool) -> Shaped[np.ndarray, "E ..."]:
        start = time.perf_counter()
        action = self._policy.act(step, deterministic=deterministic)
        self.seconds += time.perf_counter() - start
        return action


class _TimedEnvironments:
    def __init__(self, environments: TrialVectorEnv) -> None:
        self._environments = environments
        self.num_envs = environments.num_envs
        self.observation_space = environments.observation_space
        self.action_space = environments.action_space
        self.env_action_space = environments.env_action_space
        self.horizon = environments.horizon
        self.seconds = 0.0

    def reset(self) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        return self._environments.reset()

    def step(self, action: Shaped[np.ndarray, "E ..."]) -> VectorStep:
        start = time.perf_counter()
        step = self._environments.step(action)
        self.seconds += time.perf_counter() - start
        return step

    def close(self) -> None:
        self._environments.close()
