"""Gymnasium spaces as flat dicts of leaves, and the refusal of what we do not support."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from yamame.records.errors import UserError

BARE_LEAF = "observation"
"""Name of the one leaf of an observation that is not a dict or tuple."""

Leaf = spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary


def observation_leaves(space: spaces.Space[Any]) -> dict[str, Leaf]:
    """Leaf name -> space, for any nesting of Dict and Tuple over Box, Discrete, MultiDiscrete and MultiBinary.

    Raises `UserError` for any other space.
    """
    leaves: dict[str, Leaf] = {}
    for path, leaf in _walk(space):
        if not isinstance(leaf, Leaf):
            raise UserError(
                f"observation space {type(leaf).__name__} is not supported: "
                "wrap the environment so that it gives Box, Discrete, MultiDiscrete or MultiBinary, or nests them"
            )
        leaves["/".join(path) or BARE_LEAF] = leaf
    return leaves


def flatten_observation(space: spaces.Space[Any], observation: Any) -> dict[str, np.ndarray]:
    """The leaves of one observation or of a batch of them (`[E, ...]` arrays in the nesting of `space`).

    Integers become zero-based int64, floats float32; uint8 and booleans stay.
    """
    return {
        "/".join(path) or BARE_LEAF: _canonical(leaf, value) for path, leaf, value in _walk_with(space, observation)
    }


def check_action_space(space: spaces.Space[Any]) -> spaces.Discrete | spaces.Box:
    """The space itself if it is Discrete or a bounded one-dimensional Box; otherwise `UserError`."""
    if isinstance(space, spaces.Discrete):
        return space
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        if np.isfinite(space.low).all() and np.isfinite(space.high).all():
            return space
        raise UserError(
            "action space Box has infinite bounds: wrap the environment with gymnasium.wrappers.RescaleAction"
        )
    raise UserError(
        f"action space {space} is not supported: wrap the environment so that it takes Discrete or a flat Box"
    )


def space_to_json(space: spaces.Space[Any]) -> dict[str, Any]:
    """A JSON description from which `space_from_json` makes an equal space."""
    if isinstance(space, spaces.Dict):
        return {"kind": "Dict", "spaces": {name: space_to_json(part) for name, part in space.spaces.items()}}
    if isinstance(space, spaces.Tuple):
        return {"kind": "Tuple", "spaces": [space_to_json(part) for part in space.spaces]}
    if isinstance(space, spaces.Box):
        bounds = {"low": space.low.tolist(), "high": space.high.tolist()}
        return {"kind": "Box", "shape": list(space.shape), "dtype": np.dtype(space.dtype).name, **bounds}
    if isinstance(space, spaces.Discrete):
        return {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return {"kind": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": space.start.tolist()}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "MultiBinary", "n": space.n if isinstance(space.n, int) else list(space.n)}
    raise UserError(f"space {type(space).__name__} is not supported")


def space_from_json(described: Mapping[str, Any]) -> spaces.Space[Any]:
    """The space that `space_to_json` described."""
    match described["kind"]:
        case "Dict":
            return spaces.Dict({name: space_from_json(part) for name, part in described["spaces"].items()})
        case "Tuple":
            return spaces.Tuple([space_from_json(part) for part in described["spaces"]])
        case "Box":
            dtype = np.dtype(described["dtype"])
            low, high = np.asarray(described["low"], dtype), np.asarray(described["high"], dtype)
            return spaces.Box(low, high, tuple(described["shape"]), dtype.type)
        case "Discrete":
            return spaces.Discrete(described["n"], start=described["start"])
        case "MultiDiscrete":
            return spaces.MultiDiscrete(np.asarray(described["nvec"]), start=np.asarray(described["start"]))
        case "MultiBinary":
            return spaces.MultiBinary(described["n"])
        case kind:
            raise UserError(f"unknown space kind {kind!r} in a run directory: was it written by a newer version?")


def _children(space: spaces.Space[Any]) -> list[tuple[str, Any, spaces.Space[Any]]] | None:
    if isinstance(space, spaces.Dict):
        return [(str(key), key, part) for key, part in space.spaces.items()]
    if isinstance(space, spaces.Tuple):
        return [(str(index), index, part) for index, part in enumerate(space.spaces)]
    return None


def _walk(space: spaces.Space[Any], path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], spaces.Space[Any]]]:
    children = _children(space)
    if children is None:
        return [(path, space)]
    return [found for name, _, part in children for found in _walk(part, (*path, name))]


def _walk_with(
    space: spaces.Space[Any], value: Any, path: tuple[str, ...] = ()
) -> list[tuple[tuple[str, ...], spaces.Space[Any], Any]]:
    children = _children(space)
    if children is None:
        return [(path, space, value)]
    return [found for name, key, part in children for found in _walk_with(part, value[key], (*path, name))]


def _canonical(leaf: spaces.Space[Any], value: Any) -> np.ndarray:
    array = np.asarray(value)
    if isinstance(leaf, spaces.Discrete):
        return np.asarray(array.astype(np.int64) - int(leaf.start))
    if isinstance(leaf, spaces.MultiDiscrete):
        return array.astype(np.int64) - leaf.start.astype(np.int64)
    return array if array.dtype in (np.uint8, np.bool_) else array.astype(np.float32)
