"""`Tracking`: sends a run's metrics and result to experiment trackers, which cannot stop or slow it."""

import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, replace
from operator import methodcaller
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

from yamame.config.differences import flatten_config
from yamame.errors import describe_error
from yamame.metrics.logger import MetricLogger
from yamame.metrics.registry import read_metrics
from yamame.metrics.trackers.base import Ending, Tracker, load_tracker
from yamame.run_config import RunConfig
from yamame.runs.directory import TRACKING
from yamame.runs.durable_files import write_json
from yamame.training.run_files import RunResult, TrackingRecord, read_tracking

START_SECONDS = 30.0
"""Time that training waits for trackers to start. One that takes longer gets the metrics later."""
FINISH_SECONDS = 60.0
"""Time that all trackers together have at the end of a run to send what they have not sent yet."""


class Tracking:
    """The trackers of a run, in a thread each. The first exception of one is printed, and ends its tracking.

    Args:
        directory: Run directory, where the names of the trackers and the run's id in them are stored.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._threads: list[_TrackerThread] = []
        self._env_steps = 0

    def start(self, config: RunConfig, names: Sequence[str], logger: MetricLogger) -> None:
        """Start or continue the run in its trackers.

        Args:
            config: Config of the run.
            names: Trackers that the run gets in addition to those it has. They get its earlier metrics, too.
            logger: What it writes is logged.

        Raises:
            UserError: If the run directory cannot be written.
        """
        stored = read_tracking(self._directory) or TrackingRecord(run_id=uuid.uuid4().hex)
        lines = [line for line in read_metrics(self._directory) if isinstance(line.get("env_steps"), int)]
        env_steps = max([stored.env_steps, logger.repeats_until, *(line["env_steps"] for line in lines)])
        trackers = tuple(dict.fromkeys([*stored.trackers, *names]))
        if not trackers:
            return
        write_json(self._directory / TRACKING, asdict(replace(stored, trackers=trackers, env_steps=env_steps)))
        arguments = {
            "name": _encodable(self._directory.resolve().name),
            "run_id": stored.run_id,
            "config": {path: _encodable(value) for path, value in flatten_config(config).items()},
        }
        deadline = time.monotonic() + START_SECONDS
        with redirect_stdout(sys.stderr):  # what trackers print
            for name in trackers:
                after = env_steps if name in stored.trackers else -1
                self._threads.append(_TrackerThread(name, arguments, after=after))
            for thread in self._threads:
                thread.started.wait(deadline - time.monotonic())
        for line in lines:
            self._log(line)
        logger.on_line = self._log

    def finish(self, ending: Ending, result: RunResult | None = None) -> None:
        """Log the result and wait until the trackers have sent everything, for `FINISH_SECONDS` at most.

        Args:
            ending: How the process ends.
            result: Result of a finished run.
        """
        deadline = time.monotonic() + FINISH_SECONDS
        for thread in self._threads:
            thread.call(methodcaller("finish", ending, self._env_steps, dict(_result_values(result or {}))))
            thread.call(None)
        with redirect_stdout(sys.stderr):
            for thread in self._threads:
                if not thread.join(deadline - time.monotonic()):
                    _report(thread.name, f"not everything was sent within {FINISH_SECONDS:g} s")
        self._threads.clear()

    def _log(self, line: Mapping[str, Any]) -> None:
        self._env_steps = line["env_steps"]
        values = {
            key: float(value) for key, value in line.items() if key != "env_steps" and isinstance(value, int | float)
        }
        for thread in self._threads:
            if self._env_steps > thread.after:
                thread.call(methodcaller("log", self._env_steps, values))


class _TrackerThread:
    """Makes a tracker and calls its methods in order, until one raises.

    Args:
        name: Name of the tracker.
        arguments: Arguments of its constructor.
        after: Environment steps up to which it has the metrics of the run.
    """

    def __init__(self, name: str, arguments: Mapping[str, Any], *, after: int) -> None:
        self.name, self.after = name, after
        self.started = Event()
        """Set when the tracker has started or failed."""
        self._arguments = arguments
        self._calls: SimpleQueue[Callable[[Tracker], None] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name=f"tracker {name}", daemon=True)
        self._thread.start()

    def call(self, call: Callable[[Tracker], None] | None) -> None:
        """Call a function with the tracker after all earlier ones; None ends the thread."""
        if self._thread.is_alive():
            self._calls.put(call)

    def join(self, seconds: float) -> bool:
        """Wait until the thread has ended; return whether it has."""
        self._thread.join(max(0.0, seconds))
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            tracker = load_tracker(self.name)(**self._arguments)
            self.started.set()
            while call := self._calls.get():
                call(tracker)
        except Exception as error:
            _report(self.name, describe_error(error))
        finally:
            self.started.set()


def _encodable(value: Any) -> Any:
    """Return text, also in sequences, with escapes for the bytes of file names that are no text."""
    if isinstance(value, list | tuple):
        return [_encodable(part) for part in value]
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


def _report(name: str, problem: str) -> None:
    print(f"tracking with {name} failed: {problem}", file=sys.stderr)


def _result_values(result: RunResult) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a result, those of lists with a suffix."""
    for key, value in result.items():
        if key == "return_ci95":
            yield from zip((f"result/{key}_low", f"result/{key}_high"), value, strict=True)
        elif key == "return_per_attempt":
            yield from ((f"result/return_mean_attempt_{number}", each) for number, each in enumerate(value, 1))
        elif isinstance(value, int | float):
            yield f"result/{key}", float(value)
