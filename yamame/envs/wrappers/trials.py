"""Trials of k attempts at one task, through which the policy keeps its memory."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from jaxtyping import Shaped
from typing_extensions import override

from yamame.data.step import VectorStep
from yamame.envs.base import EpisodeVectorEnv, TrialVectorEnv
from yamame.errors import UserError
from yamame.types import State, load_nested_state_dict, nested_state_dict

_STATE = ("_time", "_attempts_done")


class TrialWrapper(TrialVectorEnv):
    """`TrialVectorEnv` over an `EpisodeVectorEnv`.

    A trial has `attempts` episodes of one task (None: as many as fit into `horizon`) and at most `horizon` transitions.
    Resets between attempts are soft: the timestep that ends an attempt carries the first observation of the next one
    and `episode_start`, and the trial continues. Paper: appendix A; zero-shot is `attempts=1`, where the flags of the
    episode are those of the trial.

    A trial is `terminated` if its last attempt terminated, and `truncated` if its last attempt was truncated or the
    horizon was reached. An earlier attempt that terminates does not end the trial. Rows without transition (see
    `VectorStep`) do not count towards the horizon. A failed environment starts a new trial.
    """

    def __init__(self, env: EpisodeVectorEnv, *, horizon: int, attempts: int | None) -> None:
        if horizon < 1:
            raise UserError(f"horizon is {horizon}: give at least 1")
        if attempts is not None and attempts < 1:
            raise UserError(f"attempts is {attempts}: give at least 1, or None for as many as fit into the horizon")
        self.env = env
        self.num_envs = env.num_envs
        self.observation_space = env.observation_space
        self.action_space = env.action_space
        self.env_action_space = env.env_action_space
        self.horizon = horizon
        self.attempts = attempts
        self._time = np.zeros(self.num_envs, np.int64)
        self._attempts_done = np.zeros(self.num_envs, np.int64)

    @override
    def reset(self) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        """Start a new trial in every environment and return the observations."""
        everywhere = np.ones(self.num_envs, np.bool_)
        self._time[:] = 0
        self._attempts_done[:] = 0
        return self.env.reset(everywhere, everywhere)

    @override
    def step(self, action: Shaped[np.ndarray, "E ..."]) -> VectorStep:
        """Step every trial once; start the next attempt or trial where one ended."""
        step = self.env.step(action)
        attempt_ends = step.terminated | step.truncated
        self._time += step.is_transition
        self._attempts_done += attempt_ends
        last = np.zeros_like(attempt_ends) if self.attempts is None else self._attempts_done >= self.attempts
        terminated = step.terminated & last
        truncated = (step.truncated & last) | (step.is_transition & (self._time >= self.horizon))
        trial_ends = terminated | truncated
        resets = attempt_ends | trial_ends
        observation = self.env.reset(resets, trial_ends) if resets.any() else step.observation
        over = trial_ends if step.failed is None else trial_ends | step.failed
        self._time[over] = 0
        self._attempts_done[over] = 0
        return replace(
            step,
            terminated=terminated,
            truncated=truncated,
            observation=observation,
            episode_start=resets | step.episode_start,
        )

    @override
    def close(self) -> None:
        self.env.close()

    def state_dict(self) -> State | None:
        """Return the state of the environments and the trials; None if the environments cannot save theirs."""
        return nested_state_dict(self.env, self, _STATE)

    def load_state_dict(self, state: State) -> None:
        """Restore the result of `state_dict`."""
        load_nested_state_dict(self.env, self, state)
