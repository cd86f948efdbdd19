"""`RunConfig`: the config of a run."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from yamame.algorithms.amago.config import AMAGOConfig
from yamame.algorithms.base import AlgorithmConfig
from yamame.algorithms.selection import algorithm_name
from yamame.collect.exploration import BilevelEpsilonGreedy, ExplorationConfig, NoExploration
from yamame.collect.faults import FaultToleranceConfig
from yamame.data.sampler import ReplayConfig
from yamame.envs.config import EnvConfig
from yamame.errors import ConfigFieldError, UserError, check_range
from yamame.nets.compute import ComputeConfig

_NO_PART_IN_RESULTS = re.compile(
    r"seed|compute\..*|checkpoint\..*|eval\.(?!choose_policy|stop_return).*|env\.num_workers"
    r"|replay\.(cache_bytes|compression_level|prefetch_batches)"
)
"""Fields that a run can change and still expect the same results."""
_LENGTH = re.compile(r"env_steps|eval\.stop_return")
"""Fields that say when a run ends: a run can be resumed with others."""
MAX_TRIALS = 1_000_000
"""Maximum number of trials of an evaluation."""


@dataclass(frozen=True, kw_only=True)
class EvalConfig:
    """Schedule and size of evaluations."""

    interval_env_steps: int = 0
    """Environment steps between evaluations during training; 0: only after training."""
    trials: int = 64
    """Number of trials of an evaluation during training."""
    final_trials: int = 256
    """Number of trials of the evaluation after training, and of that of random actions before it."""
    num_envs: int | None = None
    """Number of environments of an evaluation; None: 64, or a single one if the run has a single one."""
    close_training_envs: bool | None = None
    """Close the training environments during evaluations and make them again after: for simulators of which only one,
    or few, can exist at a time. None: if training and evaluations have a single environment each. An evaluation then
    waits for the end of a trial, if the environment cannot save its state; with several environments, their active
    trials are lost."""
    choose_policy: bool = False
    """After training, evaluate each policy of the agent (AMAGO: of each gamma) on the training tasks, over `trials`
    trials, and the best one also with the mode in place of samples. The last checkpoint then acts in the way with the
    highest mean return, in evaluations, loaded policies and exports (not in the paper). Earlier checkpoints act as in
    evaluations during training, as all do if it is off."""
    stop_return: float | None = None
    """Stop training after two consecutive evaluations reach this mean return on the training tasks; None: never."""

    def __post_init__(self) -> None:
        check_range(self, "interval_env_steps", ge=0)
        check_range(self, "trials", "final_trials", ge=1, le=MAX_TRIALS)
        check_range(self, "num_envs", ge=1)
        check_range(self, "stop_return")


@dataclass(frozen=True, kw_only=True)
class OfflineConfig:
    """Offline data: trajectories from other runs or from datasets."""

    data: tuple[str, ...] = ()
    """Run directories, replay stores, or names or directories of Minari datasets. They are copied into the run. With
    `batch_fraction` 1 the run is purely offline: environments are stepped for evaluations only."""
    batch_fraction: float = 1.0
    """Fraction of the windows from the data, on average over batches if a batch has no such part. The remaining ones
    are sampled from the run's own replay."""
    total_updates: int = 0
    """Gradient updates of a purely offline run; 0: derived from `env_steps` and `updates_per_env_step`."""

    def __post_init__(self) -> None:
        check_range(self, "batch_fraction", gt=0, le=1)
        check_range(self, "total_updates", ge=0)
        if self.total_updates and not self.is_offline_only:
            raise ConfigFieldError(
                self, "total_updates", "is for purely offline runs: set env_steps instead, or data and batch_fraction 1"
            )

    @property
    def is_offline_only(self) -> bool:
        """Whether the run trains on the data only."""
        return bool(self.data) and self.batch_fraction == 1.0


