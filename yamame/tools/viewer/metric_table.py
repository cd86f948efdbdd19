"""What a run measured, in memory: one array a metric, kept up to date by reading only what is new."""

import json
import math
import os
import threading
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
from jaxtyping import Float

from yamame.tools.viewer.safe_files import Signature, UnreadableError, file_signature, open_regular_file

AXES = ("env_steps", "updates", "wall_seconds")
"""What every line counts."""
MAX_LINE = 1 << 20
"""Bytes; a longer line is passed over."""
TAIL_BYTES = 16 << 10


def parse_line(line: bytes) -> dict[str, float] | None:
    """The numbers of a line by key; null, NaN and infinity are NaN. None for a line that is not one of a run's.

    What is no number is left out.
    """
    if len(line) > MAX_LINE:
        return None
    try:
        parsed = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(parsed, dict):
        return None
    numbers: dict[str, float] = {}
    for key, value in parsed.items():  # a few hundred thousand lines may be read at once
        if type(value) is float:
            numbers[key] = value if value - value == 0.0 else math.nan
        elif type(value) is int or value is None:
            numbers[key] = _number(value)
    return numbers if all(math.isfinite(numbers.get(axis, math.nan)) for axis in AXES) else None


def read_tail(path: Path) -> list[dict[str, float]]:
    """The last whole lines of a metrics file, oldest first; empty where there are none or no file.

    Looks at `TAIL_BYTES` alone, so that it takes as long for a large file as for a small one. Raises `UnreadableError`.
    """
    try:
        with open_regular_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            begin = max(0, size - TAIL_BYTES)
            file.seek(begin)
            content = file.read(TAIL_BYTES)
    except OSError:
        return []
    lines = content.split(b"\n")[1 if begin else 0 : -1]
    return [parsed for line in lines if (parsed := parse_line(line)) is not None]


def _number(value: int | None) -> float:
    try:
        return math.nan if value is None else float(value)
    except OverflowError:
        return math.nan


MAX_NUMBERS = 8_000_000
"""Of one run in memory; where a file holds more, every second, fourth, ... line is kept."""
MAX_KEYS = 500
MAX_KEY = 200
READ_BYTES = 4 << 20
MARK_BYTES = 64


@dataclass
class _Content:
    """What was read of a file so far, and where reading goes on."""

    inode: int = 0
    offset: int = 0
    mark: bytes = b""
    """The last bytes before `offset`: where they are others now, the file is another one."""
    taken: int = 0
    stride: int = 1
    unread: int = 0
    further_keys: bool = False
    axes: dict[str, array] = field(default_factory=lambda: {axis: array("d") for axis in AXES})
    values: dict[str, array] = field(default_factory=dict)
    """A column is as long as the last line that has its key."""

    @property
    def rows(self) -> int:
        return len(self.axes[AXES[0]])

    def take(self, line: bytes) -> None:
        """One line, without its end."""
        numbers = parse_line(line) if line.strip() else {}
        if not numbers:
            self.unread += numbers is None
            return
        self.taken += 1
        if (self.taken - 1) % self.stride:
            return
        row = self.rows
        for axis in AXES:
            self.axes[axis].append(numbers.pop(axis))
        for key, value in numbers.items():
            column = self.values.get(key)
            if column is None and (column := self._new_column(key)) is None:
                continue
            if len(column) < row:
                column.extend([math.nan] * (row - len(column)))
            column.append(value)
        if (row + 1) * (len(AXES) + len(self.values)) >= MAX_NUMBERS:
            self._thin()

    def _new_column(self, key: str) -> array | None:
        if len(self.values) == MAX_KEYS or len(key) > MAX_KEY or not key.isprintable():
            self.further_keys = True
            return None
        return self.values.setdefault(key, array("d"))

    def _thin(self) -> None:
        self.stride *= 2
        self.axes = {key: column[::2] for key, column in self.axes.items()}
        self.values = {key: column[::2] for key, column in self.values.items()}


