"""Fields of a nested config as command-line flags, with one-line errors that name the nearest flag."""

import argparse
import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin

from yamame.config.coercion import Word, describe_type, union_options
from yamame.config.overrides import Field, apply_overrides, closest_field, closest_match, iter_fields
from yamame.errors import FieldPathError, UnknownFlagError, UserError

T = TypeVar("T")


def parse_flags(default: T, args: Sequence[str], prog: str) -> T:
    """Return `default` with the values of `--field.of.field value` flags.

    Fields of type int, float, bool, str, Path, Literal, and tuples and unions of these, are flags. A field annotated
    with a base class has the flags of the class that `default` holds. `-h` and `--help` print all flags and exit.

    Raises:
        UserError: A flag is unknown (the message names the nearest one), a value is missing or does not fit, or an
            argument belongs to no flag.
    """
    if "-h" in args or "--help" in args:
        print_flags(default, prog)
        raise SystemExit(0)
    flags = list_flags(default)
    values: dict[str, Any] = {}
    for flag, words in group_by_flag(args):
        if flag not in flags:
            name = flag.removeprefix("--")
            guess = to_flag(closest_field(name.replace("-", "_"), default))
            if guess not in flags:
                nearest = closest_match(name, [known.removeprefix("--") for known in flags])
                guess = to_flag(nearest) if nearest else ""
            raise UnknownFlagError(flag, guess) if flag else UserError(_unexpected(words[0]))
        values[flags[flag].path] = _value_of(flag, words, flags[flag])
    try:
        return apply_overrides(default, values)
    except FieldPathError as error:
        raise UserError(f"{to_flag(error.path) if error.path else prog}{error.problem}") from error


def list_flags(config: Any) -> dict[str, Field]:
    """Return flag -> field, as `--help` lists them. A boolean field has a second flag, `--no-field`."""
    flags: dict[str, Field] = {}
    for field in iter_fields(config):
        if _is_flag_type(field.annotation):
            flags[to_flag(field.path)] = field
        if field.annotation is bool:
            flags[_negated(field.path)] = field
    return flags


def to_flag(path: str) -> str:
    """Return the flag of a field: `--env.attempt-length` for `env.attempt_length`."""
    return "--" + path.replace("_", "-")


def group_by_flag(args: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return flags, each with the words after it. Words before the first flag are under the empty flag."""
    groups: list[tuple[str, list[str]]] = []
    for arg in args:
        name, equals, value = arg.partition("=")
        if arg.startswith("--"):
            groups.append((to_flag(name.removeprefix("--")), [value] if equals else []))
        elif groups:
            groups[-1][1].append(arg)
        else:
            groups.append(("", [arg]))
    return groups


def _value_of(flag: str, words: Sequence[str], field: Field) -> Any:
    if is_sequence_type(field.annotation):
        return [Word(word) for word in words]
    if field.annotation is bool:
        if words:
            off = _negated(field.path)
            raise UserError(f"unexpected {words[0]!r} after {flag}: a switch takes no value; {off} turns it off")
        return flag == to_flag(field.path)
    if not words:
        raise UserError(f"{flag}: expected {describe_type(field.annotation)}, got nothing")
    if len(words) > 1:
        raise UserError(_unexpected(words[1]))
    return Word(words[0])


def _unexpected(word: str) -> str:
    return f"unexpected {word!r}: flags start with --; --help lists them"


def _negated(path: str) -> str:
    section, dot, name = path.rpartition(".")
    return to_flag(f"{section}{dot}no-{name}")


def is_sequence_type(annotation: Any) -> bool:
    """Return whether the flag of a field takes several values."""
    return any(get_origin(option) in (tuple, list, Sequence) for option in union_options(annotation))


def _is_flag_type(annotation: Any) -> bool:
    return all(
        option in (int, float, bool, str, Path, NoneType, Any, Ellipsis)
        or get_origin(option) is Literal
        or (is_sequence_type(option) and all(map(_is_flag_type, get_args(option))))
        for option in union_options(annotation)
    )


def print_flags(default: Any, prog: str, only: Callable[[str], bool] = lambda path: True) -> None:
    """Print the flags of all fields, or of those whose path `only` selects: by config, with docstrings and defaults."""
    parser = argparse.ArgumentParser(prog=prog, add_help=False, usage=f"{prog} [--FLAG VALUE ...]")
    groups: dict[str, Any] = {}
    for field in {field.path: field for field in list_flags(default).values()}.values():  # a boolean has two flags
        if not only(field.path):
            continue
        section, _, name = field.path.rpartition(".")
        if section not in groups:
            about = inspect.getdoc(field.owner) or ""
            groups[section] = parser.add_argument_group(f"{section or 'run'} options", about.partition("\n\n")[0])
        flag, text = to_flag(field.path), " ".join(_field_docs(field.owner).get(name, "").split())
        text = f"{text} (default: {_shown(field.value)})".strip().replace("%", "%%")
        if field.annotation is bool:
            groups[section].add_argument(flag, _negated(field.path), action="store_true", help=text)
        else:
            groups[section].add_argument(flag, metavar=describe_type(field.annotation), help=text)
    parser.print_help()


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) or "none" if isinstance(value, tuple | list) else str(value)


@cache
def _field_docs(config_class: type[Any]) -> Mapping[str, str]:
    """Return field -> the string literal below it, those of base classes included."""
    docs: dict[str, str] = {}
    for base in reversed(config_class.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        except (OSError, TypeError, SyntaxError):  # a class without source, such as one made in a console
            continue
        assert isinstance(body, ast.ClassDef)
        for field, text in pairwise(body.body):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
                docs[field.target.id] = str(getattr(text.value, "value", ""))
    return docs
