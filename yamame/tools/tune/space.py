"""The search space: a range or a list of choices for each field, checked against the fields of the config.

`1e-4..3e-3` is a range, `log:1e-4..3e-3` one that is sampled on a logarithmic scale, `8,16,32` are choices. Elements of
a tuple are separated by spaces: `0.9 0.99,0.9 0.99 0.999` are two choices.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yamame.config.coercion import describe_type, union_options
from yamame.config.flags import list_flags, to_flag
from yamame.config.overrides import closest_match
from yamame.config.serialization import parse_json
from yamame.errors import UserError
from yamame.run_config import RunConfig

SUFFIXES = (".json", ".toml")
"""Of files with a search space: an object or table of field and range, or field and list of choices."""
_LOG, _TO = "log:", ".."


@dataclass(frozen=True, kw_only=True)
class Range:
    """Numbers from `low` to `high`, both included."""

    low: int | float
    high: int | float
    log: bool = False
    """Whether to sample on a logarithmic scale."""
    is_int: bool = False

    def words(self, value: int | float) -> list[str]:
        """Return a value as a flag has it, floats with four digits."""
        if self.is_int:
            return [str(int(value))]
        return [repr(min(max(float(f"{value:.4g}"), self.low), self.high))]

    def ends(self) -> Iterable[list[str]]:
        """Return both ends as flags have them."""
        return (self.words(self.low), self.words(self.high))


@dataclass(frozen=True, kw_only=True)
class Choices:
    """Alternatives, each as the words of a flag, separated by spaces."""

    values: tuple[str, ...]

    def words(self, value: str) -> list[str]:
        """Return a value as a flag has it."""
        return value.split()

    def ends(self) -> Iterable[list[str]]:
        """Return all choices as flags have them."""
        return map(self.words, self.values)


SearchSpace = Mapping[str, Range | Choices]
"""Flag -> what to search, in the order given."""


def parse_search(arguments: Sequence[str], config: RunConfig, check: Callable[[list[str]], object]) -> SearchSpace:
    """Return the space of `--search FIELD=SPACE` and `--search FILE`.

    Args:
        arguments: Values of `--search`.
        config: Config of the recipe, which has the fields.
        check: Makes a config from flags. It is called with both ends of each range and with each choice.

    Raises:
        UserError: A field is unknown, a range or choice does not fit its type or limits, or a file cannot be read.
    """
    if not arguments:
        raise UserError("--search is missing: give a file, or fields such as learner.learning_rate=log:1e-4..3e-3")
    given: dict[str, str | list[Any]] = {}
    for argument in arguments:
        field, equals, text = argument.partition("=")
        entries = {field: text} if equals else _read(Path(argument))
        for name, described in entries.items():
            flag = to_flag(name.removeprefix("--"))
            if flag in given:
                raise UserError(f"--search: {name} is given twice")
            given[flag] = described
    space = {flag: _parse(flag, described, config) for flag, described in given.items()}
    for flag, parameter in space.items():
        for words in parameter.ends():
            check([flag, *words])
    return space


def describe(space: SearchSpace) -> dict[str, Any]:
    """Return the space as JSON values."""
    return {
        flag: list(parameter.values) if isinstance(parameter, Choices) else vars(parameter)
        for flag, parameter in space.items()
    }


def _read(path: Path) -> dict[str, str | list[Any]]:
    if path.suffix not in SUFFIXES:
        raise UserError(f"--search {path}: expected FIELD=SPACE, or a file that ends in {' or '.join(SUFFIXES)}")
    try:
        text = path.read_text(encoding="utf-8")
        content = tomllib.loads(text) if path.suffix == ".toml" else parse_json(text)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"--search {path} cannot be read ({error})") from error
    if not isinstance(content, dict):
        raise UserError(f"--search {path}: expected an object with fields, got {type(content).__name__}")
    flat = dict(_flatten(content))
    for name, described in flat.items():
        if not isinstance(described, str | list):
            raise UserError(f"--search {path}: {name} is {described!r}: expected a text or a list of choices")
    return flat


def _flatten(content: Mapping[str, Any], path: str = "") -> Iterable[tuple[str, Any]]:
    """Yield dotted name and value: TOML reads a dotted key as nested tables."""
    for name, value in content.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def _parse(flag: str, described: str | list[Any], config: RunConfig) -> Range | Choices:
    fields = list_flags(config)
    if flag not in fields or flag != to_flag(fields[flag].path):
        guess = closest_match(flag.removeprefix("--"), [known.removeprefix("--") for known in fields])
        raise UserError(f"--search: unknown field {flag[2:]}" + (f": did you mean {guess}?" if guess else ""))
    annotation = fields[flag].annotation
    kinds = union_options(annotation)
    if bool in kinds:
        raise UserError(f"--search {flag[2:]}: switches cannot be searched; compare two sweeps instead")
    if isinstance(described, str) and _TO in described:
        if not {int, float} & set(kinds):
            raise UserError(f"--search {flag[2:]}: expected choices of {describe_type(annotation)}, got a range")
        return _range(flag, described, is_int=float not in kinds)
    choices = described.split(",") if isinstance(described, str) else [_to_words(choice) for choice in described]
    values = tuple(" ".join(choice.split()) for choice in choices)
    if len(values) < 2 or not all(values) or len(set(values)) < len(values):
        raise UserError(f"--search {flag[2:]}: expected a range LOW..HIGH or at least two different choices A,B")
    return Choices(values=values)


def _to_words(choice: Any) -> str:
    return " ".join(map(_to_words, choice)) if isinstance(choice, list) else str(choice)


def _range(flag: str, described: str, *, is_int: bool) -> Range:
    low, _, high = described.removeprefix(_LOG).partition(_TO)
    kind = int if is_int else float
    try:
        found = Range(low=kind(low), high=kind(high), log=described.startswith(_LOG), is_int=is_int)
    except ValueError:
        expected = "whole numbers" if is_int else "numbers"
        raise UserError(f"--search {flag[2:]}: expected a range of {expected} LOW..HIGH, got {described!r}") from None
    if not found.low < found.high or found.high - found.low == float("inf") or (found.log and found.low <= 0):
        above = " and LOW above 0" if found.log else ""
        raise UserError(f"--search {flag[2:]}: expected LOW below HIGH{above}, got {described!r}")
    return found
