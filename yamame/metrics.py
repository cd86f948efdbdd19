"""What a run logs: the registry of metrics, and the writer of `metrics.jsonl` and TensorBoard events."""

import json
import math
import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, SupportsFloat

from tensorboardX import summary
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.record_writer import RecordWriter

from yamame.errors import RunFailedError, wrap_os_errors

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
    "replay": "Replay",
    "relabel": "Relabeling",
    "faults": "Faults",
    "collectors": "Collectors",
    "time": "Time",
}
"""Prefix of a key -> heading in the documentation and in the viewer, in their order."""
OTHER_GROUP = "Other"

_KEY = re.compile(r"[a-z0-9_]+/\S+")
_MIN_LINES = 4096
"""Lines per doubling of the iterations, once a run is thinned."""
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
           "squared TD error of the critics, mean over gammas, tokens and updates of the iteration",
           "squared standard deviations of the target", "lower"),
    Metric("loss/policy_gradient", "Policy gradient loss",
           "negative value of the policy's actions, minimum or mean over critics, mean over the iteration",
           "standard deviations of the target"),
    Metric("loss/filtered_bc", "Filtered BC loss",
           "negative log-probability of the data actions with a positive advantage, mean over the iteration", "nats"),
    Metric("loss/world_model", "World model loss",
           "squared error of the predicted observation delta, mean over the iteration; 1 is the error of the mean",
           "normalized delta squared", "lower"),
    Metric("critic/td_error_abs", "TD error", "mean absolute TD error at the acting gamma over the iteration",
           "standard deviations of the target", "lower"),
    Metric("critic/q_normalized", "Q, normalized",
           "mean value of the data actions at the acting gamma over the iteration",
           "standard deviations of the target"),
    Metric("critic/q_ensemble_std", "Critic ensemble std",
           "standard deviation over the critics at the acting gamma, mean over the iteration",
           "standard deviations of the target", "lower"),
    Metric("critic/td_target_mean", "TD target", "mean TD target at the acting gamma over the iteration", "reward"),
    Metric("critic/popart_std", "PopArt std", "running standard deviation of the TD targets at the acting gamma",
           "reward"),
    Metric("critic/td_target_mean_gamma_<gamma>", "TD target by gamma",
           "running mean of the TD targets at each gamma", "reward"),
    Metric("critic/popart_std_gamma_<gamma>", "PopArt std by gamma",
           "running standard deviation of the TD targets at each gamma", "reward"),
    Metric("actor/entropy", "Policy entropy", "mean entropy of the policy at the acting gamma over the iteration",
           "nats"),
    Metric("actor/filtered_bc_fraction", "Filtered BC fraction",
           "fraction of tokens whose action has a positive advantage, mean over the iteration", "fraction"),
    Metric("optim/grad_norm", "Gradient norm", "mean norm of the gradient before clipping over the iteration",
           "gradient norm"),
    *(
        Metric(f"optim/grad_norm_{loss}", f"Gradient norm, {name}",
               f"norm of the gradient of the weighted {name}, in one of the last 500 updates", "gradient norm")
        for loss, name in (("td", "TD loss"), ("policy_gradient", "policy gradient loss"),
                           ("filtered_bc", "filtered BC loss"), ("world_model", "world model loss"))
    ),
    Metric("optim/nonfinite_updates", "Non-finite updates",
           "number of updates skipped in the whole run because the loss or gradient was NaN or infinite",
           "updates", "lower"),
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
    Metric("relabel/num_unique_goals", "Unique goals", "number of different goals achieved in the whole run",
           "goals", "higher"),
    Metric("relabel/most_common_goal_fraction", "Most common goal",
           "frequency of the most common goal among all achieved goals", "fraction"),
    Metric("relabel/rarest_goal_fraction", "Rarest goal", "frequency of the rarest goal among all achieved goals",
           "fraction"),
    Metric("faults/restarts", "Env restarts", "number of environment restarts in the whole run", "restarts", "lower"),
    Metric("faults/exception", "Exceptions", "number of environment steps that raised, whole run", "faults", "lower"),
    Metric("faults/nonfinite", "NaN or infinity",
           "number of environment steps that returned NaN or infinity, whole run", "faults", "lower"),
    Metric("faults/shape_mismatch", "Shape mismatches",
           "number of observations of another shape or type than the space, whole run", "faults", "lower"),
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


