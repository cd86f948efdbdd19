"""`EnvironmentConfig`: how a recipe names the task that it trains on."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from yamame.records.interfaces import TrialEnvironments
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

    def for_evaluation(self) -> "EnvironmentConfig":
        """What agents of this task are judged on: itself, unless the benchmark keeps test tasks apart."""
        return self

    @abstractmethod
    def build(self, num_envs: int, seed: int) -> TrialEnvironments:
        """`num_envs` trials stepped together, all random choices following from `seed`.

        Raises `UserError` where the settings, the spaces or the installed packages do not allow it.
        """


@dataclass(frozen=True, kw_only=True)
class SinglesConfig(EnvironmentConfig):
    """A task that comes as single environments, each a Python object, which worker processes can step."""

    workers: int | None = None
    """Processes that step the environments; 0: this one; None: what is fastest, by timing a few steps. The results are
    the same."""

    def __post_init__(self) -> None:
        check_limits(self, "workers", at_least=0)
