"""Config fields from the command line (through tyro) and from Python; one-line errors that name the nearest field."""

import contextlib
import dataclasses
import difflib
import io
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from yamame.records.errors import UserError
from yamame.run.typed_fields import Field, MisfitError, children, conform, describe, is_config, is_text_type, leaves

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
    field's type has them (a list for a tuple, an int for a float). Raises `UserError` for an unknown field (naming
    the nearest) and for a value of another type.
    """
    for name, value in overrides.items():
        config = _override(config, name.replace("-", "_").split("."), value, "", config)
    return config


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


def _override(config: Any, path: Sequence[str], value: Any, above: str, root: Any) -> Any:
    fields = {field.path: field for field in children(config)}
    name, full = path[0], above + path[0]
    if name not in fields:
        raise UserError(_unknown_field(above + ".".join(path), root))
    field = fields[name]
    if len(path) > 1:
        new = _override(field.value, path[1:], value, f"{full}.", root)
    elif isinstance(value, Mapping) and children(field.value):
        new = field.value
        for inner, part in value.items():
            new = _override(new, inner.replace("-", "_").split("."), part, f"{full}.", root)
    else:
        try:
            new = conform(value, field.annotation)
        except MisfitError as misfit:
            raise UserError(f"{full}: {misfit}") from misfit
    return _replaced(config, name, new, full)


def _replaced(config: Any, name: str, new: Any, full: str) -> Any:
    if not is_config(config):
        return type(config)(new if str(index) == name else part for index, part in enumerate(config))
    try:
        return dataclasses.replace(config, **{name: new})
    except (TypeError, ValueError) as problem:
        raise UserError(f"{full}: {problem}") from problem


def _unknown_field(path: str, root: Any) -> str:
    guess = nearest(path, [field.path for field in leaves(root)])
    return f"no field {path!r}: " + (f"did you mean {guess!r}?" if guess else "see --help for all of them")


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
        return _stray(complaint.partition(":")[2].split(",")[0].strip(), args)
    named = re.search(r"--[\w.-]*\w", complaint)
    if named and named[0] in flags:
        wanted = describe(flags[named[0]].annotation)
        values = _values_of(named[0], args)
        return (
            f"{named[0]}: {values!r} is not {wanted}" if values else f"{named[0]}: the value is missing: give {wanted}"
        )
    return complaint.removeprefix("Error parsing ") or "the flags cannot be read: --help lists all of them"


def _stray(value: str, args: Sequence[str]) -> str:
    before = args[args.index(value) - 1] if value in args[1:] else ""
    if before.startswith("--") and "=" not in before:
        section, dot, name = before[2:].rpartition(".")
        return f"unexpected {value!r} after {before}: a switch takes no value; --{section}{dot}no-{name} turns it off"
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
