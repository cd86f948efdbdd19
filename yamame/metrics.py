"""What a run measures: one JSON object a line, always, and TensorBoard events for looking at curves."""

import json
import math
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, SupportsFloat

from tensorboardX import summary
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.record_writer import RecordWriter

from yamame.errors import wrap_os_errors

METRICS_FILE = "metrics.jsonl"

RETURN = "rollout/return_mean"
SUCCESS = "rollout/success_rate"
EVAL = "eval"
EVAL_TRAIN_TASKS = "eval_train_tasks"
EVAL_RETURN = f"{EVAL}/return_mean"
EVAL_LOW = f"{EVAL}/return_ci95_low"
EVAL_HIGH = f"{EVAL}/return_ci95_high"
EVAL_SUCCESS = f"{EVAL}/success_rate"
EVAL_RETURN_TRAIN_TASKS = f"{EVAL_TRAIN_TASKS}/return_mean"
ENV_STEPS_PER_SECOND = "time/env_steps_per_second"
UPDATES_PER_SECOND = "time/updates_per_second"

METRIC_DESCRIPTIONS: Mapping[str, str] = {
    RETURN: "mean return of the last 100 training trials, exploration noise included",
    SUCCESS: "fraction of those trials in which the task announced success, 0 to 1",
    EVAL_RETURN: "mean return of evaluation trials, without exploration noise, on test tasks where there are any",
    EVAL_LOW: "lower end of the 95 % confidence interval of that mean",
    EVAL_HIGH: "upper end of the 95 % confidence interval of that mean",
    EVAL_SUCCESS: "fraction of the evaluation trials in which the task announced success, 0 to 1",
    EVAL_RETURN_TRAIN_TASKS: "the like on the training tasks, where the benchmark keeps test tasks apart",
    ENV_STEPS_PER_SECOND: "environment steps per second of wall time since the last line, all environments together",
    UPDATES_PER_SECOND: "gradient updates per second of wall time since the last line",
}
"""The keys that the progress display and the report look for; losses add their own (`loss/...`)."""

_KEY = re.compile(r"[a-z0-9_]+/\S+")


class MetricLogger:
    """Writes `directory/metrics.jsonl` and `directory/tensorboard/`; every line reaches the operating system at once.

    A line has `env_steps`, `updates`, `wall_seconds` and values under `group/name`; a value that is not finite is
    null. TensorBoard counts in environment steps.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / METRICS_FILE
        self._folder_of_events = directory / "tensorboard"
        _drop_torn_line(self._path)
        self._file = self._path.open("ab", buffering=0)
        self._events: Any = None

    def write(self, *, env_steps: int, updates: int, wall_seconds: float, values: Mapping[str, SupportsFloat]) -> None:
        """One line, whole or not at all. `values` are numbers or tensors and arrays of one number.

        Raises ValueError for a key without a group, `UserError` where the disk does not take it.
        """
        for key in values:
            if not _KEY.fullmatch(key):
                raise ValueError(f"metric key {key!r} is not of the form group/name")
        finite = {key: number if math.isfinite(number := float(value)) else None for key, value in values.items()}
        line = {"env_steps": env_steps, "updates": updates, "wall_seconds": round(wall_seconds, 3), **finite}
        with wrap_os_errors(self._path):
            self._append(json.dumps(line, allow_nan=False).encode() + b"\n")
        with wrap_os_errors(self._folder_of_events):
            events = self._open_events(env_steps)
            events.write(env_steps, {key: value for key, value in finite.items() if value is not None})

    @property
    def num_bytes(self) -> int:
        """Bytes of the file."""
        return self._file.seek(0, os.SEEK_END)

    def truncate(self, length: int | None) -> None:
        """Forget what lies beyond a length, which a resumed run is about to write again; None: forget nothing."""
        if length is not None and length < self.num_bytes:
            self._file.truncate(length)

    def flush(self) -> None:
        """Wait until all lines are on the disk."""
        with wrap_os_errors(self._path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the files; closing twice is no mistake."""
        self._file.close()
        if self._events is not None:
            self._events.close()
            self._events = None

    def __enter__(self) -> "MetricLogger":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _append(self, line: bytes) -> None:
        length = self.num_bytes
        try:
            while line:
                line = line[self._file.write(line) :]
        except OSError:
            self._file.truncate(length)
            raise

    def _open_events(self, env_steps: int) -> Any:
        if self._events is None:
            # MERGED

            self._events = TensorBoardWriter(self._folder_of_events, begins_at=env_steps)
        return self._events


def read_metrics(directory: Path) -> list[dict[str, Any]]:
    """All whole lines of a run's metrics, oldest first; empty where none was written. A torn last line is ignored."""
    return list(_lines(directory / METRICS_FILE))


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            parsed = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(parsed, dict) and "updates" in parsed:
            yield parsed


def _drop_torn_line(path: Path) -> None:
    """Cut off what a killed writer left after the last line end, so that the next line begins on its own."""
    if not path.exists():
        return
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        with path.open("rb+") as file:
            file.truncate(whole)


class TensorBoardWriter:
    """A new event file in a folder, which may have some; every write reaches the operating system at once.

    `begins_at`: the step from which on TensorBoard is to hide what other files in the folder have.
    """

    def __init__(self, folder: Path, *, begins_at: int) -> None:
        continues = folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        self._writer = RecordWriter(str(folder / f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}"))
        try:
            self._add(Event(file_version="brain.Event:2"))
            if continues:
                self._add(Event(step=begins_at, session_log=SessionLog(status=SessionLog.START)))
            self._writer.flush()
        except OSError:
            self.close()
            raise

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Numbers at a step."""
        for key, value in values.items():
            self._add(Event(step=step, summary=summary.scalar(key, value)))
        self._writer.flush()

    def close(self) -> None:
        """Nothing is left to write, but for what a full disk did not take before."""
        with suppress(OSError):
            self._writer.close()

    def _add(self, event: Event) -> None:
        event.wall_time = time.time()
        self._writer.write(event.SerializeToString())
