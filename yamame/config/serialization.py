"""Config dataclasses to and from JSON, type checks that name the field, overrides by path, and differences.

Names in `REMOVED_FIELDS` of a config class are ignored in files, which earlier versions may have written.

A field with the metadata `{"flatten": True}` has no part in the paths of flags, overrides and messages: those of
`RunConfig.algorithm` start with `agent` or `learner`.

A dataclass is stored with its class, `{"type": "package.module:Class", field: value, ...}`, a function as
`{"callable": "package.module:name"}`. `named_code` finds them again.
"""

import dataclasses
import json
import math
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from yamame.config.named_code import (
    MissingFunction,
    describe_function,
    import_name,
    load_function,
    load_named,
    require_importable,
    short,
)
from yamame.errors import ConfigFieldError, FieldPathError, UserError

C = TypeVar("C")

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


# ---- JSON ------------------------------------------------------------------------------------------------------------


def to_json(config: Any) -> dict[str, Any]:
    """Convert a config to plain JSON from which `from_json` makes an equal one.

    A function that cannot be imported by name (a lambda or a local function) is stored as null with an explanation.
    Raises `UserError` for a config class that cannot be imported by name, TypeError for values that JSON lacks.
    """
    return _to_tree(config, type(config).__name__, as_json=True)


def from_json(config_class: type[C], described: Mapping[str, Any], path: str = "config") -> C:
    """Build the config that `to_json` described: an instance of `config_class` or of a subclass.

    Missing fields take their defaults, functions that are not available become a `MissingFunction`. Raises
    `UserError` with the path of the field for unknown fields, wrong types and classes that are not allowed. `path` is
    that of the whole config.
    """
    return _coerce_field(described, config_class, path)


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


def _class_to_json(config_class: type[Any], path: str) -> str:
    name = import_name(config_class)
    if name is None:
        raise UserError(f"{path}: config class {config_class.__qualname__} is local: move it to the top of a module")
    return name


# ---- Types -----------------------------------------------------------------------------------------------------------


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
    raise TypeMismatchError(f"expected {describe_type(annotation)}, got {_shorten(value)}")


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


def _coerce_field(value: Any, annotation: Any, path: str) -> Any:
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
        fields[name] = _coerce_field(described[name], annotations[name], _join(path, name, config_class))
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


def _join(path: str, name: str, config_class: type[Any]) -> str:
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


# ---- Fields by path --------------------------------------------------------------------------------------------------


class Field(NamedTuple):
    """A field of a nested config, such as `env.horizon` or `losses.0.weight`."""

    path: str
    annotation: Any
    value: Any
    owner: Any
    """Class of the config that has the field."""


