"""Config dataclasses to and from JSON.

A dataclass is stored with its class, `{"type": "package.module:Class", field: value, ...}`, a function as
`{"callable": "package.module:name"}`. `named_code` finds them again.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from yamame.config.coercion import coerce_field, field_types, is_config
from yamame.config.named_code import MissingFunction, describe_function, import_name
from yamame.errors import UserError

C = TypeVar("C")


def to_json(config: Any) -> dict[str, Any]:
    """Convert a config to plain JSON from which `from_json` makes an equal one.

    A function that cannot be imported by name (a lambda or a local function) is stored as null with an explanation.
    Raises `UserError` for a config class that cannot be imported by name, TypeError for values that JSON lacks.
    """
    return to_tree(config, type(config).__name__, as_json=True)


def from_json(config_class: type[C], described: Mapping[str, Any], path: str = "config") -> C:
    """Build the config that `to_json` described: an instance of `config_class` or of a subclass.

    Missing fields take their defaults, functions that are not available become a `MissingFunction`. Raises
    `UserError` with the path of the field for unknown fields, wrong types and classes that are not allowed. `path` is
    that of the whole config.
    """
    return coerce_field(described, config_class, path)


def parse_json(text: str) -> Any:
    """Parse JSON as `json.loads` does. Raises ValueError also where an object has a key twice."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("an object has a key twice")
        return dict(pairs)

    return json.loads(text, object_pairs_hook=unique)


def _leaf_to_json(value: Any, path: str) -> Any:
    if isinstance(value, Path) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, MissingFunction):
        return value.described
    if not callable(value):
        raise TypeError(f"{path}: {type(value).__name__} cannot be stored in a config file")
    name, shown = import_name(value), describe_function(value)
    why = (
        f"{shown} was not stored with the run: pass --env module:function (in Python: env_fn= or eval_env_fn=), or "
        "define it at the top of a module before training"
    )
    return {"callable": name} if name else {"callable": None, "name": shown, "why": why}


def class_name(config_class: type[Any], path: str) -> str:
    """Return `module:Class`. Raises `UserError` for a class that cannot be imported by this name."""
    name = import_name(config_class)
    if name is None:
        raise UserError(f"{path}: config class {config_class.__qualname__} is local: move it to the top of a module")
    return name


def to_tree(value: Any, path: str = "", *, as_json: bool = False) -> Any:
    """Convert configs to mappings with their class under `type`, and tuples to lists."""
    if is_config(value):
        config_class = class_name(type(value), path) if as_json else type(value)
        fields = {name: getattr(value, name) for name in field_types(type(value))}
        return {"type": config_class, **to_tree(fields, path, as_json=as_json)}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: to_tree(part, f"{path}.{key}", as_json=as_json) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [to_tree(part, f"{path}.{index}", as_json=as_json) for index, part in enumerate(value)]
    return _leaf_to_json(value, path) if as_json else value
