"""Type checks of config fields that name the field, and conversions that keep a value's meaning.

A field with the metadata `{"flatten": True}` has no part in the paths of flags, overrides and messages: those of
`RunConfig.algorithm` start with `agent` or `learner`. Names in `REMOVED_FIELDS` of a config class are ignored in files,
which earlier versions may have written.
"""

import dataclasses
import re
import types
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from types import NoneType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from yamame.config.named_code import load_function, load_named, require_importable, short
from yamame.errors import ConfigFieldError, FieldPathError

_SCALARS: Mapping[Any, Any] = {bool: bool, int: Integral, float: Real, str: str, Path: (str, Path)}
"""Type of a field -> what it is converted from."""


class TypeMismatchError(Exception):
    """A value does not fit a type."""


class Word(str):
    """A word of the command line, which `coerce` reads as a number, a boolean, None or a choice."""

    def read_as(self, kind: Any, choices: Sequence[Any]) -> Any:
        """Convert to a type where possible. Raises ValueError for a number that is malformed."""
        if kind in (int, float):
            return parse_int(self) if kind is int else float(self)
        known = {"True": True, "False": False, "None": None} if kind in (bool, NoneType) else {}
        return {**known, **{str(choice): choice for choice in choices}}.get(self, str(self))


def parse_int(text: str) -> int:
    """Return an integer, which may be written as a whole float: `100000`, `1e5`. Raises ValueError otherwise."""
    try:
        return int(text)
    except ValueError:
        number = float(text)
        if not number.is_integer():
            raise
        return int(number)


def coerce(value: Any, annotation: Any, path: str) -> Any:
    """Convert the value of the field at `path` where that keeps its meaning: list to tuple, int to float, str to Path.

    A float that is a whole number becomes an int. A mapping with the key `type` becomes a config of that class.

    Raises:
        TypeMismatchError: The value does not fit. True, "3" and 3.5 are not ints.
        FieldPathError: A field of a config inside the value does not fit.
    """
    # the value's own type first: an int stays one in float | int
    for option in sorted(union_options(annotation), key=lambda option: option is not type(value)):
        try:
            return _coerce_to(value, option, path)
        except (TypeMismatchError, ValueError, OverflowError):
            continue
    got = _shorten(value)
    excess = ", which has more than 64 bits" if len(got) > 18 and got.strip("-'").isdecimal() else ""
    raise TypeMismatchError(f"expected {describe_type(annotation)}, got {got}{excess}")


def _coerce_to(value: Any, annotation: Any, path: str) -> Any:
    kind, members = get_origin(annotation) or annotation, get_args(annotation)
    if isinstance(value, Word):
        value = value.read_as(kind, members if kind is Literal else ())
    if kind is Any and isinstance(value, list | tuple | dict):
        kind = dict if isinstance(value, dict) else tuple
    if kind in (tuple, list, Sequence) and isinstance(value, tuple | list):
        if kind is not tuple or not members or members[-1] is Ellipsis:
            members = (*members, Any)[:1] * len(value)
        pairs = enumerate(zip(value, members, strict=True))
        parts = [coerce(part, member, f"{path}.{index}") for index, (part, member) in pairs]
        return parts if kind is list else tuple(parts)
    if kind in (dict, Mapping) and isinstance(value, Mapping):
        return {coerce(key, str, path): coerce(part, (*members, Any, Any)[1], path) for key, part in value.items()}
    if isinstance(value, Mapping):
        value = _build(value, annotation, path) if "type" in value else load_function(value, path)
    if kind is float and value in ("inf", "-inf", "nan"):
        return float(value)
    if kind is int and isinstance(value, Real) and not isinstance(value, Integral) and float(value).is_integer():
        value = int(float(value))
    if kind is Any:
        fits = True
    elif kind is Literal:
        fits = any(type(value) is type(choice) and value == choice for choice in members)
    elif kind in _SCALARS:
        fits = isinstance(value, _SCALARS[kind]) and isinstance(value, bool) is (kind is bool)
        fits = fits and (kind is not int or -(2**63) <= value < 2**63)
    else:
        fits = callable(value) if _holds_function(annotation) else _is_of_class(type(value), kind)
    if not fits:
        raise TypeMismatchError
    return kind(value) if kind in _SCALARS else value


