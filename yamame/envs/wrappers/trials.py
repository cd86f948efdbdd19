"""`Trials`: k attempts on one task as one trial, through which the policy keeps its memory."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Shaped

from yamame.data.step import TrialStep
from yamame.envs.base import EpisodeVectorEnv
from yamame.errors import UserError
from yamame.types import State, load_nested_state_dict, nested_state_dict

_STATE = ("_time", "_attempts_done")


class TrialWrapper:
    """`TrialVectorEnv` over `Environments`.

    A trial has `attempts` episodes of one task, or as many as fit into `horizon` where `attempts` is None, and at most
    `horizon` transitions. Between attempts the reset is soft: the timestep that ends one carries the first observation
    of the next and `episode_start`, and the trial goes on (Appendix A of the paper: zero-shot is `attempts=1`, where
    the episode's own flags pass through).

    The trial is `terminated` if its last attempt terminated, and `truncated` if that was truncated or the horizon was
    reached; a terminated attempt that is not the last one ends nothing. Rows that are not `live` (see `EpisodeStep`)
    cost no time: they only say what the trial begins with. In `failed` rows another trial begins.
    """

    def __init__(self, environments: EpisodeVectorEnv, *, horizon: int, attempts: int | None) -> None:
        if horizon < 1:
            raise UserError(f"horizon is {horizon}: give at least 1")
        if attempts is not None and attempts < 1:
            raise UserError(f"attempts is {attempts}: give at least 1, or None for as many as fit into the horizon")
        self.num_envs = environments.num_envs
        self.observation_space = environments.observation_space
        self.action_space = environments.action_space
        self.env_action_space = environments.env_action_space
        self.horizon = horizon
        self.attempts = attempts
        self.environments = environments
        self._time = np.zeros(self.num_envs, np.int64)
        self._attempts_done = np.zeros(self.num_envs, np.int64)

    def reset(self) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        """Begin a new trial everywhere."""
        everywhere = np.ones(self.num_envs, np.bool_)
        self._time[:] = 0
        self._attempts_done[:] = 0
        return self.environments.reset(everywhere, everywhere)

    def step(self, action: Shaped[np.ndarray, "E ..."]) -> TrialStep:
        """One transition of every trial; attempts and trials that end begin anew."""
        episode = self.environments.step(action)
        attempt_ends = episode.terminated | episode.truncated
        self._time += episode.is_transition
        self._attempts_done += attempt_ends
        last = np.zeros_like(attempt_ends) if self.attempts is None else self._attempts_done >= self.attempts
        terminated = episode.terminated & last
        truncated = (episode.truncated & last) | (episode.is_transition & (self._time >= self.horizon))
        trial_ends = terminated | truncated
        begins = attempt_ends | trial_ends
        observation = self.environments.reset(begins, trial_ends) if begins.any() else episode.observation
        over = trial_ends if episode.failed is None else trial_ends | episode.failed
        self._time[over] = 0
        self._attempts_done[over] = 0
        return TrialStep(
            reward=episode.reward,
            terminated=terminated,
            truncated=truncated,
            episode_start=begins | ~episode.is_transition,
            is_transition=episode.is_transition,
            final_observation=episode.observation,
            observation=observation,
            success=episode.success,
            goals=episode.goals,
            failed=episode.failed,
            faults=episode.faults,
        )

    def close(self) -> None:
        """Give back what the environments hold."""
        self.environments.close()

    def state_dict(self) -> State | None:
        """See `Resumable`: where the environments are."""
        return nested_state_dict(self.environments, self, _STATE)

    def load_state_dict(self, state: State) -> None:
        """See `Resumable`."""
        load_nested_state_dict(self.environments, self, state)
