"""`RestartingVectorEnv`: environments that come as one whole, and are made anew as one."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Shaped, UInt8

from yamame.environments.adapters.restart import restart_with_retries, fault_from_exception, is_recoverable, restart_seed
from yamame.records.errors import UserError
from yamame.records.interfaces import EpisodeVectorEnv, RenderableVectorEnv
from yamame.records.resumable import State, load_nested_state_dict, nested_state_dict
from yamame.records.step import EpisodeStep

_WHO = "the vector environment"
_STATE = ("_seen", "_restarts", "_announces_success")


class RestartingVectorEnv:
    """What `make` makes from a seed, made anew from another one when it fails: then all its rows have failed.

    What fails in a reset has failed at the next step; until then it shows what it last did. In the first reset of all,
    and where it is a `UserError`, it is raised. Rows whose failure the environments tell themselves are passed on.
    """

    def __init__(self, make: Callable[[int], EpisodeVectorEnv], seed: int) -> None:
        self._make, self._seed = make, seed
        self._environments = make(seed)
        self.num_envs = self._environments.num_envs
        self.observation_space = self._environments.observation_space
        self.action_space = self._environments.action_space
        self.env_action_space = self._environments.env_action_space
        self._seen: Mapping[str, Shaped[np.ndarray, "E ..."]] = {}
        self._error: Exception | None = None
        self._restarts = 0
        self._announces_success = False

    def reset(
        self, reset_mask: Bool[np.ndarray, "E"], new_task: Bool[np.ndarray, "E"]
    ) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        """See `Environments.reset`."""
        try:
            self._seen = self._environments.reset(reset_mask, new_task)
        except Exception as error:
            if not self._seen or not is_recoverable(error):
                raise
            self._error = error
        return self._seen

    def step(self, action: Shaped[np.ndarray, "E ..."]) -> EpisodeStep:
        """See `Environments.step`."""
        step = self._restarted(self._error) if self._error else self._stepped(action)
        self._seen = step.observation
        self._announces_success |= step.success is not None
        if self._announces_success and step.success is None:
            return replace(step, success=np.zeros(self.num_envs, np.bool_))
        return step

    @property
    def render_fps(self) -> float:
        """See `RenderableVectorEnv`."""
        return self._rendered().render_fps

    def render(self) -> UInt8[np.ndarray, "height width 3"]:
        """See `RenderableVectorEnv`."""
        return self._rendered().render()

    def close(self) -> None:
        """Close the environments."""
        self._environments.close()

    def state_dict(self) -> State | None:
        """See `Resumable`: where the environments are, unless they are about to be made anew."""
        return None if self._error else nested_state_dict(self._environments, self, _STATE)

    def load_state_dict(self, state: State) -> None:
        """See `Resumable`."""
        load_nested_state_dict(self._environments, self, state)

    def _stepped(self, action: Shaped[np.ndarray, "E ..."]) -> EpisodeStep:
        try:
            return self._environments.step(action)
        except Exception as error:
            if not is_recoverable(error):
                raise
            return self._restarted(error)

    def _restarted(self, error: Exception) -> EpisodeStep:
        """The step in which all rows have failed."""
        faults = [fault_from_exception(error, _WHO)]
        observation = restart_with_retries(self._restart, _WHO, faults)
        self._error = None
        return EpisodeStep(
            reward=np.zeros(self.num_envs, np.float32),
            terminated=np.zeros(self.num_envs, np.bool_),
            truncated=np.zeros(self.num_envs, np.bool_),
            is_transition=np.zeros(self.num_envs, np.bool_),
            observation=observation,
            failed=np.ones(self.num_envs, np.bool_),
            faults=faults,
        )

    def _restart(self) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        with suppress(Exception):
            self._environments.close()
        self._restarts += 1
        made = self._environments = self._make(restart_seed(self._seed, 0, self._restarts))
        if (made.observation_space, made.action_space) != (self.observation_space, self.action_space):
            raise UserError(f"{_WHO} has other spaces when it is made anew: make it the same each time")
        everywhere = np.ones(self.num_envs, np.bool_)
        return made.reset(everywhere, everywhere)

    def _rendered(self) -> RenderableVectorEnv:
        if not isinstance(self._environments, RenderableVectorEnv):
            raise UserError("this environment cannot be filmed: it has no pictures")
        return self._environments
