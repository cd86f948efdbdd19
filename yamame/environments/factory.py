"""`FactoryConfig`: train on an environment that the user's own function makes."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv

from yamame.environments.adapters.restarted import RestartedEnvironments
from yamame.environments.adapters.selection import select
from yamame.environments.adapters.vectorize import vectorize
from yamame.environments.config import SinglesConfig
from yamame.environments.instructed import trials_of
from yamame.records.errors import FieldError, UserError
from yamame.records.goals import TOLERANCE
from yamame.records.interfaces import Environments, TrialEnvironments
from yamame.records.limits import check_limits


@dataclass(frozen=True, kw_only=True)
class FactoryConfig(SinglesConfig):
    """Whatever a function of no arguments makes: a `gymnasium.Env` at each call, or one whole `VectorEnv`."""

    factory: Callable[[], gymnasium.Env[Any, Any] | VectorEnv]
    """Makes a new environment at each call."""
    horizon: int
    """Largest number of steps of a trial, all its attempts together."""
    attempts: int | None = 1
    """Episodes on one task that make a trial, through which memory is kept; None: as many as fit into the horizon."""
    goal_tolerance: float = TOLERANCE
    """Difference up to which a goal counts as reached, in each of its numbers; for environments that announce goals."""

    rows: int | None = None
    """Number of environments in the vector environment that the factory makes; None where it makes single ones."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_limits(self, "goal_tolerance", at_least=0)
        check_limits(self, "horizon", "attempts", "rows", at_least=1)
        if self.rows and self.workers:
            raise FieldError(self, "workers", "must be left out: a vector environment is one whole, in this process")

    @property
    def task(self) -> str:
        """The function's name."""
        name = getattr(self.factory, "__name__", type(self.factory).__name__)
        return "custom" if name == "<lambda>" else name.strip("_").replace("_", "-")

    @property
    def trial_length(self) -> int:
        """The horizon."""
        return self.horizon

    @property
    def fixed_num_envs(self) -> int | None:
        """`rows`."""
        return self.rows

    def build(self, num_envs: int, seed: int) -> TrialEnvironments:
        """See `EnvironmentConfig.build`. A vector environment must have exactly `num_envs` rows."""
        environments = (
            RestartedEnvironments(partial(self._whole, num_envs=num_envs), seed)
            if self.rows
            else self.place(self.factory, num_envs, seed)
        )
        return trials_of(environments, horizon=self.horizon, attempts=self.attempts, goal_tolerance=self.goal_tolerance)

    def _whole(self, seed: int, *, num_envs: int) -> Environments:
        made = self.factory()
        if not isinstance(made, VectorEnv):
            raise UserError("the factory makes single environments: leave rows out")
        if made.num_envs != num_envs:
            raise UserError(
                f"the factory gives a vector environment of {made.num_envs}, the run wants {num_envs}: "
                f"set num_envs to {made.num_envs}"
            )
        seen = select(made, self.keys, self.drop_keys, self.mask_key)
        return vectorize(seen, seed, mask_key=self.mask_key)