@dataclass(frozen=True, kw_only=True)
class RayConfig:
    """Collectors in other processes, as Ray actors."""

    REMOVED_FIELDS: ClassVar = ("orphan_timeout_seconds",)
    """Of earlier versions, ignored in files of runs."""

    address: str = ""
    """Ray cluster: `local` starts one on this machine for the run; `auto`, `HOST:PORT` or `ray://HOST:PORT` connects to
    a running one. Empty: collect in this process."""
    num_collectors: int = 0
    """Total number of collector processes. Requires `address`."""
    num_envs_per_collector: int = 0
    """Number of environments of each collector; 0: `num_envs` divided evenly."""
    num_cpus_per_collector: float = 1.0
    """CPU cores that Ray reserves for a collector."""
    num_gpus_per_collector: float = 0.0
    """GPUs that Ray reserves for a collector, which then acts on a GPU; may be a fraction."""
    max_policy_lag: int = 2
    """Maximum policy lag in iterations. Staler results are dropped."""
    collect_timeout_seconds: float = 60.0
    """Timeout for a reply of a collector, which is then replaced."""
    startup_timeout_seconds: float = 300.0
    """Timeout for the start of a collector whose resources are available, which is then replaced."""

    def __post_init__(self) -> None:
        check_range(self, "num_collectors", "num_envs_per_collector", ge=0)
        check_range(self, "num_cpus_per_collector", "num_gpus_per_collector", ge=0)
        check_range(self, "max_policy_lag", ge=1)
        check_range(self, "collect_timeout_seconds", "startup_timeout_seconds", gt=0)


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """Schedule and retention of checkpoints."""

    interval_seconds: float = 60.0
    """Maximum time between checkpoints."""
    keep_latest_k: int = 2
    """Number of latest checkpoints kept, besides the best by evaluation."""
    milestone_interval_env_steps: int = 0
    """Environment steps between checkpoints that are never deleted; 0: off."""

    def __post_init__(self) -> None:
        check_range(self, "keep_latest_k", ge=1)
        check_range(self, "interval_seconds", "milestone_interval_env_steps", ge=0)


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Config of a run. A recipe is a function that returns one."""

    OTHER_NAMES: ClassVar = {
        **dict.fromkeys(("gamma", "discount", "discount_factor"), "agent.acting_gamma"),
        **dict.fromkeys(("total_timesteps", "timesteps", "steps", "num_steps", "max_steps"), "env_steps"),
        **dict.fromkeys(("n_steps", "train_freq", "num_rollout_steps"), "env_steps_per_iteration"),
        **dict.fromkeys(("gradient_steps", "utd", "utd_ratio", "replay_ratio"), "updates_per_env_step"),
        **dict.fromkeys(("eval_freq", "eval_interval", "evaluation_interval"), "eval.interval_env_steps"),
        **dict.fromkeys(("n_eval_episodes", "eval_trials", "eval_episodes"), "eval.trials"),
        **dict.fromkeys(("checkpoint_freq", "checkpoint_interval", "save_freq"), "checkpoint.interval_seconds"),
        **dict.fromkeys(("ent_coef", "entropy_coef"), "learner.policy_gradient.entropy_coef"),
        **dict.fromkeys(("buffer_size", "replay_buffer_capacity"), "replay.capacity_trajectories"),
        **dict.fromkeys(("max_episode_steps", "time_limit"), "env.horizon"),
        **dict.fromkeys(("exploration_fraction", "exploration_steps"), "exploration.anneal_env_steps"),
        "polyak": "learner.tau",
        "verbose": "quiet",
        "callback": "callbacks",
        "wandb": "track",
    }
    """Names in other libraries -> those of fields here, for messages about unknown names."""

    env: EnvConfig
    num_envs: int = 24
    """Number of training environments."""
    env_steps: int = 1_000_000
    """Total environment steps of the run, summed over environments."""
    context_length: int = 0
    """Transitions per training window and in the policy memory; 0: a whole trial."""
    init_from: str = ""
    """Run directory or checkpoint whose weights the run starts with, normalization included; spaces and networks must
    be the same. "": random weights. `learner.frozen` keeps some of them."""
    seed: int = 0
    """Random seed. With one process on a CPU, runs with the same seed are bitwise equal."""
    deterministic_actions: bool = False
    """Act with the mode of the policy instead of a sample, in training and evaluation (paper: T-Maze only)."""
    algorithm: AlgorithmConfig = field(default_factory=AMAGOConfig, metadata={"flatten": True})
    """Learning algorithm. Flags of its fields have no prefix: `--learner.learning-rate`."""
    exploration: ExplorationConfig = field(default_factory=BilevelEpsilonGreedy)
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    offline: OfflineConfig = field(default_factory=OfflineConfig)
    updates_per_env_step: float = 0.05
    """Gradient updates per environment step, summed over environments (UTD ratio), on average over the run."""
    updates_anneal_env_steps: int = 0
    """Environment steps over which the updates per step rise linearly from 0 to a constant; 0: constant throughout.
    Early updates see few trials, and with many of them the networks learn the noise of those by heart. A run that is
    resumed with more steps makes no updates until its new, slower pace has reached those that it has made."""
    env_steps_per_iteration: int = 0
    """Environment steps collected between updates; 0: one trial per environment."""
    learning_starts: int = 0
    """Environment steps before the first update. `updates_per_env_step` does not count them."""
    eval: EvalConfig = field(default_factory=EvalConfig)
    fault_tolerance: FaultToleranceConfig = field(default_factory=FaultToleranceConfig)
    compute: ComputeConfig = field(default_factory=ComputeConfig)
    async_collection: bool = False
    """Collect in a second thread while updating; the policy lags one iteration. Faster for slow environments
    (simulators, games) and for updates on a GPU; slower for cheap environments if updates run on a CPU."""
    num_learners: int = 1
    """Number of learner processes, one per GPU if available. Environments or collectors, replay and batches are
    divided evenly among them."""
    ray: RayConfig = field(default_factory=RayConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)

    def __post_init__(self) -> None:
        check_range(self, "num_envs", "env_steps", "num_learners", ge=1)
        check_range(self, "context_length", "seed", ge=0)
        check_range(self, "updates_per_env_step", "updates_anneal_env_steps", ge=0)
        check_range(self, "env_steps_per_iteration", "learning_starts", ge=0)
        check_range(self, "num_learners", le=1024)
        if self.algorithm.is_on_policy:
            self._check_on_policy()

    def _check_on_policy(self) -> None:
        """Raise `ConfigFieldError` for a setting that an algorithm on policy cannot follow."""
        name = algorithm_name(self.algorithm)
        problems = {
            "offline.data": (self.offline.data, "must be empty"),
            "exploration": (self.exploration != NoExploration(), "must be NoExploration, without random steps"),
            "updates_per_env_step": (self.updates_per_env_step, "must be 0: its updates follow from its passes"),
            "updates_anneal_env_steps": (self.updates_anneal_env_steps, "must be 0"),
            "learning_starts": (self.learning_starts, "must be 0"),
            "num_learners": (self.num_learners > 1, "must be 1"),
            "replay.relabel.mode": (self.replay.relabel.mode != "none", "must be none"),
        }
        for field_name, (is_problem, rule) in problems.items():
            if is_problem:
                why = "which learns from the newest trials of its own policy alone"
                raise ConfigFieldError(self, field_name, f"{rule} for {name}, {why}")

    @property
    def resolved_context_length(self) -> int:
        """`context_length` with 0 resolved. Raises `UserError` if it exceeds the maximum length of a trial."""
        max_steps = self.env.max_trial_steps
        if self.context_length > max_steps:
            raise UserError(
                f"--context-length {self.context_length} is longer than a trial of {self.env.task_name}: "
                f"pass at most {max_steps} (0: a whole trial)"
            )
        return self.context_length or max_steps

    @property
    def total_updates(self) -> int:
        """Gradient updates of the whole run."""
        return self.updates_due(env_steps=self.env_steps, updates=0)

    @property
    def resolved_env_steps_per_iteration(self) -> int:
        """`env_steps_per_iteration` with 0 resolved."""
        return self.env_steps_per_iteration or self.num_envs * self.env.max_trial_steps

    @property
    def resolved_eval_num_envs(self) -> int:
        """`eval.num_envs` with None resolved."""
        return self.eval.num_envs or (1 if self.num_envs == 1 else 64)

    @property
    def closes_training_envs(self) -> bool:
        """`eval.close_training_envs` with None resolved."""
        has_single_env = self.num_envs == self.resolved_eval_num_envs == 1
        return has_single_env if self.eval.close_training_envs is None else self.eval.close_training_envs

    @property
    def makes_updates(self) -> bool:
        """Whether the run trains anything, once enough trials are stored."""
        return bool(self.updates_per_env_step) or self.algorithm.is_on_policy

    def first_trials_env_steps(self, num_envs: int) -> int:
        """Return the environment steps of the trials before the first update if none ends before the horizon."""
        return -(-self.algorithm.min_trials // num_envs) * num_envs * self.env.max_trial_steps

    @property
    def first_update_env_steps(self) -> int | None:
        """Environment steps before the first update if no trial ends before the horizon; None: there is none then."""
        if not self.makes_updates:
            return None
        first_trials = 0 if self.offline.is_offline_only else self.first_trials_env_steps(self.num_envs)
        needed = max(first_trials, self.env_steps_of_updates(1) if self.updates_per_env_step else 0)
        iteration, end = (
            -(-env_steps // self.num_envs) * self.num_envs
            for env_steps in (self.resolved_env_steps_per_iteration, self.env_steps)
        )
        return min(-(-needed // iteration) * iteration, end) if needed <= end else None

    def updates_due(self, *, env_steps: int, updates: int) -> int:
        """Return the number of updates to make now, given the numbers of environment steps and updates so far."""
        length, ramp, steepness = self._pace()
        steps = max(0, env_steps - self.learning_starts)
        even_steps = steepness * steps**2 / (2 * ramp) if steps < ramp else length - (length - steps) * steepness
        return max(0, int(even_steps * self.updates_per_env_step) - updates)

    def env_steps_of_updates(self, updates: int) -> int:
        """Return the number of environment steps after which this many updates are due."""
        length, ramp, steepness = self._pace()
        even_steps = updates / self.updates_per_env_step
        is_rising = even_steps < steepness * ramp / 2
        steps = (
            math.sqrt(2 * ramp * even_steps / steepness) if is_rising else length - (length - even_steps) / steepness
        )
        env_steps = self.learning_starts + int(steps)
        while self.updates_due(env_steps=env_steps, updates=0) < updates:  # floats are off by a step at most
            env_steps += 1
        return env_steps

    def _pace(self) -> tuple[int, int, float]:
        """Steps from the first update on, those in which updates become more frequent, and the ratio of their final
        number per step to `updates_per_env_step`."""
        length = max(1, self.env_steps - self.learning_starts)
        ramp = min(self.updates_anneal_env_steps, length)
        return length, ramp, length / (length - ramp / 2)


_REMOVED_FIELDS = {
    *(f"replay.{name}" for name in ReplayConfig.REMOVED_FIELDS),
    *(f"ray.{name}" for name in RayConfig.REMOVED_FIELDS),
}


def resolve_offline_length(config: RunConfig) -> RunConfig:
    """Return the config with `offline.total_updates` converted to `env_steps`. `UserError` if no updates are made."""
    updates = config.offline.total_updates
    if not updates:
        return config
    if not config.updates_per_env_step:
        raise UserError("--updates-per-env-step is 0: pass a positive number, since the run would make no updates")
    env_steps = config.learning_starts + int(updates / config.updates_per_env_step)
    while replace(config, env_steps=env_steps).total_updates < updates:
        env_steps += 1
    return replace(config, env_steps=env_steps)


def experiment_settings(fields: Mapping[str, Any], *, with_length: bool = False) -> dict[str, Any]:
    """Return the settings by which runs are of one experiment: those that are equal are seeds of the same arm.

    Args:
        fields: Path of a config field -> its value, of all fields. Those of earlier versions are left out.
        with_length: Whether the length of the run is a setting. Without it, runs of different lengths are seeds of the
            same arm, too.
    """
    present = {path: value for path, value in fields.items() if path not in _REMOVED_FIELDS}
    settings = {path: value for path, value in present.items() if not _NO_PART_IN_RESULTS.fullmatch(path)}
    return settings if with_length else {path: value for path, value in settings.items() if not _LENGTH.fullmatch(path)}
