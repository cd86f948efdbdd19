"""Fields in which two configs differ."""

import dataclasses
import json
from typing import Any

from yamame.config.coercion import field_types, is_config, is_flattened, join_path
from yamame.config.serialization import class_name, to_tree


def first_difference(found: Any, expected: Any) -> str:
    """Return the first field that differs, with both values, such as `num_envs 4, not 8`. Empty if none differs."""
    for path, (one, other) in diff_configs(found, expected).items():
        return f"{path} {json.dumps(one)}, not {json.dumps(other)}"
    return ""


def diff_configs(one: Any, other: Any) -> dict[str, tuple[Any, Any]]:
    """Return path -> both values, in JSON form, of all fields that differ. None where a config lacks the field."""
    first, second = flatten_config(one), flatten_config(other)
    pairs = {path: (first.get(path), second.get(path)) for path in {**first, **second}}
    return {path: pair for path, pair in pairs.items() if pair[0] != pair[1]}


def flatten_config(config: Any, path: str = "") -> dict[str, Any]:
    """Return path -> value in JSON form for all fields. The class of a nested config is a field called `type`.

    That of a flattened config has the name of its field.
    """
    type_path = f"{path}.type".lstrip(".")
    flat: dict[str, Any] = {type_path: class_name(type(config), path)}
    for name in field_types(type(config)):
        value, joined = getattr(config, name), join_path(path, name, type(config))
        if not is_config(value):
            flat[joined] = to_tree(value, joined, as_json=True)
            continue
        part = flatten_config(value, joined)
        if is_flattened(type(config), name):
            flat[name] = part.pop(type_path)
        flat |= part
    return flat


def fields_at_default(config: Any, path: str = "") -> set[str]:
    """Return the paths, as those of `flatten_config`, of the fields whose value is the default of their class."""
    paths = set()
    for field in dataclasses.fields(config):
        value, joined = getattr(config, field.name), join_path(path, field.name, type(config))
        factory = field.default_factory
        if value != (field.default if factory is dataclasses.MISSING else factory()):
            paths |= fields_at_default(value, joined) if is_config(value) else set()
        elif is_config(value):
            paths |= set(flatten_config(value, joined))
            paths.add(field.name if is_flattened(type(config), field.name) else joined)
        else:
            paths.add(joined)
    return paths
