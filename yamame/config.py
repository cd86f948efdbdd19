"""`RunConfig`: everything that a run depends on, in one typed record."""

from dataclasses import dataclass, field, replace

from yamame.algorithms.amago.config import AMAGOConfig
from yamame.algorithms.base import AlgorithmConfig
from yamame.collect.exploration import BilevelEpsilonGreedy, ExplorationConfig
from yamame.collect.faults import FaultToleranceConfig
from yamame.data.sampler import ReplayConfig
from yamame.envs.config import EnvConfig
from yamame.errors import ConfigFieldError, UserError, check_range
from yamame.nets.compute import ComputeConfig


@dataclass(frozen=True, kw_only=True)
class EvalConfig:
    """When and on how many trials the policy is judged."""

    interval_env_steps: int = 0
    """Environment steps between evaluations during training; 0: only at the end."""
    trials: int = 64
    """Trials of an evaluation during training."""
    final_trials: int = 256
    """Trials of the evaluation at the end."""
    num_envs: int = 64
    """Environments stepped together while evaluating."""
    stop_return: float | None = None
    """End the run as soon as two evaluations in a row reach this mean return."""

    def __post_init__(self) -> None:
        check_range(self, "interval_env_steps", ge=0)
        check_range(self, "trials", "final_trials", "num_envs", ge=1)
        check_range(self, "stop_return")


@dataclass(frozen=True, kw_only=True)
class OfflineConfig:
    """Learning from what was experienced before."""

    data: tuple[str, ...] = ()
    """Where it lies: run directories, replay stores, names or directories of Minari datasets. It is copied into the
    run. With data and the whole `fraction`, no environment is stepped but for evaluations."""
    batch_fraction: float = 1.0
    """Share of each batch's windows that comes from the data; the rest comes from what the run collects itself."""
    total_updates: int = 0
    """Length of a run that steps no environment, in gradient updates; 0: as many as `env_steps` would have given."""

    def __post_init__(self) -> None:
        check_range(self, "batch_fraction", gt=0, le=1)
        check_range(self, "total_updates", ge=0)
        if self.total_updates and not self.is_offline_only:
            raise ConfigFieldError(
                self, "total_updates", "is for runs on data alone: give env_steps, or data and no fraction"
            )

    @property
    def is_offline_only(self) -> bool:
        """Whether nothing is learned from but the data."""
        return bool(self.data) and self.batch_fraction == 1.0

    def num_windows(self, batch_size: int) -> int:
        """Windows of a batch that come from the data: at least one, where there is any."""
        return max(1, round(self.batch_fraction * batch_size)) if self.data else 0


