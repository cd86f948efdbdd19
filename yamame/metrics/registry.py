"""What a run logs: the table of its metrics, and the reader of `metrics.jsonl`."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

METRICS_FILE = "metrics.jsonl"

RETURN = "rollout/return_mean"
SUCCESS = "rollout/success_rate"
EVAL = "eval"
EVAL_TRAIN_TASKS = "eval_train_tasks"
EVAL_RETURN = f"{EVAL}/return_mean"
EVAL_LOW = f"{EVAL}/return_ci95_low"
EVAL_HIGH = f"{EVAL}/return_ci95_high"
EVAL_SUCCESS = f"{EVAL}/success_rate"
ENV_STEPS_PER_SECOND = "time/env_steps_per_second"
UPDATES_PER_SECOND = "time/updates_per_second"

GROUPS: Mapping[str, str] = {
    "rollout": "Returns",
    EVAL: "Returns",
    EVAL_TRAIN_TASKS: "Returns",
    "loss": "Losses",
    "critic": "Critic",
    "actor": "Actor and optimizer",
    "optim": "Actor and optimizer",
    "bonus": "Exploration bonuses",
    "replay": "Replay",
    "relabel": "Relabeling",
    "faults": "Faults",
    "collectors": "Collectors",
    "time": "Time",
}
"""Prefix of a key -> heading in the documentation and in the viewer, in their order."""
OTHER_GROUP = "Other"

_INDEX = re.compile(r"<(\w+)>")


@dataclass(frozen=True)
class Metric:
    """One metric, or a family of metrics whose keys end in a number."""

    key: str
    """`group/name`; a family ends in `<attempt>` or `<gamma>`."""
    label: str
    """Title of a panel, axis or table row."""
    description: str
    """Quantity, aggregation and window, without the unit."""
    unit: str
    direction: Literal["higher", "lower", ""] = ""
    """Which values are better; empty: neither."""

    @property
    def group(self) -> str:
        """Heading under which the metric is listed."""
        return GROUPS.get(self.key.partition("/")[0], OTHER_GROUP)

    @property
    def is_family(self) -> bool:
        """Whether the key is one metric per attempt or gamma."""
        return _INDEX.search(self.key) is not None

    @property
    def help(self) -> str:
        """Description, unit and direction in one line."""
        better = f"; {self.direction} is better" if self.direction else ""
        return f"{self.description}; unit: {self.unit}{better}" if self.description else ""

    def index(self, key: str) -> float | None:
        """The number at the end of a family's key; None if the key is not of this family."""
        stem = _INDEX.sub("", self.key)
        if not self.is_family or not re.fullmatch(re.escape(stem) + r"\d+(\.\d+)?", key):
            return None
        return float(key.removeprefix(stem))


