"""`GymnasiumConfig`: train on any environment that is registered with Gymnasium."""

from dataclasses import dataclass, replace
from functools import partial

from yamame.environments.adapters.gymnasium_ids import make_registered
from yamame.environments.config import SinglesConfig
from yamame.environments.instructed import trials_of
from yamame.records.goals import TOLERANCE
from yamame.records.interfaces import TrialEnvironments
from yamame.records.limits import check_limits


@dataclass(frozen=True, kw_only=True)
class GymnasiumConfig(SinglesConfig):
    """A registered Gymnasium environment; `module:Name-v0` imports the module first."""

    id: str = "CartPole-v1"
    """Gymnasium id."""
    horizon: int
    """Largest number of steps of a trial, all its attempts together."""
    attempts: int | None = 1
    """Episodes on one task that make a trial, through which memory is kept; None: as many as fit into the horizon."""
    goal_tolerance: float = TOLERANCE
    """Difference up to which a goal counts as reached, in each of its numbers; for environments that announce goals."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_limits(self, "goal_tolerance", at_least=0)
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
        environments = self.place(partial(make_registered, self.id), num_envs, seed)
        return trials_of(environments, horizon=self.horizon, attempts=self.attempts, goal_tolerance=self.goal_tolerance)

    def build_rendered(self, seed: int) -> TrialEnvironments:
        """See `EnvironmentConfig.build_rendered`."""
        make = partial(make_registered, self.id, render_mode="rgb_array")
        environments = replace(self, workers=0).place(make, 1, seed)
        return trials_of(environments, horizon=self.horizon, attempts=self.attempts, goal_tolerance=self.goal_tolerance)