@dataclass(frozen=True, kw_only=True)
class RayConfig:
    """Collectors that are Ray actors."""

    address: str = ""
    """Ray cluster that collects: `local` starts one on this machine for the run; `ray://HOST:PORT`, `HOST:PORT` or
    `auto` joins one. Empty: this process collects."""
    num_collectors: int = 0
    """Collector processes in all; only with an address."""
    num_envs_per_collector: int = 0
    """Environments of each collector; 0: `num_envs` divided among them."""
    num_cpus_per_collector: float = 1.0
    """Cores that Ray reserves for a collector."""
    num_gpus_per_collector: float = 0.0
    """Fraction of a GPU that Ray reserves for a collector, which then acts on it."""
    max_policy_lag: int = 2
    """Maximum policy lag in iterations. Staler results are dropped."""
    collect_timeout_seconds: float = 60.0
    """A collector that has not answered for this long is replaced."""
    startup_timeout_seconds: float = 300.0
    """A collector that has room in the cluster and is not ready after this long is replaced."""
    orphan_timeout_seconds: float = 120.0
    """In a cluster that outlives the run, collectors wait this long for a learner to reconnect."""

    def __post_init__(self) -> None:
        check_range(self, "num_collectors", "num_envs_per_collector", ge=0)
        check_range(self, "num_cpus_per_collector", "num_gpus_per_collector", ge=0)
        check_range(self, "max_policy_lag", ge=1)
        check_range(self, "collect_timeout_seconds", "startup_timeout_seconds", "orphan_timeout_seconds", gt=0)


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """When checkpoints are saved and which are kept."""

    interval_seconds: float = 60.0
    """Maximum time between checkpoints."""
    keep_latest_k: int = 2
    """Latest checkpoints that are kept, besides the best by evaluation."""
    milestone_interval_env_steps: int = 0
    """Environment steps between checkpoints that are never deleted; 0: none."""

    def __post_init__(self) -> None:
        check_range(self, "keep_latest_k", ge=1)
        check_range(self, "interval_seconds", "milestone_interval_env_steps", ge=0)


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A whole experiment. A recipe is a function that returns one."""

    env: EnvConfig
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
    algorithm: AlgorithmConfig = field(default_factory=AMAGOConfig, metadata={"flatten": True})
    """Learning algorithm. Its fields are flags without the prefix `algorithm`: `--learner.learning-rate`."""
    exploration: ExplorationConfig = field(default_factory=BilevelEpsilonGreedy)
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    offline: OfflineConfig = field(default_factory=OfflineConfig)
    updates_per_env_step: float = 0.05
    """Gradient updates per environment step, summed over environments (UTD ratio)."""
    env_steps_per_iteration: int = 0
    """Environment steps collected between updates; 0: one trial per environment."""
    learning_starts: int = 0
    """Environment steps before the first update; the updates of these steps are skipped."""
    eval: EvalConfig = field(default_factory=EvalConfig)
    fault_tolerance: FaultToleranceConfig = field(default_factory=FaultToleranceConfig)
    compute: ComputeConfig = field(default_factory=ComputeConfig)
    async_collection: bool = False
    """Collect and learn at once, in two threads, with the same ratio of updates: what acts is then a round older. For environments
    that wait (simulators, games) and for learning on a GPU; on a CPU alone cheap environments lose by it."""
    num_learners: int = 1
    """Processes that learn together, one a GPU where there are any. Each has its share of the environments or
    collectors, of the replay and of each batch."""
    ray: RayConfig = field(default_factory=RayConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)

    def __post_init__(self) -> None:
        check_range(self, "num_envs", "env_steps", "num_learners", ge=1)
        check_range(self, "context_length", "seed", ge=0)
        check_range(self, "updates_per_env_step", "env_steps_per_iteration", "learning_starts", ge=0)
        check_range(self, "num_learners", le=1024)

    @property
    def resolved_context_length(self) -> int:
        """`context_length` with 0 resolved. Raises `UserError` if it is longer than a trial can be."""
        trial_length = self.env.max_trial_steps
        if self.context_length > trial_length:
            raise UserError(
                f"--context-length {self.context_length} is longer than a trial of {self.env.task_name}, "
                f"{trial_length} steps: give at most that (0 means a whole trial)"
            )
        return self.context_length or trial_length

    @property
    def total_updates(self) -> int:
        """Updates of a whole run."""
        return self.updates_due(env_steps=self.env_steps, updates=0)

    @property
    def resolved_env_steps_per_iteration(self) -> int:
        """`env_steps_per_iteration` with 0 resolved."""
        return self.env_steps_per_iteration or self.num_envs * self.env.max_trial_steps

    def updates_due(self, *, env_steps: int, updates: int) -> int:
        """Return how many updates to make now, given the total numbers of environment steps and updates so far."""
        return max(0, int((env_steps - self.learning_starts) * self.updates_per_env_step) - updates)


def resolve_offline_length(config: RunConfig) -> RunConfig:
    """Return the config with `offline.total_updates` converted to `env_steps`. `UserError` if no updates are made."""
    updates = config.offline.total_updates
    if not updates:
        return config
    if not config.updates_per_env_step:
        raise UserError("--updates-per-env-step is 0: a run on offline data alone would never learn")
    env_steps = config.learning_starts + int(updates / config.updates_per_env_step)
    while config.updates_due(env_steps=env_steps, updates=0) < updates:
        env_steps += 1
    return replace(config, env_steps=env_steps)