METRICS: tuple[Metric, ...] = (
    Metric(RETURN, "Return while training", "mean return of the last 100 training trials, with exploration noise",
           "reward", "higher"),
    Metric(SUCCESS, "Success while training", "fraction of the last 100 training trials that succeeded",
           "fraction", "higher"),
    Metric("rollout/return_mean_attempt_<attempt>", "Return of each attempt",
           "mean return of attempt 1 to 10, over those of the last 100 training trials that started it",
           "reward", "higher"),
    Metric("rollout/trial_length_mean", "Trial length", "mean length of the last 100 training trials", "env steps"),
    Metric("rollout/num_trials", "Completed trials", "number of completed training trials in the whole run", "trials"),
    Metric(EVAL_RETURN, "Return of evaluations",
           "mean return of evaluation trials without exploration noise, on the test tasks if the benchmark has them",
           "reward", "higher"),
    Metric(EVAL_LOW, "Return of evaluations, low", "lower end of the 95 % confidence interval of `eval/return_mean`",
           "reward"),
    Metric(EVAL_HIGH, "Return of evaluations, high", "upper end of the 95 % confidence interval of `eval/return_mean`",
           "reward"),
    Metric(EVAL_SUCCESS, "Success of evaluations", "fraction of the evaluation trials that succeeded",
           "fraction", "higher"),
    Metric(f"{EVAL_TRAIN_TASKS}/return_mean", "Return on the training tasks",
           "mean return of evaluation trials on the training tasks, if the benchmark has separate test tasks",
           "reward", "higher"),
    Metric(f"{EVAL_TRAIN_TASKS}/return_ci95_low", "Return on the training tasks, low",
           "lower end of the 95 % confidence interval of `eval_train_tasks/return_mean`", "reward"),
    Metric(f"{EVAL_TRAIN_TASKS}/return_ci95_high", "Return on the training tasks, high",
           "upper end of the 95 % confidence interval of `eval_train_tasks/return_mean`", "reward"),
    Metric(f"{EVAL_TRAIN_TASKS}/success_rate", "Success on the training tasks",
           "fraction of the evaluation trials on the training tasks that succeeded", "fraction", "higher"),
    Metric("loss/td", "TD loss",
           "squared TD error of the critics (values by classification: cross-entropy), mean over gammas, tokens and "
           "updates of the iteration",
           "squared standard deviations of the target", "lower"),
    Metric("loss/policy_gradient", "Policy gradient loss",
           "negative value of the policy's actions, minimum or mean over critics, mean over the iteration",
           "standard deviations of the target"),
    Metric("loss/filtered_bc", "Filtered BC loss",
           "negative log-probability of the imitated data actions, mean over the iteration", "nats"),
    Metric("loss/world_model", "World model loss",
           "squared error of the predicted observation delta, mean over the iteration; 1 is the error of the mean",
           "normalized delta squared", "lower"),
    Metric("loss/policy", "Policy loss",
           "clipped policy objective of PPO with its sign changed, mean over the iteration",
           "standard deviations of the advantage"),
    Metric("loss/value", "Value loss", "error of the values of PPO, mean over the iteration",
           "squared standard deviations of the target", "lower"),
    Metric("loss/critic", "Critic loss",
           "squared TD error of the critics of recurrent SAC, mean over critics, tokens and updates of the iteration",
           "squared reward", "lower"),
    Metric("loss/actor", "Actor loss",
           "negative value of the actor's actions and of their entropy, for a single discrete choice cross-entropy to "
           "softmax(Q / temperature), mean over the iteration", "reward, nats"),
    Metric("loss/temperature", "Temperature loss",
           "log temperature times (entropy - target entropy), mean over the iteration", "nats"),
    Metric("loss/imitation", "Imitation loss",
           "negative log-probability of the stored actions in distillation, with label smoothing if it is on, mean "
           "over the iteration", "nats", "lower"),
    Metric("loss/reconstruction", "Reconstruction loss",
           "squared error of the rewards of a trial that variBAD predicts from its beliefs, mean over beliefs, "
           "transitions and updates of the iteration; 1 is the error of the mean", "squared standard deviations of the "
           "reward", "lower"),
    Metric("loss/belief_kl", "KL divergence of the belief",
           "KL divergence of the belief of variBAD from the one before it, mean over tokens and updates of the "
           "iteration", "nats"),
    Metric("loss/novelty", "Novelty loss",
           "squared error of the outputs of HyperX's fixed network that its predictor predicts, mean over outputs, "
           "hyper-states of stored trials and updates of the iteration", "squared output", "lower"),
    Metric("loss/separate_gamma", "Loss of the separate gamma",
           "weighted sum of the losses of the separate heads (`--agent.separate-gamma`), mean over the iteration",
           "squared standard deviations of the target"),
    Metric("critic/explained_variance", "Explained variance",
           "1 minus the variance of PPO's advantages over that of its value targets, before the updates of the "
           "iteration; 0: the values are no better than a constant", "fraction", "higher"),
    Metric("critic/td_error_abs", "TD error", "mean absolute TD error at the acting gamma over the iteration",
           "standard deviations of the target", "lower"),
    Metric("critic/q_normalized", "Q, normalized",
           "mean value of the data actions at the acting gamma over the iteration",
           "standard deviations of the target"),
    Metric("critic/q_ensemble_std", "Critic ensemble std",
           "standard deviation over the critics at the acting gamma, mean over the iteration",
           "standard deviations of the target", "lower"),
    Metric("critic/q_mean", "Q", "mean value of the data actions over the iteration", "reward"),
    Metric("critic/td_target_mean", "TD target", "mean TD target at the acting gamma over the iteration", "reward"),
    Metric("critic/td_target_clamped_fraction", "Clamped TD targets",
           "fraction of the TD targets at the acting gamma that are beyond the bins of the critics, mean over the "
           "iteration (values by classification alone)", "fraction", "lower"),
    Metric("critic/popart_std", "PopArt std", "running standard deviation of the TD targets at the acting gamma",
           "reward"),
    Metric("critic/td_target_mean_gamma_<gamma>", "TD target by gamma",
           "running mean of the TD targets at each gamma", "reward"),
    Metric("critic/popart_std_gamma_<gamma>", "PopArt std by gamma",
           "running standard deviation of the TD targets at each gamma", "reward"),
    Metric("actor/entropy", "Policy entropy", "mean entropy of the policy at the acting gamma over the iteration",
           "nats"),
    Metric("actor/kl", "KL divergence",
           "estimate of the KL divergence from the policy before the updates of the iteration", "nats"),
    Metric("actor/clip_fraction", "Clipped fraction",
           "fraction of tokens whose probability ratio is beyond PPO's clip, mean over the iteration", "fraction"),
    Metric("actor/staleness", "Staleness",
           "mean absolute log-ratio of the policy before the updates of the iteration and the one that acted; 0: all "
           "trials are of the former", "nats"),
    Metric("actor/target_entropy", "Target entropy",
           "entropy that the temperature of SAC is adjusted for, mean over the iteration", "nats"),
    Metric("actor/temperature", "Temperature", "value of a nat of entropy in SAC, mean over the iteration",
           "reward per nat"),
    Metric("actor/filtered_bc_fraction", "Filtered BC fraction",
           "fraction of tokens whose action has an advantage above `--learner.filtered-bc.advantage-threshold`, mean "
           "over the iteration", "fraction"),
    Metric("optim/grad_norm", "Gradient norm", "mean norm of the gradient before clipping over the iteration",
           "gradient norm"),
    *(
        Metric(f"optim/grad_norm_{loss}", f"Gradient norm, {name}",
               f"norm of the gradient of the weighted {name}, in one of the last 500 updates", "gradient norm")
        for loss, name in (("td", "TD loss"), ("policy_gradient", "policy gradient loss"),
                           ("filtered_bc", "filtered BC loss"), ("world_model", "world model loss"))
    ),
    *(
        Metric(f"optim/grad_norm_{part}", f"Gradient norm, {part}",
               f"mean norm of the gradient of the {part} loss before clipping over the iteration", "gradient norm")
        for part in ("critic", "actor")
    ),
    Metric("optim/grad_norm_belief", "Gradient norm, belief",
           "mean norm of the gradient of belief and decoder of variBAD before clipping over the iteration",
           "gradient norm"),
    Metric("optim/nonfinite_updates", "Non-finite updates",
           "number of updates skipped in the whole run because the loss or gradient was NaN or infinite",
           "updates", "lower"),
    Metric("bonus/mean_novelty", "Novelty",
           "running mean of the reward of the policy of novelty, one over the root of the number of visits, mean over "
           "the iteration", "1 / root of visits"),
    Metric("bonus/rewarded_fraction", "Windows with a reward",
           "running fraction of the windows with a positive reward, above which nothing explores for novelty",
           "fraction"),
    Metric("bonus/novelty", "Novelty bonus",
           "mean bonus of HyperX for new hyper-states, with its weight, over the transitions of the iteration, beside "
           "rewards in deviations of their discounted return", "deviations"),
    Metric("bonus/reconstruction", "Reconstruction bonus",
           "mean bonus of HyperX for rewards that the belief does not predict, likewise", "deviations"),
    Metric("bonus/scale", "Bonus scale", "factor by which both bonuses of HyperX are annealed", "fraction"),
    Metric("replay/trajectories", "Stored trajectories", "number of trajectories in the replay store",
           "trajectories"),
    Metric("replay/median_age_updates", "Policy age", "updates since the median stored trajectory was collected",
           "updates"),
    Metric("replay/num_corrupted", "Corrupted records", "number of quarantined records in the whole run",
           "records", "lower"),
    Metric("relabel/relabeled_fraction", "Relabeled fraction",
           "fraction of the sampled trajectories with an unfinished instruction that were relabeled, whole run",
           "fraction"),
    Metric("relabel/inserted_goals_mean", "Inserted goals",
           "mean number of goals inserted per sampled trajectory with an unfinished instruction, whole run", "goals"),
    Metric("relabel/num_unique_goals", "Unique goals",
           "number of different goals counted, at most 20,000: those of a part of the sampled trajectories with an "
           "unfinished instruction, whole run", "goals", "higher"),
    Metric("relabel/most_common_goal_fraction", "Most common goal",
           "frequency of the most common goal among those counted", "fraction"),
    Metric("relabel/rarest_goal_fraction", "Rarest goal", "frequency of the rarest goal among those counted",
           "fraction"),
    Metric("faults/restarts", "Env restarts", "number of environment restarts in the whole run", "restarts", "lower"),
    Metric("faults/exception", "Exceptions", "number of environment steps that raised, whole run", "faults", "lower"),
    Metric("faults/nonfinite", "NaN or infinity",
           "number of environment steps that returned NaN or infinity, whole run", "faults", "lower"),
    Metric("faults/shape_mismatch", "Shape mismatches",
           "number of steps with rewards, flags, masks or infos of another type, whole run", "faults", "lower"),
    Metric("faults/worker_died", "Dead workers", "number of worker processes that exited, whole run",
           "faults", "lower"),
    Metric("faults/timeout", "Timeouts",
           "number of environment steps longer than `env.step_timeout_seconds`, whole run",
           "faults", "lower"),
    Metric("collectors/num_ready", "Ready collectors", "number of collectors at work at the end of the iteration",
           "collectors", "higher"),
    Metric("collectors/num_replaced", "Replaced collectors",
           "number of collectors that died, hung or failed to start, whole run", "collectors", "lower"),
    Metric("collectors/num_stale_dropped", "Stale results",
           "number of results dropped because they exceeded `ray.max_policy_lag`, since the process started",
           "results", "lower"),
    Metric("collectors/idle_fraction", "Idle collectors",
           "fraction of the collectors' time without a request, iteration",
           "fraction", "lower"),
    Metric("collectors/policy_lag_updates_mean", "Policy lag",
           "mean number of updates between the policy that started a trial and the latest one, iteration",
           "updates", "lower"),
    Metric("collectors/policy_lag_updates_max", "Policy lag, maximum",
           "largest number of updates between the policy that started a trial and the latest one, iteration",
           "updates", "lower"),
    Metric("collectors/weight_sync_bytes", "Weight sync size", "size of the weights sent to the collectors", "bytes"),
    Metric("collectors/weight_sync_seconds", "Weight sync time", "time to send the weights to the collectors",
           "seconds", "lower"),
    Metric(ENV_STEPS_PER_SECOND, "Environment steps per second",
           "environment steps of the iteration, all environments, by its wall time", "env steps/s", "higher"),
    Metric(UPDATES_PER_SECOND, "Updates per second", "gradient updates of the iteration by its wall time",
           "updates/s", "higher"),
    Metric("time/collect_seconds", "Collection time", "wall time of the iteration spent acting in environments",
           "seconds"),
    Metric("time/update_seconds", "Update time", "wall time of the iteration spent in updates", "seconds"),
    Metric("time/learner_wait_fraction", "Learner wait fraction",
           "fraction of the update time that the learner waited for a batch, iteration", "fraction", "lower"),
    Metric("time/collector_wait_seconds", "Collector wait time",
           "wall time of the iteration in which no result arrived from a collector", "seconds"),
)  # fmt: skip
"""Every metric that a run may log. The documentation, TensorBoard, the viewer and reports read this table."""