class MetricLogger:
    """Appends to `directory/metrics.jsonl` and `directory/tensorboard/` without buffering.

    A line is a JSON object with `env_steps`, `updates`, `wall_seconds` and values under `group/name` keys; values that
    are NaN or infinite become null. The step of TensorBoard events is the number of environment steps.

    Long runs are thinned: each of the first 8,192 iterations is written, every second of the next 8,192, every fourth
    of the next 16,384, and so on. Iterations with an evaluation are always written.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / METRICS_FILE
        self._events_dir = directory / "tensorboard"
        _drop_torn_line(self._path)
        self._file = self._path.open("ab", buffering=0)
        self._events: TensorBoardWriter | None = None
        self.num_iterations = 0
        """Number of calls of `write`, which a resumed run restores."""
        self.on_line: Callable[[Mapping[str, Any]], None] = lambda line: None
        """Called with each line after it is written."""
        self.repeats_until = -1
        """Environment steps of the last line that `truncate` has cut, which a resumed run writes again."""

    def write(self, *, env_steps: int, updates: int, wall_seconds: float, values: Mapping[str, SupportsFloat]) -> None:
        """Append one line, whole or not at all, unless the iteration is thinned out.

        Args:
            env_steps: Environment steps so far.
            updates: Gradient updates so far.
            wall_seconds: Wall time so far.
            values: Numbers, or tensors and arrays of one number, by key.

        Raises:
            ValueError: If a key has no group.
            UserError: If the file cannot be written.
        """
        for key in values:
            if not _KEY.fullmatch(key):
                raise ValueError(f"metric key {key!r} is not of the form group/name")
        self.num_iterations += 1
        if self.num_iterations % _stride(self.num_iterations) and EVAL_RETURN not in values:
            return
        finite = {key: number if math.isfinite(number := float(value)) else None for key, value in values.items()}
        line = {"env_steps": env_steps, "updates": updates, "wall_seconds": round(wall_seconds, 3), **finite}
        with wrap_os_errors(self._path):
            self._append(json.dumps(line, allow_nan=False).encode() + b"\n")
        with wrap_os_errors(self._events_dir):
            if self._events is None:
                self._events = TensorBoardWriter(self._events_dir, first_step=env_steps)
            self._events.write(env_steps, {key: value for key, value in finite.items() if value is not None})
        self.on_line(line)

    @property
    def num_bytes(self) -> int:
        """Size of `metrics.jsonl`."""
        return self._file.seek(0, os.SEEK_END)

    def truncate(self, length: int) -> list[str]:
        """Cut `metrics.jsonl` to `length` bytes; return a warning if it is shorter or has unreadable lines."""
        num_bytes = self.num_bytes
        if length < num_bytes:
            written = (line.get("env_steps") for line in read_metrics(self._path.parent))
            self.repeats_until = max((steps for steps in written if isinstance(steps, int)), default=-1)
            self._file.truncate(length)
        num_unreadable = len(self._path.read_bytes().splitlines()) - len(read_metrics(self._path.parent))
        problems = [f"lacks {length - num_bytes} bytes of the checkpoint"] if num_bytes < length else []
        problems += [f"has {num_unreadable} unreadable lines"] if num_unreadable else []
        return [f"{self._path} {' and '.join(problems)}"] if problems else []

    def flush(self) -> None:
        """Wait until all lines are on the disk. Raises `RunFailedError` if the file was deleted or replaced."""
        with wrap_os_errors(self._path):
            os.fsync(self._file.fileno())
        try:
            in_place = os.path.samestat(os.fstat(self._file.fileno()), self._path.stat())
        except OSError:
            in_place = False
        if not in_place:
            raise RunFailedError(f"{self._path.parent} was deleted or replaced while the run trained in it")

    def close(self) -> None:
        """Close the files. May be called twice."""
        self._file.close()
        if self._events is not None:
            self._events.close()
            self._events = None

    def __enter__(self) -> "MetricLogger":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _append(self, line: bytes) -> None:
        length = self.num_bytes
        try:
            while line:
                line = line[self._file.write(line) :]
        except OSError:
            self._file.truncate(length)
            raise


def _stride(iteration: int) -> int:
    return 1 << max(0, (iteration // _MIN_LINES).bit_length() - 1)


def read_metrics(directory: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's `metrics.jsonl`, oldest first; empty without a file. Skips a torn last line."""
    path = directory / METRICS_FILE
    lines: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else ():
        with suppress(ValueError, RecursionError):
            parsed = json.loads(line)
            if isinstance(parsed, dict) and "updates" in parsed:
                lines.append(parsed)
    return lines


def _drop_torn_line(path: Path) -> None:
    """Remove an incomplete last line, of a killed writer."""
    if not path.exists():
        return
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        with path.open("rb+") as file:
            file.truncate(whole)


class TensorBoardWriter:
    """A new event file in a folder that may contain others. Flushes after each write.

    The first event of a metric carries its label and description.

    Args:
        folder: Folder of the event files.
        first_step: TensorBoard hides the events of earlier files from this step on.
    """

    def __init__(self, folder: Path, *, first_step: int) -> None:
        continues = folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        self._described: set[str] = set()
        self._writer = RecordWriter(str(folder / f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}"))
        try:
            self._add(Event(file_version="brain.Event:2"))
            if continues:
                self._add(Event(step=first_step, session_log=SessionLog(status=SessionLog.START)))
            self._writer.flush()
        except OSError:
            self.close()
            raise

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Write numbers by key at a step."""
        for key, value in values.items():
            self._add(Event(step=step, summary=self._summary(key, value)))
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):  # what a full disk did not take before
            self._writer.close()

    def _summary(self, key: str, value: float) -> Any:
        if key in self._described:
            return summary.scalar(key, value)
        self._described.add(key)
        return summary.scalar(key, value, display_name=key, summary_description=get_metric(key).help)

    def _add(self, event: Event) -> None:
        event.wall_time = time.time()
        self._writer.write(event.SerializeToString())
