"""In what two configs differ, for people."""

import json
from typing import Any

from yamame.run.config_json import to_json

Differences = dict[str, tuple[Any, Any]]
"""Path of a field -> its value here and there, as JSON has them; None where a config lacks the field."""


def settings_difference(found: Any, wanted: Any) -> str:
    """The first field that differs, with both values, such as `num_envs 4, not 8`; empty where none does."""
    for path, (one, other) in differences(found, wanted).items():
        return f"{path} {json.dumps(one)}, not {json.dumps(other)}"
    return ""


def differences(one: Any, other: Any) -> Differences:
    """All fields of two configs that differ."""
    here, there = settings_of(one), settings_of(other)
    pairs = {path: (here.get(path), there.get(path)) for path in {**here, **there}}
    return {path: pair for path, pair in pairs.items() if pair[0] != pair[1]}


def settings_of(config: Any) -> dict[str, Any]:
    """Path -> value of all fields of a config, as JSON has them; the classes of its parts are fields called `type`."""
    return dict(_leaves(to_json(config)))


def _leaves(described: object, path: str = "") -> list[tuple[str, object]]:
    if not isinstance(described, dict):
        return [(path, described)]
    return [leaf for name, part in described.items() for leaf in _leaves(part, f"{path}.{name}".lstrip("."))]
