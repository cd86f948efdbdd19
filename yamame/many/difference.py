"""In what two configs differ, for people."""

import json

from yamame.run.config import RunConfig
from yamame.run.config_json import to_json


def settings_difference(found: RunConfig, wanted: RunConfig) -> str:
    """The first field that differs, with both values, such as `num_envs 4, not 8`; empty where none does."""
    one, other = (dict(_leaves(to_json(config))) for config in (found, wanted))
    for path in {**one, **other}:
        if one.get(path) != other.get(path):
            return f"{path} {json.dumps(one.get(path))}, not {json.dumps(other.get(path))}"
    return ""


def _leaves(described: object, path: str = "") -> list[tuple[str, object]]:
    if not isinstance(described, dict):
        return [(path, described)]
    return [leaf for name, part in described.items() for leaf in _leaves(part, f"{path}.{name}".lstrip("."))]
