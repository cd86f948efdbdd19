"""The lines of a `metrics.jsonl`, whatever stands in them."""

import json
import math
import os
from pathlib import Path

from yamame.viewer.files import open_regular_file

AXES = ("env_steps", "updates", "wall_seconds")
"""What every line counts."""
LONGEST_LINE = 1 << 20
"""Bytes; a longer line is passed over."""
TAIL_BYTES = 16 << 10


def parse_line(line: bytes) -> dict[str, float] | None:
    """The numbers of a line by key; null, NaN and infinity are NaN. None for a line that is not one of a run's.

    What is no number is left out.
    """
    if len(line) > LONGEST_LINE:
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
