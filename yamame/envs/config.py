"""`EnvConfig`: how a recipe names the task that it trains on."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from yamame.data.actions import ACTION_MASK_KEY
from yamame.data.schema import TaskSpec
from yamame.envs.base import EpisodeVectorEnv, TrialVectorEnv
from yamame.envs.vector.autotune import make_vector_env
from yamame.envs.vector.obs_filter import filter_env_fn
from yamame.envs.vector.subproc import STEP_SECONDS
from yamame.errors import check_range


@dataclass(frozen=True, kw_only=True)
class EnvConfig(ABC):
    """A task with all its settings; `build` makes as many copies as are wanted."""

    @property
    @abstractmethod
    def task_name(self) -> str:
        """Name of the task, fit for file names and metrics, such as `passive-tmaze-30`."""

    @property
    @abstractmethod
    def max_trial_steps(self) -> int:
        """Largest number of transitions of a trial: the horizon of what `build` returns."""

    @property
    def required_num_envs(self) -> int | None:
        """The only number of copies that `build` can make, for tasks that come as one vector environment."""
        return None

    @property
    def action_mask_key(self) -> str:
        """What the environments call their action mask: a leaf of the observation, or else an entry of info."""
        return ACTION_MASK_KEY

    @property
    def action_names(self) -> tuple[str, ...]:
        """What each discrete action, or dimension of a continuous one, is called; empty: nobody has named them."""
        return ()

    def eval_config(self) -> "EnvConfig":
        """What agents of this task are judged on: itself, unless the benchmark keeps test tasks apart."""
        return self

    @abstractmethod
    def build(self, num_envs: int, seed: int) -> TrialVectorEnv:
        """`num_envs` trials stepped together, all random choices following from `seed`.

        Raises `UserError` where the settings, the spaces or the installed packages do not allow it.
        """

    def task_spec(self, envs: TrialVectorEnv) -> TaskSpec:
        """Return the spaces and the horizon of environments that `build` returned."""
        return TaskSpec(
            observation_space=envs.observation_space,
            action_space=envs.env_action_space,
            horizon=envs.horizon,
            action_mask_key=self.action_mask_key,
        )

    def build_for_rendering(self, seed: int) -> TrialVectorEnv:
        """As few copies as there can be, the first of which can be looked at, if the task has pictures at all."""
        return self.build(self.required_num_envs or 1, seed)


@dataclass(frozen=True, kw_only=True)
class SingleEnvConfig(EnvConfig):
    """A task that comes as single environments, each a Python object, which worker processes can step."""

    num_workers: int | None = None
    """Processes that step the environments; 0: this one; None: what is fastest, by timing a few steps. The results are
    the same."""
    step_timeout_seconds: float = STEP_SECONDS
    """Longest time that a worker process may take for one step of its environments; after that it is taken for hung,
    killed and begun anew. 0: any. A reset may take ten times as long."""
    action_mask_key: str = ACTION_MASK_KEY
    """Name of the action mask: a leaf of the observation, or where there is none of that name, an entry of info, where
    the environment gives one. '': no masks."""
    obs_keys: tuple[str, ...] = ()
    """Parts of the observation that the agent sees, such as `image` or `body/angle`; none: all of it."""
    drop_obs_keys: tuple[str, ...] = ()
    """Parts of the observation that the agent does not see."""

    def __post_init__(self) -> None:
        check_range(self, "num_workers", "step_timeout_seconds", ge=0)
        check_range(self, "num_workers", le=1024)

    def build_for_rendering(self, seed: int) -> TrialVectorEnv:
        """See `EnvConfig.build_for_rendering`; pictures come from this process."""
        return replace(self, num_workers=0).build(self.required_num_envs or 1, seed)

    def make_vector_env(self, make: Callable[[], Any], num_envs: int, seed: int) -> EpisodeVectorEnv:
        """`num_envs` of the single environments that `make` makes, as these settings say; errors as of `build`."""
        seen = filter_env_fn(make, self.obs_keys, self.drop_obs_keys, self.action_mask_key)
        return make_vector_env(
            seen,
            num_envs,
            seed,
            self.num_workers,
            action_mask_key=self.action_mask_key,
            step_seconds=self.step_timeout_seconds,
        )
