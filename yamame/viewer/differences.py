"""In what the configs of some runs differ."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from yamame.records.errors import UserError
from yamame.viewer.files import UnreadableError, printable

LONGEST_VALUE = 300
MOST_ROWS = 2000
_MISSING = "–"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A field that is not the same everywhere."""

    field: str
    values: list[str]
    """As JSON, one for each config; a dash where it has no such field."""


def diff_configs(configs: Sequence[Mapping[str, Any]]) -> tuple[list[Difference], int]:
    """Fields that differ, in the order of the configs, and how many do not. `UserError` for more than can be told."""
    leaves = [_leaves(config) for config in configs]
    fields = list(dict.fromkeys(field for of_config in leaves for field in of_config))
    if len(fields) > MOST_ROWS:
        raise UserError(f"these configs have {len(fields):,} fields: more than {MOST_ROWS:,} are not compared")
    rows = [Difference(field=field, values=[found.get(field, _MISSING) for found in leaves]) for field in fields]
    differing = [row for row in rows if len(set(row.values)) > 1]
    return differing, len(rows) - len(differing)


def _leaves(config: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    waiting: list[tuple[str, Any]] = [("", config)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict) and value:
            waiting += reversed([(f"{path}.{key}".lstrip("."), part) for key, part in value.items()])
        else:
            try:
                text = json.dumps(value)
            except RecursionError as problem:
                raise UnreadableError("a config is nested too deeply to compare it") from problem
            found[printable(path)] = text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"
    return found
