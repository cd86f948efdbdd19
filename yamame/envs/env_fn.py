"""`EnvFnConfig`: train on an environment that the user's own function makes."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv

from yamame.data.goals import TOLERANCE
from yamame.envs.base import EpisodeVectorEnv, TrialVectorEnv
from yamame.envs.config import SingleEnvConfig
from yamame.envs.vector.gymnasium_adapter import make_episode_vector_env
from yamame.envs.vector.obs_filter import filter_observations
from yamame.envs.vector.restarting import RestartingVectorEnv
from yamame.envs.wrappers.instruction import make_trials
from yamame.errors import ConfigFieldError, UserError, check_range


@dataclass(frozen=True, kw_only=True)
class EnvFnConfig(SingleEnvConfig):
    """Whatever a function of no arguments makes: a `gymnasium.Env` at each call, or one whole `VectorEnv`."""

    env_fn: Callable[[], gymnasium.Env[Any, Any] | VectorEnv]
    """Makes a new environment at each call."""
    horizon: int
    """Largest number of steps of a trial, all its attempts together."""
    attempts: int | None = 1
    """Episodes on one task that make a trial, through which memory is kept; None: as many as fit into the horizon."""
    goal_tolerance: float = TOLERANCE
    """Difference up to which a goal counts as reached, in each of its numbers; for environments that announce goals."""

    vector_size: int | None = None
    """Number of environments in the vector environment that the factory makes; None where it makes single ones."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "goal_tolerance", ge=0)
        check_range(self, "horizon", "attempts", "vector_size", ge=1)
        if self.vector_size and self.num_workers:
            raise ConfigFieldError(
                self, "num_workers", "must be left out: a vector environment is one whole, in this process"
            )

    @property
    def task_name(self) -> str:
        """The function's name."""
        name = getattr(self.env_fn, "__name__", type(self.env_fn).__name__)
        return "custom" if name == "<lambda>" else name.strip("_").replace("_", "-")

    @property
    def max_trial_steps(self) -> int:
        """The horizon."""
        return self.horizon

    @property
    def required_num_envs(self) -> int | None:
        """`rows`."""
        return self.vector_size

    def build(self, num_envs: int, seed: int) -> TrialVectorEnv:
        """See `EnvConfig.build`. A vector environment must have exactly `num_envs` rows."""
        environments = (
            RestartingVectorEnv(partial(self._whole, num_envs=num_envs), seed)
            if self.vector_size
            else self.make_vector_env(self.env_fn, num_envs, seed)
        )
        return make_trials(
            environments, horizon=self.horizon, attempts=self.attempts, goal_tolerance=self.goal_tolerance
        )

    def _whole(self, seed: int, *, num_envs: int) -> EpisodeVectorEnv:
        made = self.env_fn()
        if not isinstance(made, VectorEnv):
            raise UserError("the factory makes single environments: leave rows out")
        if made.num_envs != num_envs:
            raise UserError(
                f"the factory gives a vector environment of {made.num_envs}, the run wants {num_envs}: "
                f"set num_envs to {made.num_envs}"
            )
        seen = filter_observations(made, self.obs_keys, self.drop_obs_keys, self.action_mask_key)
        return make_episode_vector_env(seen, seed, action_mask_key=self.action_mask_key)
