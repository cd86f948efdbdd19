"""Config fields from the command line (through tyro) and from Python; one-line errors that name the nearest field."""

import contextlib
import dataclasses
import difflib
import io
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from yamame.errors import ConfigFieldError, UserError
from yamame.typed_fields import Field, MisfitError, children, conform, describe, is_config, is_text_type, leaves

T = TypeVar("T")


def parse_flags(default: T, args: list[str], prog: str) -> T:
    """`default` with what `--field.of.field value` flags say; every field that holds no function is a typed flag.

    A field that is annotated with a base class offers the flags of the class that `default` holds. `-h` and `--help`
    print all flags on stdout and exit with 0. Raises `UserError` for an unknown flag (naming the nearest), for a bad
    or missing value and for stray arguments.
    """
    import tyro

    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(
                type(default),
                default=default,
                args=args,
                prog=prog,
                config=(tyro.conf.AvoidSubcommands, tyro.conf.SuppressFixed),
            )
    except ConfigFieldError as error:
        raise UserError(f"{_flag_of(error, default, args)} {error.problem}") from error
    except SystemExit as exit_:
        if not exit_.code:
            raise
    raise UserError(_one_line(_first_paragraph(complaint.getvalue()), args, flags_of(default)))


def flags_of(config: Any) -> dict[str, Field]:
    """Flag -> field, as `--help` lists them; a field that is on or off has a second flag, `--no-field`."""
    flags: dict[str, Field] = {}
    for field in leaves(config):
        if isinstance(field.value, Mapping):
            parts = [Field(f"{field.path}.{key}", type(part), part) for key, part in field.value.items()]
            flags |= {_flag(part.path): part for part in parts}
        elif is_text_type(field.annotation):
            flags[_flag(field.path)] = field
        if field.annotation is bool:
            *parents, name = field.path.split(".")
            flags[_flag(".".join([*parents, f"no-{name}"]))] = field
    return flags


def apply_overrides(config: T, overrides: Mapping[str, Any]) -> T:
    """`config` with other values: `{"env.horizon": 60, "agent": {"width": 64}, "losses.0.weight": 0.5}`.

    A nested mapping changes the fields that it names; a config object replaces the whole. Values are taken as the
    field's type has them (a list for a tuple, an int for a float), those of one section together. Raises `UserError`
    for an unknown field (naming the nearest) and for a value of another type.
    """
    return _override(config, _changes(overrides), "", config)


def nearest(name: str, known: Sequence[str]) -> str | None:
    """The known dotted name that looks most like this one, if any does; a missing or wrong section weighs little."""

    def likeness(other: str) -> float:
        if other.startswith(f"{name}."):
            return 1.0
        (section, _, end), (other_section, _, other_end) = (
            whole.lstrip("-").rpartition(".") for whole in (name, other)
        )
        return 0.7 * _ratio(end, other_end) + 0.3 * _ratio(section, other_section)

    best = max(known, key=likeness, default=None)
    return best if best is not None and likeness(best) >= 0.6 else None


