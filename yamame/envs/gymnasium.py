"""`GymnasiumConfig`: train on any environment that is registered with Gymnasium."""

from dataclasses import dataclass, replace
from functools import partial

from yamame.data.goals import TOLERANCE
from yamame.envs.base import TrialVectorEnv
from yamame.envs.config import SingleEnvConfig
from yamame.envs.registration import make_env
from yamame.envs.wrappers.instruction import make_trials
from yamame.errors import check_range


@dataclass(frozen=True, kw_only=True)
class GymnasiumConfig(SingleEnvConfig):
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
        check_range(self, "goal_tolerance", ge=0)
        check_range(self, "horizon", "attempts", ge=1)

    @property
    def task_name(self) -> str:
        """The id, without what file names do not like."""
        return self.id.rpartition(":")[2].replace("/", "-")

    @property
    def imported_modules(self) -> tuple[str, ...]:
        """The module that making the environment imports, if any."""
        return (self.id.partition(":")[0],) if ":" in self.id else ()

    @property
    def max_trial_steps(self) -> int:
        """The horizon."""
        return self.horizon

    def build(self, num_envs: int, seed: int) -> TrialVectorEnv:
        """See `EnvConfig.build`; `UserError` for an unknown id names the nearest one."""
        environments = self.make_vector_env(partial(make_env, self.id), num_envs, seed)
        return make_trials(
            environments, horizon=self.horizon, attempts=self.attempts, goal_tolerance=self.goal_tolerance
        )

    def build_for_rendering(self, seed: int) -> TrialVectorEnv:
        """See `EnvConfig.build_for_rendering`."""
        make = partial(make_env, self.id, render_mode="rgb_array")
        environments = replace(self, num_workers=0).make_vector_env(make, 1, seed)
        return make_trials(
            environments, horizon=self.horizon, attempts=self.attempts, goal_tolerance=self.goal_tolerance
        )