def coerce_field(value: Any, annotation: Any, path: str) -> Any:
    """Convert a value as `coerce` does. Raises `FieldPathError` where it does not fit."""
    try:
        return coerce(value, annotation, path)
    except TypeMismatchError as mismatch:
        raise FieldPathError(path, f": {mismatch}") from mismatch


def _build(described: Mapping[str, Any], annotation: Any, path: str) -> Any:
    """Build a config from a mapping with its class under `type`: a name in files, otherwise the class itself."""
    config_class = described["type"]
    if not isinstance(config_class, type):
        config_class = load_named(config_class, path)
        parameters = getattr(config_class, "__dataclass_params__", None)
        if not (isinstance(config_class, type) and parameters and parameters.frozen):
            raise FieldPathError(path, f": {described['type']} is not a config class (a frozen dataclass)")
    if not _is_of_class(config_class, annotation) and not _holds_function(annotation):
        raise TypeMismatchError
    annotations, fields = field_types(config_class), {}
    for name in [name for name in described if name != "type"]:
        if name in getattr(config_class, "REMOVED_FIELDS", ()):
            continue
        if name not in annotations:
            problem = f"{config_class.__name__} has no field {_shorten(name)}: was it written by another version?"
            raise FieldPathError(path, f": {problem}")
        fields[name] = coerce_field(described[name], annotations[name], join_path(path, name, config_class))
    try:
        config = config_class(**fields)
    except ConfigFieldError as error:
        raise FieldPathError(f"{path}.{error.field}".lstrip("."), f" {error.problem}") from error
    except (TypeError, ValueError, ArithmeticError) as error:
        raise FieldPathError(path, f": {error}") from error
    if isinstance(described["type"], str):
        require_importable(getattr(config, "imported_modules", ()), path)
    return config


def _is_of_class(candidate: type[Any], annotation: Any) -> bool:
    """Whether instances of `candidate` fit a field of class `annotation`. For a Protocol, compare its members."""
    if getattr(annotation, "_is_protocol", False):
        members = {name for name in (*vars(annotation), *annotation.__annotations__) if not name.startswith("_")}
        return annotation in candidate.__mro__ or all(hasattr(candidate, name) for name in members)
    return isinstance(annotation, type) and issubclass(candidate, annotation)


def _holds_function(annotation: Any) -> bool:
    return Callable in (annotation, get_origin(annotation))


def is_config(value: Any) -> bool:
    """Whether a value is a dataclass instance."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def field_types(config_class: Any) -> Mapping[str, Any]:
    """Name -> type of the fields that the constructor takes."""
    hints = _type_hints(config_class)
    return {field.name: hints[field.name] for field in dataclasses.fields(config_class) if field.init}


@cache
def _type_hints(config_class: Any) -> Mapping[str, Any]:
    return get_type_hints(config_class)


def is_flattened(config_class: Any, name: str) -> bool:
    """Whether the name of a field is left out of the paths of the fields below it."""
    return name in _flattened_fields(config_class)


@cache
def _flattened_fields(config_class: Any) -> frozenset[str]:
    return frozenset(field.name for field in dataclasses.fields(config_class) if field.metadata.get("flatten"))


def join_path(path: str, name: str, config_class: type[Any]) -> str:
    """Return the path of a field of the config at `path`. Flattened fields are left out."""
    return path if is_flattened(config_class, name) else f"{path}.{name}".lstrip(".")


def union_options(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union, None first. Any other type is its own only member."""
    options = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    return tuple(sorted(options, key=lambda option: option is not NoneType))


def describe_type(annotation: Any) -> str:
    """Return a type as messages show it: `int | None`, `tuple[float, ...]`, `one of 'a', 'b'`."""
    if get_origin(annotation) is Literal:
        return f"one of {', '.join(map(repr, get_args(annotation)))}"
    if any(map(_holds_function, union_options(annotation))):
        return "a function"
    return annotation.__name__ if isinstance(annotation, type) else re.sub(r"\w+\.|<|>", "", str(annotation))


def _shorten(value: Any) -> str:
    value = value.get("type", value) if isinstance(value, Mapping) else value
    return short(value.__name__ if isinstance(value, type) else repr(value))
