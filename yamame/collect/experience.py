"""`Experience`: where the trajectories of a run come from, with the policy and the weights that act there."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import nn
from typing_extensions import override

from yamame.collect.background import ShouldStop
from yamame.collect.collector import Collector, Policy
from yamame.collect.faults import RESTARTS
from yamame.data.trajectory import Trajectory
from yamame.envs.base import TrialVectorEnv
from yamame.types import State


@runtime_checkable
class TrainedPolicy(Policy, Protocol):
    """A policy with its own memory and its own copy of an algorithm's weights."""

    def load_weights(self, model: Any, *, version: int) -> None:
        """Copy the present weights of a model. Memory is kept."""
        ...

    def reset(self) -> None:
        """Clear the memory of all environments."""
        ...

    def state_dict(self) -> State:
        """Return memory and random state; the weights belong to the algorithm."""
        ...

    def load_state_dict(self, state: State) -> None:
        """Restore the result of `state_dict`."""
        ...


class Experience(ABC):
    """Source of trajectories of one process. In this process, in a Ray cluster, or in stored data.

    Args:
        environments: For their spaces; stepped by `LocalExperience` only.
    """

    def __init__(self, environments: TrialVectorEnv) -> None:
        self.environments = environments
        self.env_steps = 0
        """Transitions of this process so far, summed over its environments."""
        self.remote_env_steps = 0
        """Transitions that other processes of the run have made. Exploration is scheduled by the sum."""

    @abstractmethod
    def load_weights(self, model: nn.Module, *, version: int) -> None:
        """Act with the weights of a model from now on. `version` is its number of updates."""

    @abstractmethod
    def collect(self, vector_steps: int, should_stop: ShouldStop) -> tuple[list[Trajectory], int]:
        """Act for a number of steps of all environments, or until `should_stop`.

        Returns:
            The trials that completed, and the number of vector steps that are left.

        Raises:
            UserError: If environments fail too often.
        """

    @abstractmethod
    def counts(self) -> dict[str, float]:
        """Return numbers of faults and the like, to be summed over processes."""

    def metrics(self) -> dict[str, float]:
        """Return other metrics since the last call."""
        return {}

    @abstractmethod
    def state_dict(self) -> Mapping[str, Any]:
        """Return everything that later trials depend on."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        """Restore the result of `state_dict`; return whether the active trials continue. If not, new ones start."""

    def close(self) -> None:
        """Close the environments."""
        self.environments.close()


class LocalExperience(Experience):
    """Acts in this process.

    Args:
        collector: Steps the environments.
        policy: Acts in them and in no others: its memory belongs to their trials.
        deterministic: Act with the mode of the policy instead of a sample.
        rng: Random stream of exploration, whose state is saved here.
    """

    def __init__(
        self, collector: Collector, policy: TrainedPolicy, *, deterministic: bool, rng: np.random.Generator
    ) -> None:
        super().__init__(collector.environments)
        self.collector, self.policy = collector, policy
        self._deterministic, self._rng = deterministic, rng

    @override
    def load_weights(self, model: nn.Module, *, version: int) -> None:
        self.policy.load_weights(model, version=version)

    @override
    def collect(self, vector_steps: int, should_stop: ShouldStop) -> tuple[list[Trajectory], int]:
        self.collector.remote_env_steps = self.remote_env_steps
        trajectories: list[Trajectory] = []
        while vector_steps and not should_stop():
            completed = self.collector.step(self.policy, deterministic=self._deterministic)
            trajectories += [trajectory for _, trajectory in completed]
            vector_steps -= 1
        self.env_steps = self.collector.env_steps
        return trajectories, vector_steps

    @override
    def counts(self) -> dict[str, float]:
        return self.collector.faults.metrics()

    @override
    def state_dict(self) -> Mapping[str, Any]:
        return {
            "collector": self.collector.state_dict(),
            "policy": self.policy.state_dict(),
            "exploration_rng": self._rng.bit_generator.state,
        }

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        self._rng.bit_generator.state = state["exploration_rng"]
        restored_trials = self.collector.load_state_dict(state["collector"])
        self.policy.load_state_dict(state["policy"])
        self.env_steps = self.collector.env_steps
        return restored_trials


class StoredExperience(Experience):
    """Stored data alone: counts the environment steps that schedule updates, and makes none.

    Args:
        environments: For their spaces.
        env_steps: Length of the run.
        num_envs: Number of environments whose steps are counted.
    """

    def __init__(self, environments: TrialVectorEnv, *, env_steps: int, num_envs: int) -> None:
        super().__init__(environments)
        self._max_env_steps, self._num_envs = env_steps, num_envs

    @override
    def load_weights(self, model: nn.Module, *, version: int) -> None:
        pass  # nothing acts

    @override
    def collect(self, vector_steps: int, should_stop: ShouldStop) -> tuple[list[Trajectory], int]:
        self.env_steps = min(self.env_steps + vector_steps * self._num_envs, self._max_env_steps)
        return [], 0

    @override
    def counts(self) -> dict[str, float]:
        return {RESTARTS: 0.0}

    @override
    def state_dict(self) -> Mapping[str, Any]:
        return {"env_steps": self.env_steps}

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        self.env_steps = state["env_steps"]
        return True
