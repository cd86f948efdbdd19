"""The lines of a `metrics.jsonl`, whatever stands in them."""

import json
import math
import os
from pathlib import Path
from typing import Any

from yamame.viewer.files import open_regular, printable

AXES = ("env_steps", "updates", "wall_seconds")
"""What every line counts."""
LONGEST_LINE = 1 << 20
"""Bytes; a longer line is passed over."""
LONGEST_KEY = 200
TAIL_BYTES = 16 << 10


def parse_line(line: bytes) -> dict[str, float] | None:
    """The numbers of a line by key; null, NaN and infinity are NaN. None for a line that is not one of a run's.

    What is no number is left out, as are keys longer than `LONGEST_KEY`.
    """
    if len(line) > LONGEST_LINE:
        return None
    try:
        parsed = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(parsed, dict):
        return None
    numbers = {key: number for key, value in parsed.items() if (number := _number(value)) is not None}
    if any(not math.isfinite(numbers.get(axis, math.nan)) for axis in AXES):
        return None
    sound = all(len(key) <= LONGEST_KEY and key.isprintable() for key in numbers)
    return numbers if sound else _with_sound_keys(numbers)


def read_tail(path: Path) -> list[dict[str, float]]:
    """The last whole lines of a metrics file, oldest first; empty where there are none or no file.

    Looks at `TAIL_BYTES` alone, so that it takes as long for a large file as for a small one. Raises `UnreadableError`.
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            begin = max(0, size - TAIL_BYTES)
            file.seek(begin)
            content = file.read(TAIL_BYTES)
    except OSError:
        return []
    lines = content.split(b"\n")[1 if begin else 0 : -1]
    return [parsed for line in lines if (parsed := parse_line(line)) is not None]


def _number(value: Any) -> float | None:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else math.nan
    except OverflowError:
        return math.nan


def _with_sound_keys(numbers: dict[str, float]) -> dict[str, float]:
    return {printable(key): value for key, value in numbers.items() if len(key) <= LONGEST_KEY}
