"""Gymnasium spaces as flat dicts of leaves, and their conversion to JSON."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Shaped
from numpy.typing import DTypeLike

from yamame.errors import UserError


def vocabulary_size(space: spaces.Text) -> int:
    """Number of different tokens, including 0 for padding."""
    return len(space.character_set) + 1


DEFAULT_KEY = "observation"
"""Name of the only leaf of an observation that is no dict or tuple."""

MAX_BOX_SIZE = 2**26
"""Numbers in a Box that a file may describe."""
MAX_DESCRIPTION = 300
"""Characters of a space in a message."""

_MAX_FLOAT32_INTEGER = 2**24

Leaf = spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary | spaces.Text


Keys = tuple[str | int, ...]
"""Keys of nested Dicts and indices of nested Tuples that lead to a leaf."""


def walk_space(space: spaces.Space[Any], keys: Keys = ()) -> list[tuple[Keys, spaces.Space[Any]]]:
    """Return keys and space of each leaf of a space, itself found at `keys`.

    The parts of a Dict are in the order of their keys, whatever their order in the Dict: Dicts that are equal have the
    same leaves in the same places. Raises `UserError` for a key that is neither a str nor an int.
    """
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return [(keys, space)]
    return [leaf for key, part in ordered_parts(space) for leaf in walk_space(part, (*keys, key))]


def ordered_parts(space: Any) -> list[tuple[str | int, spaces.Space[Any]]]:
    """Return the parts of a Dict or Tuple with their keys, in the order of `walk_space`."""
    if isinstance(space, spaces.Tuple):
        return [*enumerate(space.spaces)]
    parts = {_checked_key(key): part for key, part in space.spaces.items()}
    return sorted(parts.items(), key=lambda item: (isinstance(item[0], str), item[0]))


def _checked_key(key: Any) -> str | int:
    """Return a key of a Dict space as JSON can store it."""
    if isinstance(key, str):
        return str.__str__(key)
    if isinstance(key, int | np.integer) and not isinstance(key, bool):
        return int(key)
    raise UserError(
        f"a Dict space has the key {key!r}, which is a {type(key).__name__}: expected names (str) or numbers (int)"
    )


def leaf_name(keys: Keys) -> str:
    """Return the name of the leaf at these keys: `body/angle`, or `DEFAULT_KEY` for a space that is a leaf itself."""
    return "/".join(map(str, keys)) or DEFAULT_KEY


def flatten_space(space: spaces.Space[Any]) -> dict[str, Leaf]:
    """Return leaf name -> space of any nesting of Dict and Tuple over the kinds of `Leaf`.

    Raises `UserError` for any other space, or if two leaves have the same name.
    """
    leaves: dict[str, Leaf] = {}
    for keys, leaf in walk_space(space):
        name = leaf_name(keys)
        if not isinstance(leaf, Leaf):
            dropped = f"leave it out with --env.drop-obs-keys {name}, or " if keys else ""
            raise UserError(
                f"observation {name!r} is a {type(leaf).__name__}, which is not supported: {dropped}wrap the "
                "environment so that it observes Box, Discrete, MultiDiscrete, MultiBinary or Text"
            )
        if name in leaves:
            raise UserError(
                f"the observation has two leaves called {name!r} (such as 1 and '1', or 'a/b' and the 'b' of 'a'): "
                "rename one of them"
            )
        leaves[name] = leaf
    return leaves


def stored_shape(leaf: Leaf) -> tuple[int, ...]:
    """Shape of one observation of a leaf after `flatten_observation`."""
    return (leaf.max_length,) if isinstance(leaf, spaces.Text) else leaf.shape or ()


def stored_dtype(leaf: Leaf) -> DTypeLike:
    """Data type of a leaf: Text uint8 or int32, categories int64, Boxes of uint8 or bool unchanged, else float.

    Float64, if float32 cannot represent all numbers of the Box; else float32.
    """
    match leaf:
        case spaces.Text():
            return np.uint8 if vocabulary_size(leaf) <= 256 else np.int32
        case spaces.Discrete() | spaces.MultiDiscrete():
            return np.int64
        case spaces.Box() if leaf.dtype in (np.uint8, np.bool_):
            return leaf.dtype
        case spaces.Box() if not _fits_float32(leaf):
            return np.float64
    return np.float32


def _fits_float32(leaf: spaces.Box) -> bool:
    """Return whether float32 represents all numbers of the type within the bounds."""
    if np.issubdtype(leaf.dtype, np.floating):
        return leaf.dtype != np.float64
    return bool((leaf.low >= -_MAX_FLOAT32_INTEGER).all() and (leaf.high <= _MAX_FLOAT32_INTEGER).all())


def describe_space(space: spaces.Space[Any]) -> str:
    """Return the text of a space in one line of at most `MAX_DESCRIPTION` characters."""
    text = " ".join(str(space).split())
    return text if len(text) <= MAX_DESCRIPTION else f"{text[: MAX_DESCRIPTION - 3]}..."


def leaf_names(space: spaces.Space[Any]) -> list[str]:
    """Names of all leaves, including those of unsupported spaces."""
    return [leaf_name(keys) for keys, _ in walk_space(space)]


def select_leaves(space: spaces.Space[Any], keys: Sequence[str], drop_keys: Sequence[str]) -> spaces.Space[Any]:
    """Return the sub-space of a Dict with the leaves in `keys` (all if empty) that are not in `drop_keys`.

    A name is that of a leaf, such as `body/angle`, or of a sub-space with all its leaves, such as `body`. Leaves keep
    their place. Raises `UserError` for unknown names, for a part of a Tuple, and if no leaf is left.
    """
    names = leaf_names(space)
    for key in (*keys, *drop_keys):
        if not any(_is_in(name, (key,)) for name in names):
            raise UserError(f"the observation has no {key!r}: choose among {', '.join(names)}")
    kept = {name for name in names if (not keys or _is_in(name, keys)) and not _is_in(name, drop_keys)}
    if not kept:
        raise UserError(f"no leaf of the observation is left: choose among {', '.join(names)}")
    return _prune(space, kept)


def space_to_json(space: spaces.Space[Any]) -> dict[str, Any]:
    """Convert a space to JSON values, from which `space_from_json` makes an equal one."""
    if isinstance(space, spaces.Dict):
        parts = [(_checked_key(key), space_to_json(part)) for key, part in space.spaces.items()]
        has_names = all(isinstance(key, str) for key, _ in parts)
        return {"kind": "Dict", "spaces": dict(parts) if has_names else [list(part) for part in parts]}
    if isinstance(space, spaces.Tuple):
        return {"kind": "Tuple", "spaces": [space_to_json(part) for part in space.spaces]}
    if isinstance(space, spaces.Box):
        bounds = {"low": _bound_to_json(space.low), "high": _bound_to_json(space.high)}
        return {"kind": "Box", "shape": list(space.shape), "dtype": np.dtype(space.dtype).name, **bounds}
    if isinstance(space, spaces.Discrete):
        other = {} if space.dtype == np.int64 else {"dtype": np.dtype(space.dtype).name}
        return {"kind": "Discrete", "n": int(space.n), "start": int(space.start), **other}
    if isinstance(space, spaces.MultiDiscrete):
        dtype = np.dtype(space.dtype).name
        return {"kind": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": space.start.tolist(), "dtype": dtype}
    if isinstance(space, spaces.Text):
        lengths = {"min_length": space.min_length, "max_length": space.max_length}
        return {"kind": "Text", **lengths, "characters": space.characters}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "MultiBinary", "n": space.n if isinstance(space.n, int) else list(space.n)}
    raise UserError(f"space {type(space).__name__} is not supported")


def space_from_json(json_values: Mapping[str, Any]) -> spaces.Space[Any]:
    """Make the space that `space_to_json` converted."""
    match json_values["kind"]:
        case "Dict":
            parts = json_values["spaces"]
            pairs = parts.items() if isinstance(parts, Mapping) else parts
            return spaces.Dict([(key, space_from_json(part)) for key, part in pairs])
        case "Tuple":
            return spaces.Tuple([space_from_json(part) for part in json_values["spaces"]])
        case "Box":
            dtype = np.dtype(json_values["dtype"])
            if math.prod(json_values["shape"]) > MAX_BOX_SIZE:
                raise ValueError(f"a Box of shape {json_values['shape']} is too large")
            low, high = (np.full(json_values["shape"], json_values[side], dtype) for side in ("low", "high"))
            return spaces.Box(low, high, tuple(json_values["shape"]), dtype.type)
        case "Discrete":
            other = {"dtype": np.dtype(json_values["dtype"]).type} if "dtype" in json_values else {}
            return spaces.Discrete(json_values["n"], start=json_values["start"], **other)
        case "MultiDiscrete":
            nvec, start = np.asarray(json_values["nvec"]), np.asarray(json_values["start"])
            return spaces.MultiDiscrete(nvec, np.dtype(json_values.get("dtype", "int64")).type, start=start)
        case "Text":
            lengths = {name: json_values[name] for name in ("min_length", "max_length")}
            return spaces.Text(**lengths, charset=json_values["characters"])
        case "MultiBinary":
            return spaces.MultiBinary(json_values["n"])
        case kind:
            raise UserError(f"unknown space kind {kind!r} in a run directory: was it written by a newer version?")


def _bound_to_json(bound: Shaped[np.ndarray, "..."]) -> Any:
    """Return one number if all are equal, as in images."""
    if bound.size == 0:
        return 0
    if bound.dtype.kind == "f":
        bound = bound.astype(np.float64)  # longer ones are no JSON
    first = bound.flat[0]
    return first.item() if np.all(bound == first) else bound.tolist()


def _is_in(name: str, keys: Sequence[str]) -> bool:
    return any(name == key or name.startswith(f"{key}/") for key in keys)


def _prune(space: spaces.Space[Any], kept: set[str], keys: Keys = ()) -> spaces.Space[Any]:
    inside = {leaf_name(leaf_keys) for leaf_keys, _ in walk_space(space, keys)}
    if inside <= kept:
        return space
    if not isinstance(space, spaces.Dict):
        raise UserError(f"a part of the tuple {leaf_name(keys)!r} cannot be left out: choose it whole")
    parts = {}
    for key, part in space.spaces.items():
        if any(leaf_name(leaf_keys) in kept for leaf_keys, _ in walk_space(part, (*keys, key))):
            parts[key] = _prune(part, kept, (*keys, key))
    return spaces.Dict(parts)