def iter_fields(config: Any, path: str = "") -> Iterator[Field]:
    """Iterate over the leaves of a nested config, in order of declaration."""
    owner = type(config)
    if is_config(config):
        parts = [(_join(path, name, owner), hint, getattr(config, name)) for name, hint in field_types(owner).items()]
    else:
        parts = [(f"{path}.{key}", type(part), part) for key, part in _items(config)]
    for joined, annotation, value in parts:
        if is_config(value) or any(_items(value)):
            yield from iter_fields(value, joined)
        else:
            yield Field(joined, annotation, value, owner)


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return the entries of a mapping, or index and member of a sequence of configs."""
    if isinstance(value, Mapping):
        return value.items()
    return list(enumerate(value)) if isinstance(value, tuple | list) and all(map(is_config, value)) else ()


def apply_overrides(config: C, overrides: Mapping[str, Any]) -> C:
    """Return `config` with other values: `{"env.horizon": 60, "agent": {"width": 64}, "losses.0.weight": 0.5}`.

    A nested mapping changes the fields that it names; any other value replaces the whole field. Values are coerced to
    the type of the field (list to tuple, int to float). Fields of one config are changed together.

    Raises:
        UserError: A field is unknown (the message names the nearest one) or a value does not fit.
    """
    tree = _to_tree(config)
    for name, value in overrides.items():
        _assign(tree, name, value, config)
    return _coerce_field(tree, type(config), "")


def _to_tree(value: Any, path: str = "", *, as_json: bool = False) -> Any:
    """Convert configs to mappings with their class under `type`, and tuples to lists."""
    if is_config(value):
        config_class = _class_to_json(type(value), path) if as_json else type(value)
        fields = {name: getattr(value, name) for name in field_types(type(value))}
        return {"type": config_class, **_to_tree(fields, path, as_json=as_json)}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _to_tree(part, f"{path}.{key}", as_json=as_json) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_to_tree(part, f"{path}.{index}", as_json=as_json) for index, part in enumerate(value)]
    return _leaf_to_json(value, path) if as_json else value


def _assign(tree: Any, path: str, value: Any, config: Any, prefix: str = "") -> None:
    """Change a value in the tree of `config`."""
    name, _, rest = path.replace("-", "_").partition(".")
    tree = _containing(tree, name)
    key: Any = int(name) if isinstance(tree, list) and name.isdecimal() else name
    known = range(len(tree)) if isinstance(tree, list) else tree if isinstance(tree, dict) else ()
    if key not in known or key == "type":
        guess = closest_field(prefix + path, config)
        hint = f"did you mean {guess!r}?" if guess else "see --help for all of them"
        raise UserError(f"no field {prefix + path!r}: {hint}")
    if rest:
        _assign(tree[key], rest, value, config, f"{prefix}{name}.")
    elif isinstance(value, Mapping) and isinstance(tree[key], dict) and "type" in tree[key]:
        for part in value:
            _assign(tree[key], part, value[part], config, f"{prefix}{name}.")
    else:
        tree[key] = _to_tree(value)


def _containing(tree: Any, name: str) -> Any:
    """Return the tree itself, or the flattened part of it that has the field."""
    if not isinstance(tree, dict) or name in tree or not isinstance(tree.get("type"), type):
        return tree
    flattened = (tree[key] for key in tree if key != "type" and is_flattened(tree["type"], key))
    return next((part for part in flattened if isinstance(part, dict) and name in part), tree)


def closest_field(name: str, config: Any, *others: str) -> str:
    """Return the field, or one of the other names, that `name` was meant to be. Empty if none is similar.

    `OTHER_NAMES` of the config's class has the names that other libraries give to its fields.
    """
    known = [field.path for field in iter_fields(config)]
    same = getattr(type(config), "OTHER_NAMES", {}).get(name)
    return same if same in (*known, *others) else closest_match(name, [*known, *others])


def closest_match(name: str, known: Iterable[str]) -> str:
    """Return the known dotted name most similar to `name`, its last part above all. Empty if none is similar.

    So are its initials and one of its words: `lr` to `learner.learning_rate`, `batch` to `replay.batch_size`.
    """
    last = name.rpartition(".")[2]

    def similarity(other: str) -> float:
        parts = zip(other.rpartition("."), name.rpartition("."), (0.3, 0.0, 0.7), strict=True)
        likeness = sum(weight * SequenceMatcher(None, one, two).ratio() for one, two, weight in parts)
        if "." not in name:  # without its section
            likeness = SequenceMatcher(None, other.rpartition(".")[2], name).ratio() * (0.95 if "." in other else 1.0)
        words = re.split("[-_]", other.rpartition(".")[2])
        abbreviated = len(words) > 1 and (last == "".join(word[:1] for word in words) or last in words)
        if other.startswith(f"{name}.") or (last == name and other.endswith(f".{name}")):
            return 1.0
        return max(likeness, 0.9 * abbreviated)

    return max((other for other in known if similarity(other) >= 0.7), key=similarity, default="")


# ---- Differences -----------------------------------------------------------------------------------------------------


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
    flat: dict[str, Any] = {type_path: _class_to_json(type(config), path)}
    for name in field_types(type(config)):
        value, joined = getattr(config, name), _join(path, name, type(config))
        if not is_config(value):
            flat[joined] = _to_tree(value, joined, as_json=True)
            continue
        part = flatten_config(value, joined)
        if is_flattened(type(config), name):
            flat[name] = part.pop(type_path)
        flat |= part
    return flat
