"""The metrics of a run in memory, one array per metric, updated by reading only new lines."""

import json
import math
import os
import threading
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from jaxtyping import Float

from yamame.tools.viewer.run_index import Signature, UnreadableError, file_signature, open_regular_file

AXES = ("env_steps", "updates", "wall_seconds")
"""Counters in every line."""
MAX_LINE_BYTES = 1 << 20
"""Longer lines are skipped."""
TAIL_BYTES = 16 << 10
MAX_VALUES = 32_000_000
"""Values of a run in memory. Runs thin their lines, and write fewer; of longer files the rest is not read."""
MAX_KEYS = 500
MAX_KEY_LENGTH = 200
READ_BYTES = 4 << 20
MARK_BYTES = 64


def parse_line(line: bytes) -> dict[str, float] | None:
    """Return the numbers of a line by key, null and infinity as NaN; None if it is not a line of a run.

    Values that are not numbers are left out.
    """
    if len(line) > MAX_LINE_BYTES:
        return None
    try:
        parsed = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(parsed, dict):
        return None
    numbers: dict[str, float] = {}
    for key, value in parsed.items():  # called for hundreds of thousands of lines
        if type(value) is float:
            numbers[key] = value if value - value == 0.0 else math.nan
        elif type(value) is int or value is None:
            numbers[key] = to_float(value)
    return numbers if all(math.isfinite(numbers.get(axis, math.nan)) for axis in AXES) else None


def read_tail(path: Path) -> list[dict[str, float]]:
    """Return the complete lines in the last `TAIL_BYTES` of a metrics file, oldest first; empty without a file.

    Raises `UnreadableError`.
    """
    try:
        with open_regular_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            start = max(0, size - TAIL_BYTES)
            file.seek(start)
            content = file.read(TAIL_BYTES)
    except OSError:
        return []
    lines = content.split(b"\n")[1 if start else 0 : -1]
    return [parsed for line in lines if (parsed := parse_line(line)) is not None]


