"""`EnvironmentConfig`: how a recipe names the task that it trains on."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from yamame.environments.adapters.placement import place
from yamame.environments.adapters.selection import selecting
from yamame.environments.adapters.workers import STEP_SECONDS
from yamame.records.action_spaces import MASK_LEAF
from yamame.records.interfaces import Environments, TrialEnvironments
from yamame.records.limits import check_limits


@dataclass(frozen=True, kw_only=True)
class EnvironmentConfig(ABC):
    """A task with all its settings; `build` makes as many copies as are wanted."""

    @property
    @abstractmethod
    def task(self) -> str:
        """Name of the task, fit for file names and metrics, such as `passive-tmaze-30`."""

    @property
    @abstractmethod
    def trial_length(self) -> int:
        """Largest number of transitions of a trial: the horizon of what `build` returns."""

    @property
    def fixed_num_envs(self) -> int | None:
        """The only number of copies that `build` can make, for tasks that come as one vector environment."""
        return None

    @property
    def mask_key(self) -> str:
        """What the environments call their action mask: a leaf of the observation, or else an entry of info."""
        return MASK_LEAF

    @property
    def action_names(self) -> tuple[str, ...]:
        """What each discrete action, or dimension of a continuous one, is called; empty: nobody has named them."""
        return ()

    def for_evaluation(self) -> "EnvironmentConfig":
        """What agents of this task are judged on: itself, unless the benchmark keeps test tasks apart."""
        return self

    @abstractmethod
    def build(self, num_envs: int, seed: int) -> TrialEnvironments:
        """`num_envs` trials stepped together, all random choices following from `seed`.

        Raises `UserError` where the settings, the spaces or the installed packages do not allow it.
        """

    def build_rendered(self, seed: int) -> TrialEnvironments:
        """As few copies as there can be, the first of which can be looked at, if the task has pictures at all."""
        return self.build(self.fixed_num_envs or 1, seed)


@dataclass(frozen=True, kw_only=True)
class SinglesConfig(EnvironmentConfig):
    """A task that comes as single environments, each a Python object, which worker processes can step."""

    workers: int | None = None
    """Processes that step the environments; 0: this one; None: what is fastest, by timing a few steps. The results are
    the same."""
    step_seconds: float = STEP_SECONDS
    """Longest time that a worker process may take for one step of its environments; after that it is taken for hung,
    killed and begun anew. 0: any. A reset may take ten times as long."""
    mask_key: str = MASK_LEAF
    """Name of the action mask: a leaf of the observation, or where there is none of that name, an entry of info, where
    the environment gives one. '': no masks."""
    keys: tuple[str, ...] = ()
    """Parts of the observation that the agent sees, such as `image` or `body/angle`; none: all of it."""
    drop_keys: tuple[str, ...] = ()
    """Parts of the observation that the agent does not see."""

    def __post_init__(self) -> None:
        check_limits(self, "workers", "step_seconds", at_least=0)

    def build_rendered(self, seed: int) -> TrialEnvironments:
        """See `EnvironmentConfig.build_rendered`; pictures come from this process."""
        return replace(self, workers=0).build(self.fixed_num_envs or 1, seed)

    def place(self, make: Callable[[], Any], num_envs: int, seed: int) -> Environments:
        """`num_envs` of the single environments that `make` makes, as these settings say; errors as of `build`."""
        seen = selecting(make, self.keys, self.drop_keys, self.mask_key)
        return place(seen, num_envs, seed, self.workers, mask_key=self.mask_key, step_seconds=self.step_seconds)
