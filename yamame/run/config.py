"""`RunConfig`: everything that a run depends on, in one typed record."""

from dataclasses import dataclass, field

from yamame.environments.config import EnvironmentConfig
from yamame.learning.compute import ComputeConfig
from yamame.learning.learner import LearnerConfig
from yamame.model.agent import AgentConfig
from yamame.records.errors import FieldError, UserError
from yamame.records.limits import check_limits
from yamame.replay.sampler import ReplayConfig
from yamame.rollout.exploration import BiLevelEpsilon, ExplorationConfig
from yamame.rollout.faults import FaultConfig
from yamame.run.pace import PaceConfig
from yamame.run.scale import RemoteConfig


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """When and on how many trials the policy is judged."""

    every_env_steps: int = 0
    """Environment steps between evaluations during training; 0: only at the end."""
    trials: int = 64
    """Trials of an evaluation during training."""
    final_trials: int = 256
    """Trials of the evaluation at the end."""
    num_envs: int = 64
    """Environments stepped together while evaluating."""
    solved_return: float | None = None
    """End the run as soon as two evaluations in a row reach this mean return."""

    def __post_init__(self) -> None:
        check_limits(self, "every_env_steps", at_least=0)
        check_limits(self, "trials", "final_trials", "num_envs", at_least=1)
        check_limits(self, "solved_return")


@dataclass(frozen=True, kw_only=True)
class OfflineConfig:
    """Learning from what was experienced before."""

    data: tuple[str, ...] = ()
    """Where it lies: run directories, replay stores, names or directories of Minari datasets. It is copied into the
    run. With data and the whole `fraction`, no environment is stepped but for evaluations."""
    fraction: float = 1.0
    """Share of each batch's windows that comes from the data; the rest comes from what the run collects itself."""
    updates: int = 0
    """Length of a run that steps no environment, in gradient updates; 0: as many as `env_steps` would have given."""

    def __post_init__(self) -> None:
        check_limits(self, "fraction", above=0, at_most=1)
        check_limits(self, "updates", at_least=0)
        if self.updates and not self.alone:
            raise FieldError(self, "updates", "is for runs on data alone: give env_steps, or data and no fraction")

    @property
    def alone(self) -> bool:
        """Whether nothing is learned from but the data."""
        return bool(self.data) and self.fraction == 1.0

    def windows(self, batch_size: int) -> int:
        """Windows of a batch that come from the data: at least one, where there is any."""
        return max(1, round(self.fraction * batch_size)) if self.data else 0


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A whole experiment. A recipe is a function that returns one."""

    env: EnvironmentConfig
    num_envs: int = 24
    """Environments stepped together while collecting."""
    env_steps: int = 1_000_000
    """Length of the run in environment steps, summed over all environments."""
    context_length: int = 0
    """Transitions in a training window and in the memory of the policy; 0: a whole trial."""
    seed: int = 0
    """Seed of everything random; on one process and CPU the same seed gives the same run to the bit."""
    deterministic_actions: bool = False
    """Act with the mode of the policy instead of a sample, while collecting and evaluating (the paper: T-Maze only)."""
    agent: AgentConfig = field(default_factory=AgentConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    exploration: ExplorationConfig = field(default_factory=BiLevelEpsilon)
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    offline: OfflineConfig = field(default_factory=OfflineConfig)
    pace: PaceConfig = field(default_factory=PaceConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    faults: FaultConfig = field(default_factory=FaultConfig)
    compute: ComputeConfig = field(default_factory=ComputeConfig)
    overlap: bool = False
    """Collect and learn at once, in two threads, at the same pace: what acts is then a round older. For environments
    that wait (simulators, games) and for learning on a GPU; on a CPU alone cheap environments lose by it."""
    cluster: str = ""
    """Collect in processes of a Ray cluster: `local` begins one on this machine for the run; `ray://HOST:PORT`,
    `HOST:PORT` or `auto` joins one. Empty: this process collects."""
    collectors: int = 0
    """Processes that collect, in all; only with a cluster."""
    environments_per_collector: int = 0
    """Environments that each of them steps; 0: `num_envs` divided among them."""
    learners: int = 1
    """Processes that learn together, one a GPU where there are any. Each has its share of the environments or
    collectors, of the replay and of each batch."""
    remote: RemoteConfig = field(default_factory=RemoteConfig)
    checkpoint_every_seconds: float = 60.0
    """Longest time between checkpoints."""
    keep_checkpoints: int = 2
    """The newest so many are kept, to go on from; and beside them the best by evaluation."""
    milestone_every_env_steps: int = 0
    """Environment steps between checkpoints that are kept for good; 0: none."""

    def __post_init__(self) -> None:
        check_limits(self, "num_envs", "env_steps", "keep_checkpoints", at_least=1)
        check_limits(self, "context_length", "seed", "checkpoint_every_seconds", at_least=0)
        check_limits(self, "milestone_every_env_steps", "collectors", "environments_per_collector", at_least=0)
        check_limits(self, "learners", at_least=1)

    @property
    def context(self) -> int:
        """`context_length` with 0 resolved. Raises `UserError` if it is longer than a trial can be."""
        trial_length = self.env.trial_length
        if self.context_length > trial_length:
            raise UserError(
                f"--context-length {self.context_length} is longer than a trial of {self.env.task}, "
                f"{trial_length} steps: give at most that (0 means a whole trial)"
            )
        return self.context_length or trial_length

    @property
    def updates(self) -> int:
        """Updates of a whole run."""
        return self.pace.updates_due(env_steps=self.env_steps, updates=0)

    @property
    def round_env_steps(self) -> int:
        """`pace.round_env_steps` with 0 resolved."""
        return self.pace.round_env_steps or self.num_envs * self.env.trial_length