class MetricTable:
    """The metrics of one run. Safe to use from several threads.

    `refresh` reads what was appended since the last time; where the file was cut or written anew, as by a resumed
    run, it begins again. Half a line at the end is left until it is whole.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._generation = 0
        self._seen: Signature | None = None
        self._content = _Content()

    @property
    def version(self) -> tuple[int, int]:
        """Another one whenever there is something else to see."""
        return self._generation, self._content.offset

    @property
    def keys(self) -> list[str]:
        """All metrics that were ever logged, in the order in which they came."""
        with self._lock:
            return list(self._content.values)

    @property
    def nbytes(self) -> int:
        """Of memory."""
        with self._lock:
            columns = [*self._content.axes.values(), *self._content.values.values()]
            return sum(len(column) * column.itemsize for column in columns)

    @property
    def warnings(self) -> list[str]:
        """What of the file is not shown, and why."""
        with self._lock:
            content, warnings = self._content, []
            if content.unread:
                lines = "1 line was" if content.unread == 1 else f"{content.unread:,} lines were"
                warnings.append(f"{lines} passed over: damaged, or not a run's")
            if content.stride > 1:
                warnings.append(f"of very many lines, one in {content.stride} is shown")
            if content.further_keys:
                warnings.append(f"some metrics are not shown: more than {MAX_KEYS}, or no names to print")
            return warnings

    def refresh(self) -> None:
        """Read what is new. Raises `UnreadableError` where the file is none that can be read."""
        with self._lock:
            now = file_signature(self._path)
            if now == self._seen:
                return
            if now is None:
                self._begin_again()
            else:
                try:
                    with open_regular_file(self._path) as file:
                        self._follow(file)
                except OSError as problem:
                    raise UnreadableError(f"{self._path.name} cannot be read ({problem.strerror})") from problem
            self._seen = now

    def curve(self, axis: str, key: str) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n"]]:
        """Where on the axis a metric was measured, in order, and what it was there; empty where it never was."""
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
        """Every line as (the three of `AXES`, then a value for each key; NaN where there was none)."""
        with self._lock:
            count = self._content.rows
            columns: list[list[float]] = [list(self._content.axes[axis]) for axis in AXES]
            for key in keys:
                column = list(self._content.values.get(key, ()))
                columns.append(column + [math.nan] * (count - len(column)))
        return list(zip(*columns, strict=True))

    def _begin_again(self) -> None:
        self._generation += 1
        self._content = _Content()

    def _follow(self, file: BinaryIO) -> None:
        state = os.fstat(file.fileno())
        content = self._content
        file.seek(content.offset - len(content.mark))
        if state.st_ino != content.inode or file.read(len(content.mark)) != content.mark:
            self._begin_again()
            content = self._content
            content.inode = state.st_ino
        file.seek(content.offset)
        left = b""
        while chunk := file.read(READ_BYTES):
            *lines, left = (left + chunk).split(b"\n")
            for line in lines:
                content.take(line)
                content.offset += len(line) + 1
            if len(left) > READ_BYTES:  # no end of it in sight: nothing that a run writes
                content.offset += len(left)
                content.unread += 1
                left = b""
        file.seek(max(0, content.offset - MARK_BYTES))
        content.mark = file.read(content.offset - file.tell())


class MetricTableCache:
    """The columns of the runs that were looked at last, as many as fit into `max_bytes`. Safe to use from threads."""

    def __init__(self, max_bytes: int = 256 << 20) -> None:
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._columns: OrderedDict[Path, MetricTable] = OrderedDict()

    @property
    def nbytes(self) -> int:
        """Of memory."""
        with self._lock:
            return sum(columns.nbytes for columns in self._columns.values())

    def of(self, path: Path) -> MetricTable:
        """Of a metrics file, up to date. Raises `UnreadableError`."""
        with self._lock:
            columns = self._columns.setdefault(path, MetricTable(path))
            self._columns.move_to_end(path)
        columns.refresh()
        with self._lock:
            sizes = {path: columns.nbytes for path, columns in self._columns.items()}
            total = sum(sizes.values())
            for old in list(self._columns)[:-1]:
                if total <= self.max_bytes:
                    break
                total -= sizes[old]
                del self._columns[old]
        return columns