_BY_KEY = {metric.key: metric for metric in METRICS}
_FAMILIES = tuple(metric for metric in METRICS if metric.is_family)


def get_metric(key: str) -> Metric:
    """The entry of a logged key, that of its family included; one made from the key if the table has none."""
    if key in _BY_KEY:
        return _BY_KEY[key]
    family = next((metric for metric in _FAMILIES if metric.index(key) is not None), None)
    prefix, _, name = key.partition("/")
    return family or Metric(key, name.replace("_", " ").capitalize() if prefix in GROUPS else key, "", "")


def ci95_keys(key: str) -> tuple[str, str] | None:
    """Keys of the ends of the 95 % interval that may be logged beside a mean; None if `key` is not a mean."""
    stem = key.removesuffix("_mean")
    return None if stem == key else (f"{stem}_ci95_low", f"{stem}_ci95_high")


def is_ci95_end(key: str) -> bool:
    """Return whether the metric is an end of a confidence interval."""
    return key.endswith(("_ci95_low", "_ci95_high"))


def read_metrics(directory: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's `metrics.jsonl`, oldest first; empty without a file. Skips torn or foreign lines."""
    path = directory / METRICS_FILE
    lines: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else ():
        with suppress(ValueError, RecursionError):
            parsed = json.loads(line)
            if isinstance(parsed, dict) and {"env_steps", "updates"} <= parsed.keys():
                lines.append(parsed)
    return lines
