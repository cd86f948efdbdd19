"""`Experience`: where the trajectories of a run come from, with the policy and the weights that act there."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import nn
from typing_extensions import override

from yamame.collect.background import ShouldStop
from yamame.collect.collector import Collector, Policy
from yamame.collect.faults import RESTARTS
from yamame.data.trajectory import Trajectory
from yamame.envs.base import TrialVectorEnv
from yamame.envs.vector.faults import restart_with_retries
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
    """Source of the trajectories of a learner process: its environments, collectors in a Ray cluster, or stored data.

    Args:
        environments: For their spaces; stepped by `LocalExperience` only.
    """

    def __init__(self, environments: TrialVectorEnv) -> None:
        self.environments = environments
        self.env_steps = 0
        """Transitions of this process so far, summed over its environments."""
        self.remote_env_steps = 0
        """Transitions that other processes of the run have made. Exploration is scheduled by the sum."""
        self.until_trial_end = False
        """Whether `collect` returns as soon as no trial is active."""
        self._is_open = True

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
        """Return metrics that are summed over processes, such as the numbers of faults."""

    def metrics(self) -> dict[str, float]:
        """Return other metrics since the last call."""
        return {}

    @abstractmethod
    def state_dict(self) -> Mapping[str, Any]:
        """Return everything that later trials depend on."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        """Restore the result of `state_dict`; return whether the active trials continue. If not, new ones start."""

    @property
    def can_pause(self) -> bool:
        """Whether now is a time for `pause`: no part of a trial is lost, or several environments have trials that end
        at different times, so that waiting does not help."""
        return True

    def pause(self) -> None:
        """Close the environments until they are needed again: of some simulators only one can exist at a time."""
        if self._is_open:
            self._is_open = False
            self.environments.close()

    def close(self) -> None:
        """Close the environments."""
        self.pause()


class LocalExperience(Experience):
    """Acts in this process.

    Args:
        collector: Steps the environments.
        policy: Acts in them and in no others: its memory belongs to their trials.
        deterministic: Act with the mode of the policy instead of a sample.
        rng: Random stream of exploration, whose state is saved here.
        remake: Makes the environments again after a pause, from the number of times that they were made before.
    """

    def __init__(
        self,
        collector: Collector,
        policy: TrainedPolicy,
        *,
        deterministic: bool,
        rng: np.random.Generator,
        remake: Callable[[int], TrialVectorEnv],
    ) -> None:
        super().__init__(collector.environments)
        self.collector, self.policy = collector, policy
        self._deterministic, self._rng, self._remake = deterministic, rng, remake
        self._num_pauses = 0
        self._paused_state: State = {}
        """State of the collector while its environments are closed."""

    @override
    def load_weights(self, model: nn.Module, *, version: int) -> None:
        self.policy.load_weights(model, version=version)

    @override
    def collect(self, vector_steps: int, should_stop: ShouldStop) -> tuple[list[Trajectory], int]:
        self._open()
        self.collector.remote_env_steps = self.remote_env_steps
        trajectories: list[Trajectory] = []
        while vector_steps and not should_stop():
            completed = self.collector.step(self.policy, deterministic=self._deterministic)
            trajectories += [trajectory for _, trajectory in completed]
            vector_steps -= 1
            if self.until_trial_end and not self.collector.has_active_trials:
                vector_steps = 0
        self.env_steps = self.collector.env_steps
        return trajectories, vector_steps

    @override
    def counts(self) -> dict[str, float]:
        return self.collector.faults.metrics()

    @property
    @override
    def can_pause(self) -> bool:
        if not (self._is_open and self.collector.has_active_trials):
            return True
        return self.environments.num_envs > 1 or self.collector.state_dict()["active_trials"] is not None

    @override
    def pause(self) -> None:
        """Close the environments until the next `collect`. Their trials continue if they can save their state."""
        if self._is_open:
            self._paused_state = self.collector.state_dict()
            self._num_pauses += 1
        super().pause()

    def _open(self) -> None:
        """Make the environments again after a pause."""
        if self._is_open:
            return
        make = partial(self._remake, self._num_pauses)
        self.environments = self.collector.environments = restart_with_retries(make, "the training environment", [])
        self._is_open = True
        self.collector.load_state_dict(self._paused_state)

    @override
    def close(self) -> None:
        super().pause()

    @override
    def state_dict(self) -> Mapping[str, Any]:
        return {
            "collector": self.collector.state_dict() if self._is_open else self._paused_state,
            "policy": self.policy.state_dict(),
            "exploration_rng": self._rng.bit_generator.state,
            "num_pauses": self._num_pauses,
            "is_paused": not self._is_open,
        }

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        self._rng.bit_generator.state = state["exploration_rng"]
        restored_trials = self.collector.load_state_dict(state["collector"])
        self.policy.load_state_dict(state["policy"])
        self.env_steps = self.collector.env_steps
        self._num_pauses = state.get("num_pauses", 0)
        if state.get("is_paused", False):
            self._paused_state = state["collector"]
            super().pause()
            return True
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