def to_float(value: Any) -> float:
    """Return a JSON value as a number; NaN for anything but a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value) if math.isfinite(value) else math.nan
    except OverflowError:
        return math.nan


@dataclass
class _Content:
    """What was read of a file, and the position of the next line."""

    inode: int = 0
    offset: int = 0
    mark: bytes = b""
    """Last bytes before `offset`; if they change, the file was rewritten."""
    num_skipped: int = 0
    further_lines: bool = False
    further_keys: bool = False
    axes: dict[str, array] = field(default_factory=lambda: {axis: array("d") for axis in AXES})
    values: dict[str, array] = field(default_factory=dict)
    """A column ends at the last line with its key."""

    @property
    def rows(self) -> int:
        return len(self.axes[AXES[0]])

    def add(self, line: bytes) -> None:
        """Add a line without its line end."""
        row = self.rows
        if row * (len(AXES) + len(self.values)) >= MAX_VALUES:
            self.further_lines = True
            return
        numbers = parse_line(line) if line.strip() else {}
        if not numbers:
            self.num_skipped += numbers is None
            return
        for axis in AXES:
            self.axes[axis].append(numbers.pop(axis))
        for key, value in numbers.items():
            column = self.values.get(key)
            if column is None and (column := self._new_column(key)) is None:
                continue
            if len(column) < row:
                column.extend([math.nan] * (row - len(column)))
            column.append(value)

    def _new_column(self, key: str) -> array | None:
        if len(self.values) == MAX_KEYS or len(key) > MAX_KEY_LENGTH or not key.isprintable():
            self.further_keys = True
            return None
        return self.values.setdefault(key, array("d"))


class MetricTable:
    """The metrics of one run. Thread-safe.

    `refresh` reads the lines appended since the last call; if the file was truncated or rewritten, as by a resumed
    run, it reads the whole file again. An incomplete last line is read once it is complete.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._generation = 0
        self._seen: Signature | None = None
        self._content = _Content()

    @property
    def version(self) -> tuple[int, int]:
        """Changes with the content."""
        return self._generation, self._content.offset

    @property
    def keys(self) -> list[str]:
        """Keys of all logged metrics, in order of appearance."""
        with self._lock:
            return list(self._content.values)

    @property
    def last_env_steps(self) -> float:
        """Largest logged number of environment steps; 0 without lines."""
        with self._lock:
            return max(self._content.axes["env_steps"], default=0.0)

    @property
    def num_bytes(self) -> int:
        """Size in memory."""
        with self._lock:
            columns = [*self._content.axes.values(), *self._content.values.values()]
            return sum(len(column) * column.itemsize for column in columns)

    @property
    def warnings(self) -> list[str]:
        """What is not shown, and why."""
        with self._lock:
            content, warnings = self._content, []
            if content.num_skipped:
                lines = "1 line was" if content.num_skipped == 1 else f"{content.num_skipped:,} lines were"
                warnings.append(f"{lines} skipped: corrupted, or not written by a run")
            if content.further_lines:
                warnings.append(f"only the first {content.rows:,} lines are shown")
            if content.further_keys:
                warnings.append(f"some metrics are not shown: more than {MAX_KEYS}, or unprintable names")
            return warnings

    def refresh(self) -> None:
        """Read new lines. Raises `UnreadableError`."""
        with self._lock:
            now = file_signature(self._path)
            if now == self._seen:
                return
            if now is None:
                self._start_over()
            else:
                try:
                    with open_regular_file(self._path) as file:
                        self._follow(file)
                except OSError as problem:
                    raise UnreadableError(f"{self._path.name} cannot be read ({problem.strerror})") from problem
            self._seen = now

    def curve(self, axis: str, key: str) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n"]]:
        """Return sorted positions on the axis and the values of a metric there; empty if it was never logged."""
        with self._lock:
            values = np.array(self._content.values.get(key, ()), np.float64)
            places = np.array(self._content.axes[axis][: len(values)], np.float64)
        known = ~np.isnan(values)
        places, values = places[known], values[known]
        if np.any(np.diff(places) < 0):
            order = np.argsort(places, kind="stable")
            places, values = places[order], values[order]
        return places, values

    def rows(self, keys: Sequence[str]) -> list[tuple[float, ...]]:
        """Return every line as the values of `AXES` and of each key, NaN for none."""
        with self._lock:
            count = self._content.rows
            columns: list[list[float]] = [list(self._content.axes[axis]) for axis in AXES]
            for key in keys:
                column = list(self._content.values.get(key, ()))
                columns.append(column + [math.nan] * (count - len(column)))
        return list(zip(*columns, strict=True))

    def _start_over(self) -> None:
        self._generation += 1
        self._content = _Content()

    def _follow(self, file: BinaryIO) -> None:
        state = os.fstat(file.fileno())
        content = self._content
        file.seek(content.offset - len(content.mark))
        if state.st_ino != content.inode or file.read(len(content.mark)) != content.mark:
            self._start_over()
            content = self._content
            content.inode = state.st_ino
        file.seek(content.offset)
        left = b""
        while chunk := file.read(READ_BYTES):
            *lines, left = (left + chunk).split(b"\n")
            for line in lines:
                content.add(line)
                content.offset += len(line) + 1
            if len(left) > READ_BYTES:  # no run writes such a line
                content.offset += len(left)
                content.num_skipped += 1
                left = b""
        file.seek(max(0, content.offset - MARK_BYTES))
        content.mark = file.read(content.offset - file.tell())


class MetricTableCache:
    """The most recently used tables, at most `max_bytes` of them. Thread-safe."""

    def __init__(self, max_bytes: int = 256 << 20) -> None:
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._tables: OrderedDict[Path, MetricTable] = OrderedDict()

    @property
    def num_bytes(self) -> int:
        """Size in memory."""
        return sum(table.num_bytes for table in list(self._tables.values()))

    def get(self, path: Path) -> MetricTable:
        """Return the up-to-date table of a metrics file. Raises `UnreadableError`."""
        with self._lock:
            table = self._tables.setdefault(path, MetricTable(path))
            self._tables.move_to_end(path)
        table.refresh()
        with self._lock:
            while len(self._tables) > 1 and self.num_bytes > self.max_bytes:
                self._tables.popitem(last=False)
        return table