def _ratio(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()


_Change = tuple[Sequence[str], Any]
"""The path to a field, and its new value."""


def _changes(overrides: Mapping[str, Any]) -> list[_Change]:
    return [(name.replace("-", "_").split("."), value) for name, value in overrides.items()]


def _override(config: Any, changes: Sequence[_Change], above: str, root: Any) -> Any:
    """`config` with all changes at once: fields of one class may fit together only when all of them are new."""
    fields = {field.path: field for field in children(config)}
    by_name: dict[str, list[_Change]] = {}
    for path, value in changes:
        if path[0] not in fields:
            raise UserError(_unknown_field(above + ".".join(path), root))
        by_name.setdefault(path[0], []).append((path[1:], value))
    new = {name: _changed(fields[name], of_field, above, root) for name, of_field in by_name.items()}
    return _replaced(config, new, above) if new else config


def _changed(field: Field, changes: Sequence[_Change], above: str, root: Any) -> Any:
    """The new value of one field; a value for the whole of it makes up for what stood before."""
    full, value = above + field.path, field.value
    deeper: list[_Change] = []
    for path, part in changes:
        if path:
            deeper.append((path, part))
        elif isinstance(part, Mapping) and children(value):
            deeper += _changes(part)
        else:
            try:
                value, deeper = conform(part, field.annotation), []
            except MisfitError as misfit:
                raise UserError(f"{full}: {misfit}") from misfit
    return _override(value, deeper, f"{full}.", root) if deeper else value


def _replaced(config: Any, new: Mapping[str, Any], above: str) -> Any:
    if not is_config(config):
        return type(config)(new.get(str(index), part) for index, part in enumerate(config))
    try:
        return dataclasses.replace(config, **new)
    except ConfigFieldError as error:
        raise UserError(f"{above}{error}") from error
    except (TypeError, ValueError) as problem:
        named = above + next(iter(new)) if len(new) == 1 else above.rstrip(".")
        raise UserError(f"{named}: {problem}") from problem


def _unknown_field(path: str, root: Any) -> str:
    guess = nearest(path, [field.path for field in leaves(root)])
    return f"no field {path!r}: " + (f"did you mean {guess!r}?" if guess else "see --help for all of them")


def _flag_of(error: ConfigFieldError, config: Any, args: Sequence[str]) -> str:
    """The flag of the field that holds what it may not: one that was given, if several could be meant."""
    flags = [_flag(path) for path in _paths_of(error, config)]
    given = {_flag(arg[2:].partition("=")[0]) for arg in args if arg.startswith("--")}
    return next((flag for flag in flags if flag in given), flags[0] if flags else error.field)


def _paths_of(error: ConfigFieldError, config: Any, path: str = "") -> Iterator[str]:
    if type(config) is error.config_class:
        yield f"{path}{error.field}"
    for child in children(config):
        yield from _paths_of(error, child.value, f"{path}{child.path}.")


def _flag(path: str) -> str:
    return "--" + path.replace("_", "-")


def _first_paragraph(complaint: str) -> str:
    """The text of tyro's box between its title and its first rule, on one line; boxes may be drawn in ASCII."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", complaint)
    lines = [line.strip(" │") for line in plain.splitlines() if line.strip(" │")]
    body = itertools.dropwhile(_is_rule, lines[1:])
    return " ".join(itertools.takewhile(lambda line: not _is_rule(line), body))


def _is_rule(line: str) -> bool:
    return not line.strip("─-╰╯")


def _one_line(complaint: str, args: Sequence[str], flags: Mapping[str, Field]) -> str:
    for given in (_flag(arg[2:].partition("=")[0]) for arg in args if arg.startswith("--")):
        if given not in flags:
            guess = nearest(given, list(flags))
            return f"unknown flag {given}: " + (f"did you mean {guess}?" if guess else "--help lists all of them")
    if complaint.startswith("Unrecognized"):
        return _stray(complaint.partition(":")[2].split(",")[0].strip(), args, flags)
    named = re.search(r"--[\w.-]*\w", complaint)
    if named and named[0] in flags:
        wanted = describe(flags[named[0]].annotation)
        values = _values_of(named[0], args)
        if not values:
            return f"{named[0]}: the value is missing: give {wanted}"
        with_spaces = " ".join(values.strip("[()]").replace(",", " ").split())
        hint = f": write {named[0]} {with_spaces}" if "," in values and wanted.startswith("a list") else ""
        return f"{named[0]}: {values!r} is not {wanted}{hint}"
    return complaint.removeprefix("Error parsing ") or "the flags cannot be read: --help lists all of them"


def _stray(value: str, args: Sequence[str], flags: Mapping[str, Field]) -> str:
    for before, arg in itertools.pairwise(args):
        field = flags.get(_flag(before[2:]))
        if arg == value and field and field.annotation is bool:
            section, dot, name = before[2:].rpartition(".")
            off = f"--{section}{dot}no-{name}"
            return f"unexpected {value!r} after {before}: a switch takes no value; {off} turns it off"
    return f"unexpected {value!r}: flags begin with --; --help lists them"


def _values_of(flag: str, args: Sequence[str]) -> str:
    """What was given to the last mention of a flag."""
    values: list[str] = []
    listening = False
    for arg in args:
        if arg.startswith("--"):
            name, equals, value = arg.partition("=")
            listening = _flag(name[2:]) == flag
            values = ([value] if equals else []) if listening else values
        elif listening:
            values.append(arg)
    return " ".join(values)
