"""`GymnasiumConfig`: train on any environment that is registered with Gymnasium."""

import difflib
from dataclasses import dataclass
from typing import Any

import gymnasium

from yamame.environments.config import EnvironmentConfig
from yamame.environments.trials import Trials
from yamame.environments.vectorize import vectorize
from yamame.records.errors import UserError
from yamame.records.interfaces import TrialEnvironments
from yamame.records.limits import check_limits


@dataclass(frozen=True, kw_only=True)
class GymnasiumConfig(EnvironmentConfig):
    """A registered Gymnasium environment; `module:Name-v0` imports the module first."""

    id: str = "CartPole-v1"
    """Gymnasium id."""
    horizon: int
    """Largest number of steps of a trial, all its attempts together."""
    attempts: int | None = 1
    """Episodes on one task that make a trial, through which memory is kept; None: as many as fit into the horizon."""

    def __post_init__(self) -> None:
        check_limits(self, "horizon", "attempts", at_least=1)

    @property
    def task(self) -> str:
        """The id, without what file names do not like."""
        return self.id.rpartition(":")[2].replace("/", "-")

    @property
    def trial_length(self) -> int:
        """The horizon."""
        return self.horizon

    def build(self, num_envs: int, seed: int) -> TrialEnvironments:
        """See `EnvironmentConfig.build`; `UserError` for an unknown id names the nearest one."""
        environments = [make_registered(self.id) for _ in range(num_envs)]
        return Trials(vectorize(environments, seed), horizon=self.horizon, attempts=self.attempts)


def make_registered(environment_id: str) -> gymnasium.Env[Any, Any]:
    """`gymnasium.make`, with its errors in one line that says what to do."""
    try:
        return gymnasium.make(environment_id, disable_env_checker=True)
    except (gymnasium.error.UnregisteredEnv, gymnasium.error.DeprecatedEnv) as error:
        nearest = difflib.get_close_matches(environment_id, list(gymnasium.registry), n=1)
        hint = (
            f"did you mean {nearest[0]!r}?"
            if nearest
            else "import the package that registers it (id 'package:Name-v0')"
        )
        raise UserError(f"Gymnasium has no environment {environment_id!r}: {hint}") from error
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        raise UserError(f"environment {environment_id!r} needs a package that is not installed: {error}") from error
    except gymnasium.error.Error as error:
        raise UserError(f"Gymnasium cannot make environment {environment_id!r}: {error}") from error
