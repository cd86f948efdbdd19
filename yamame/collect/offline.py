"""`OfflineCollector`: takes the place of a collector in a run that learns from stored data alone."""

from typing import Any

from yamame.collect.faults import RESTARTS
from yamame.data.trajectory import Trajectory
from yamame.envs.base import TrialVectorEnv
from yamame.types import State


class OfflineCollector:
    """Counts environment steps, which schedule updates, without stepping any environment."""

    def __init__(self, environments: TrialVectorEnv, *, env_steps: int, num_envs: int) -> None:
        self.environments = environments
        self.env_steps = 0
        """Environment steps that a collector would have made by now."""
        self.remote_env_steps = 0
        """Always 0: a run on stored data is one process."""
        self._max_env_steps, self._num_envs = env_steps, num_envs

    def close(self) -> None:
        """Close the environments."""
        self.environments.close()

    def counts(self) -> dict[str, float]:
        """Return the number of restarts, which is 0."""
        return {RESTARTS: 0.0}

    def metrics(self) -> dict[str, float]:
        """Return no metrics."""
        return {}

    def step(self, policy: Any, *, deterministic: bool) -> list[tuple[int, Trajectory]]:
        """Count one vector step, up to the length of the run; no trial ever finishes."""
        self.env_steps = min(self.env_steps + self._num_envs, self._max_env_steps)
        return []

    def state_dict(self) -> State:
        """Return the step counter."""
        return {"env_steps": self.env_steps}

    def load_state_dict(self, state: State) -> bool:
        """Restore the step counter; always True: no trial is lost."""
        self.env_steps = state["env_steps"]
        return True
