"""`MetricLogger`: writes `metrics.jsonl` and TensorBoard events."""

import json
import math
import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, SupportsFloat

from tensorboardX import summary
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.record_writer import RecordWriter

from yamame.errors import RunFailedError, wrap_os_errors
from yamame.metrics.registry import EVAL_RETURN, METRICS_FILE, get_metric, read_metrics

_KEY = re.compile(r"[a-z0-9_]+/\S+")
_MIN_LINES = 4096
"""Lines per doubling of the iterations, once a run is thinned."""


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
            if not is_metric_key(key):
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


def is_metric_key(key: Any) -> bool:
    """Return whether a metric can have this key: a group and a name, such as `mine/distance`."""
    return isinstance(key, str) and _KEY.fullmatch(key) is not None


def _stride(iteration: int) -> int:
    return 1 << max(0, (iteration // _MIN_LINES).bit_length() - 1)


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
