"""The fields of nested config dataclasses, their types, and whether a value fits a type.

What config files, flags and overrides from Python have in common.
"""

import dataclasses
import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

NON_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
"""How JSON, which has no such numbers, spells them here."""


class Field(NamedTuple):
    """One thing that can be set: `env.horizon`, `losses.0.weight`."""

    path: str
    annotation: Any
    value: Any


class MisfitError(Exception):
    """A value does not fit a type; the message ends a sentence that begins with the field's name."""


def leaves(config: Any, path: str = "") -> Iterator[Field]:
    """Every field below `config` that holds no further config, in order of declaration."""
    for child in children(config, path):
        if children(child.value, child.path):
            yield from leaves(child.value, child.path)
        else:
            yield child


def children(value: Any, path: str = "") -> list[Field]:
    """The fields of a dataclass, or the members of a sequence of dataclasses; nothing for other values."""
    prefix = f"{path}." if path else ""
    if is_config(value):
        hints = field_types(type(value))
        return [Field(prefix + name, hint, getattr(value, name)) for name, hint in hints.items()]
    if isinstance(value, tuple | list) and value and all(is_config(part) for part in value):
        return [Field(f"{prefix}{index}", type(part), part) for index, part in enumerate(value)]
    return []


def is_config(value: Any) -> bool:
    """Whether a value is a dataclass instance."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def field_types(config_class: type[Any]) -> dict[str, Any]:
    """Name -> type of the fields that the constructor takes."""
    hints = get_type_hints(config_class)
    return {field.name: hints[field.name] for field in dataclasses.fields(config_class) if field.init}


def is_callable_type(annotation: Any) -> bool:
    """Whether a field of this type holds a function (or perhaps None)."""
    return any(Callable in (option, get_origin(option)) for option in options(annotation))


def is_text_type(annotation: Any) -> bool:
    """Whether a value of this type can be written on a command line: numbers, texts, choices, and lists of them."""

    def one(option: Any) -> bool:
        if get_origin(option) in (tuple, list, Sequence):
            return all(member is Ellipsis or is_text_type(member) for member in get_args(option))
        return get_origin(option) is Literal or option in (int, float, bool, str, Path, type(None), Any)

    return all(map(one, options(annotation)))


def options(annotation: Any) -> tuple[Any, ...]:
    """The members of a union; a type that is none is its own only member."""
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


Reader = Callable[[Any, Any], Any]
"""(value, type) -> value: how a file spells functions and instances of classes. Raises `MisfitError`."""


def conform(value: Any, annotation: Any, read: Reader = lambda value, annotation: value) -> Any:
    """`value` as a field of this type holds it: a list becomes a tuple, an int a float, a string a Path where needed.

    Raises `MisfitError` where no such reading keeps the meaning: True, "3" and 3.5 are no ints.
    """
    for option in options(annotation):  # what already has one of the types stays as it is
        if type(value) is option and option not in (list, tuple, dict):
            return value
    for option in options(annotation):
        try:
            return _conform_to(value, option, read)
        except MisfitError:
            continue
    raise MisfitError(f"{_short(value)} is not {describe(annotation)}")


def describe(annotation: Any) -> str:
    """A type in words: "an int", "one of 'a', 'b'", "a list of numbers"."""
    parts = options(annotation)
    if len(parts) > 1:
        return " or ".join(describe(part) for part in parts)
    if get_origin(annotation) is Literal:
        choices = get_args(annotation)
        return f"one of {', '.join(map(repr, choices))}" if len(choices) > 1 else repr(choices[0])
    if get_origin(annotation) is tuple and (members := get_args(annotation)):
        if len(members) == 2 and members[1] is Ellipsis:
            return f"a list of {_plural(members[0])}"
        return f"a list of {len(members)} values ({', '.join(describe(member) for member in members)})"
    if is_callable_type(annotation):
        return "a function"
    origin = get_origin(annotation) or annotation
    return _WORDS.get(origin) or f"a {getattr(origin, '__name__', origin)}"


def is_of_class(candidate: type[Any], annotation: type[Any]) -> bool:
    """Whether instances of `candidate` may stand in a field of class `annotation`; a Protocol asks for its members."""
    if getattr(annotation, "_is_protocol", False):
        wanted = {name for name in (*vars(annotation), *annotation.__annotations__) if not name.startswith("_")}
        return annotation in candidate.__mro__ or all(hasattr(candidate, name) for name in wanted)
    return issubclass(candidate, annotation)


_WORDS: dict[Any, str] = {
    int: "an int",
    float: "a number",
    bool: "True or False",
    str: "a text",
    Path: "a path",
    type(None): "None",
    list: "a list",
    tuple: "a list",
    Sequence: "a list",
    dict: "a mapping",
    Mapping: "a mapping",
}


def _plural(annotation: Any) -> str:
    words = {int: "ints", float: "numbers", str: "texts", bool: "True or False", Path: "paths"}
    return words.get(annotation, "values")


def _conform_to(value: Any, annotation: Any, read: Reader) -> Any:
    origin = get_origin(annotation) or annotation
    if annotation is Any:
        return _frozen(value)
    if annotation in (None, type(None)):
        return _checked(value, value is None)
    if origin is Literal:
        return _checked(value, any(type(value) is type(choice) and value == choice for choice in get_args(annotation)))
    if origin in (tuple, list, Sequence):
        return _sequence(value, origin, get_args(annotation), read)
    if origin in (dict, Mapping):
        return _mapping(value, get_args(annotation), read)
    if annotation in (int, float, bool, str, Path):
        return _scalar(value, annotation)
    if is_callable_type(annotation):
        value = read(value, annotation)
        return _checked(value, callable(value))
    if not isinstance(annotation, type):
        raise MisfitError
    value = read(value, annotation)
    return _checked(value, is_of_class(type(value), annotation))


def _scalar(value: Any, annotation: Any) -> Any:
    if isinstance(value, bool) or annotation is bool:
        return _checked(value, isinstance(value, bool) and annotation is bool)
    if annotation is int:
        return int(_checked(value, isinstance(value, Integral)))
    if annotation is float:
        value = NON_FINITE.get(value, value) if isinstance(value, str) else value
        return float(_checked(value, isinstance(value, Real)))
    return annotation(_checked(value, isinstance(value, str | annotation)))


def _checked(value: Any, fits: bool) -> Any:
    if not fits:
        raise MisfitError
    return value


def _sequence(value: Any, origin: Any, members: tuple[Any, ...], read: Reader) -> Any:
    if not isinstance(value, tuple | list):
        raise MisfitError
    if origin is tuple and members and members[-1] is not Ellipsis:
        return tuple(conform(part, member, read) for part, member in _pairs(value, members))
    member = members[0] if members else Any
    parts = [conform(part, member, read) for part in value]
    return parts if origin is list else tuple(parts)


def _pairs(value: Sequence[Any], members: tuple[Any, ...]) -> list[tuple[Any, Any]]:
    if len(value) != len(members):
        raise MisfitError
    return list(zip(value, members, strict=True))


def _mapping(value: Any, members: tuple[Any, ...], read: Reader) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise MisfitError
    return {conform(key, str): conform(part, members[1] if members else Any, read) for key, part in value.items()}


def _frozen(value: Any) -> Any:
    """In fields without a type, sequences are tuples: configs do not change."""
    if isinstance(value, list | tuple):
        return tuple(_frozen(part) for part in value)
    return {key: _frozen(part) for key, part in value.items()} if isinstance(value, dict) else value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
