"""Fields of a nested config by their paths: iteration, other values, the name nearest to a misspelt one."""

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any, NamedTuple, TypeVar

from yamame.config.coercion import coerce_field, field_types, is_config, is_flattened, join_path
from yamame.config.serialization import to_tree
from yamame.errors import UserError

C = TypeVar("C")


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
        parts = [
            (join_path(path, name, owner), hint, getattr(config, name)) for name, hint in field_types(owner).items()
        ]
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
    tree = to_tree(config)
    for name, value in overrides.items():
        _assign(tree, name, value, config)
    return coerce_field(tree, type(config), "")


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
        tree[key] = to_tree(value)


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
