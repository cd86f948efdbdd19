"""Any environment registered with Gymnasium."""

from dataclasses import dataclass, replace
from functools import partial

from typing_extensions import override

from yamame.data.goals import TOLERANCE
from yamame.envs.base import EpisodeVectorEnv, TrialVectorEnv
from yamame.envs.config import SingleEnvConfig
from yamame.envs.registration import make_env
from yamame.envs.wrappers.instruction import make_trials
from yamame.errors import check_range


@dataclass(frozen=True, kw_only=True)
class GymnasiumConfig(SingleEnvConfig):
    """A registered Gymnasium environment."""

    id: str = "CartPole-v1"
    """Gymnasium id; `module:Name-v0` imports the module first."""
    horizon: int
    """Maximum number of steps of a trial, over all its attempts."""
    attempts: int | None = 1
    """Episodes of a trial, all on one task; memory is kept between them. None: as many as fit into the horizon."""
    goal_tolerance: float = TOLERANCE
    """Maximum difference, in each number of a goal, at which it counts as reached; for environments with goals."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "goal_tolerance", ge=0)
        check_range(self, "horizon", "attempts", ge=1)

    @property
    @override
    def task_name(self) -> str:
        return self.id.rpartition(":")[2].replace("/", "-")

    @property
    def imported_modules(self) -> tuple[str, ...]:
        """The module that making the environment imports, if any."""
        return (self.id.partition(":")[0],) if ":" in self.id else ()

    @override
    def build(self, num_envs: int, seed: int) -> TrialVectorEnv:
        return self._make_trials(self.make_vector_env(partial(make_env, self.id), num_envs, seed))

    @override
    def build_for_rendering(self, seed: int) -> TrialVectorEnv:
        env_fn = partial(make_env, self.id, render_mode="rgb_array")
        return self._make_trials(replace(self, num_workers=0).make_vector_env(env_fn, 1, seed))

    def _make_trials(self, envs: EpisodeVectorEnv) -> TrialVectorEnv:
        return make_trials(envs, horizon=self.horizon, attempts=self.attempts, goal_tolerance=self.goal_tolerance)
