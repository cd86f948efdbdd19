"""`FactoryConfig`: train on an environment that the user's own function makes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv

from yamame.environments.config import EnvironmentConfig
from yamame.environments.trials import Trials
from yamame.environments.vectorize import vectorize
from yamame.records.errors import UserError
from yamame.records.interfaces import TrialEnvironments
from yamame.records.limits import check_limits


@dataclass(frozen=True, kw_only=True)
class FactoryConfig(EnvironmentConfig):
    """Whatever a function of no arguments makes: a `gymnasium.Env` at each call, or one whole `VectorEnv`."""

    factory: Callable[[], gymnasium.Env[Any, Any] | VectorEnv]
    """Makes a new environment at each call."""
    horizon: int
    """Largest number of steps of a trial, all its attempts together."""
    attempts: int | None = 1
    """Episodes on one task that make a trial, through which memory is kept; None: as many as fit into the horizon."""

    rows: int | None = None
    """Number of environments in the vector environment that the factory makes; None where it makes single ones."""

    def __post_init__(self) -> None:
        check_limits(self, "horizon", "attempts", "rows", at_least=1)

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
        made = [self.factory()]
        if isinstance(made[0], VectorEnv):
            if made[0].num_envs != num_envs:
                raise UserError(
                    f"the factory gives a vector environment of {made[0].num_envs}, the run wants {num_envs}: "
                    f"set num_envs to {made[0].num_envs}"
                )
            return Trials(vectorize(made[0], seed), horizon=self.horizon, attempts=self.attempts)
        made += [self.factory() for _ in range(num_envs - 1)]
        if len({id(environment) for environment in made}) < num_envs:
            raise UserError("the factory returns the same environment twice: make a new one at each call")
        return Trials(vectorize(made, seed), horizon=self.horizon, attempts=self.attempts)
