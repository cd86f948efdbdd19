"""Config dataclasses as JSON and back, exactly; reading one runs nothing but the constructors of config classes.

Every dataclass is stored with its class, `{"type": "package.module:Class", field: value, ...}`, and a function with its
name, `{"callable": "package.module:name"}`. Reading imports the modules that a file names, so it refuses Python's own,
and takes from them only a dataclass that the field's type allows, or a function that was defined there.
"""

import importlib
import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from yamame.errors import UserError
from yamame.typed_fields import MisfitError, conform, field_types, is_callable_type, is_config, is_of_class

C = TypeVar("C")

MOVED = {
    "yamame.nets.timestep.vector:VectorEncoderConfig": ("yamame.nets.timestep.encoder:TimestepEncoderConfig"),
}
"""What files of older versions call a class -> its name today."""


def to_json(config: Any) -> dict[str, Any]:
    """A config and all configs inside it as plain JSON, from which `from_json` makes an equal one.

    A function that no import would find (a lambda, a local function) is stored as null with an explanation, and comes
    back as a function that raises it. Fields of type Any hold what JSON knows, and sequences in them are tuples.
    Raises `UserError` for a config class that no import would find, TypeError for values that no file can hold.
    """
    return _dataclass_to_json(config, type(config).__name__)


def from_json(config_class: type[C], described: Mapping[str, Any]) -> C:
    """The config that `to_json` described; `config_class` itself or a subclass of it.

    Fields that the file lacks take their defaults; a function that cannot be found again raises `UserError` when it
    is called. Raises `UserError` for unknown fields, values of a wrong type and classes that the field does not take.
    """
    try:
        config: C = _from_json(described, config_class, "config")
    except MisfitError as misfit:
        raise UserError(f"config: {misfit}") from misfit
    return config


class _NotFoundError(UserError):
    """What a file names is not there to import."""


def _dataclass_to_json(config: Any, path: str) -> dict[str, Any]:
    name = _name_of(type(config))
    if name is None:
        raise UserError(f"{path}: config class {type(config).__qualname__} is local: define it at the top of a module")
    hints = field_types(type(config))
    return {"type": name} | {field: _to_json(getattr(config, field), f"{path}.{field}") for field in hints}


def _to_json(value: Any, path: str) -> Any:
    if is_config(value):
        return _dataclass_to_json(value, path)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list | tuple):
        return [_to_json(part, f"{path}.{index}") for index, part in enumerate(value)]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _to_json(part, f"{path}.{key}") for key, part in value.items()}
    if callable(value):
        return _callable_to_json(value)
    raise TypeError(f"{path}: {type(value).__name__} cannot be stored in a config file")


def _callable_to_json(function: Any) -> dict[str, Any]:
    name = _name_of(function)
    if name is not None:
        return {"callable": name}
    shown = getattr(function, "__qualname__", type(function).__name__)
    why = f"{shown} could not be stored with the run: define it at the top of a module"
    return {"callable": None, "name": shown, "why": why}


def _from_json(value: Any, annotation: Any, path: str) -> Any:
    """The reader of `conform`: what stands in a file for a function or for an instance of a config class."""
    if not isinstance(value, Mapping):
        return value
    if is_callable_type(annotation):
        return _function_from_json(value, path)
    name = value.get("type")
    config_class = _resolve(MOVED.get(name, name) if isinstance(name, str) else name, path)
    if not isinstance(config_class, type) or not hasattr(config_class, "__dataclass_fields__"):
        raise UserError(f"{path}: {value.get('type')} is not a config class")
    if not is_of_class(config_class, annotation):
        raise MisfitError(f"{path}: {value['type']} is not a {annotation.__name__}")
    return _build(config_class, {name: part for name, part in value.items() if name != "type"}, path)


def _build(config_class: type[Any], described: Mapping[str, Any], path: str) -> Any:
    hints = field_types(config_class)
    unknown = sorted(set(described) - set(hints))
    if unknown:
        raise UserError(
            f"{path}: {config_class.__name__} has no field {', '.join(map(repr, unknown))}: "
            "was it written by another version of the library?"
        )
    fields = {name: _field(part, hints[name], f"{path}.{name}") for name, part in described.items()}
    try:
        return config_class(**fields)
    except (TypeError, ValueError) as problem:
        raise UserError(f"{path}: {config_class.__name__} cannot be made: {problem}") from problem


def _field(value: Any, annotation: Any, path: str) -> Any:
    try:
        return conform(value, annotation, lambda part, option: _from_json(part, option, path))
    except MisfitError as misfit:
        raise UserError(f"{path}: {misfit}") from misfit


def _name_of(named: Any) -> str | None:
    """`module:qualname` if an import finds this very class or function under it."""
    module, name = getattr(named, "__module__", None), getattr(named, "__qualname__", None)
    if not module or not name or _attribute(sys.modules.get(module), name) is not named:
        return None
    return f"{module}:{name}"


def _function_from_json(described: Mapping[str, Any], path: str) -> Any:
    name = described.get("callable")
    if name is None:
        return _missing_function(str(described.get("name")), f"{path}: {described.get('why')}")
    try:
        found = _resolve(name, path)
    except _NotFoundError as problem:
        return _missing_function(name.rpartition(":")[2], str(problem))
    if not callable(found) or _name_of(found) != name:
        raise UserError(f"{path}: {name} is not a function or class defined in that module")
    return found


def _missing_function(name: str, why: str) -> Any:
    """Stands for a function that is not to be had: a run can be read without it, but not continued."""

    def missing(*_: Any, **__: Any) -> Any:
        raise UserError(why)

    missing.__name__ = missing.__qualname__ = name
    return missing


def _resolve(name: Any, path: str) -> Any:
    module, _, attribute = name.partition(":") if isinstance(name, str) else ("", "", "")
    if not attribute or not all(part.isidentifier() for part in (*module.split("."), *attribute.split("."))):
        raise UserError(f"{path}: {name!r} is not of the form module:Name")
    if module.split(".")[0] in {*sys.stdlib_module_names, "builtins"} - {"__main__"}:
        raise UserError(f"{path}: {name} is part of Python itself, which no config needs: the file has been altered")
    try:
        found = _attribute(importlib.import_module(module), attribute)
    except Exception as problem:  # whatever a user's own module may raise
        raise _NotFoundError(
            f"{path}: cannot import {name} ({problem}): put its folder on PYTHONPATH or install it"
        ) from problem
    if found is None:
        raise _NotFoundError(f"{path}: module {module} has no {attribute}: was it renamed?")
    return found


def _attribute(module: Any, qualified_name: str) -> Any:
    found = module
    for part in qualified_name.split("."):
        found = getattr(found, part, None)
    return found


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
