"""Action spaces of environments and policies, conversion between them, and action masks."""

from collections.abc import Mapping
from functools import reduce
from itertools import accumulate
from operator import getitem
from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Bool, Float32, Float64, Int64, Shaped

from yamame.data.spaces import Keys, flatten_space, leaf_name, ordered_parts, walk_space
from yamame.errors import UserError

ActionLeaf = spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary | spaces.Box
"""Parts of an action; bounds of a Box are finite."""

NativeActionSpace = spaces.Space[Any]
"""Action spaces of environments: an `ActionLeaf`, or Dicts and Tuples of leaves that are all discrete or all Boxes."""

NativeAction = Any
"""Actions of E environments, nested as their space is: arrays `[E, ...]`, or dicts and tuples of them."""

PolicyActionSpace = spaces.Discrete | spaces.MultiDiscrete | spaces.Box
"""Action spaces of policies: integers from 0, one or `[C]` of them, or a flat float32 Box in [-1, 1]."""

MAX_ABS_BOUND = 1e18
"""Bounds of actions of this size and larger, such as the largest integer of 64 bits, stand for infinity."""

MAX_CHOICES = 100_000
"""Choices of an action, summed over its parts: each is a learned vector, and the policy has a probability for each."""

ACTION_MASK_KEY = "action_mask"
"""Observation leaf with the allowed actions: bool `[A]`, A as in `action_size`. Masks the policy and is no input of the
network. Absent if every action is always allowed."""


def check_action_space(space: spaces.Space[Any]) -> NativeActionSpace:
    """Return the space if it is supported; raise `UserError` otherwise."""
    leaves = walk_space(space)
    for keys, leaf in leaves:
        _check_leaf(leaf, f" (part {leaf_name(keys)!r})" if keys else "")
    boxes = [leaf_name(keys) for keys, leaf in leaves if isinstance(leaf, spaces.Box)]
    others = [leaf_name(keys) for keys, leaf in leaves if not isinstance(leaf, spaces.Box)]
    if boxes and others:
        raise UserError(
            f"action space {type(space).__name__} mixes discrete parts ({', '.join(others)}) with continuous ones "
            f"({', '.join(boxes)}), which is not supported: wrap the environment so that all are discrete, or all Box"
        )
    if not leaves:
        raise UserError(f"action space {type(space).__name__} is empty: expected an action")
    if sum(num_choices(space)) > MAX_CHOICES:
        raise UserError(
            f"an action has {sum(num_choices(space)):,} choices, of which at most {MAX_CHOICES:,} can be embedded: "
            "split them into the parts of a MultiDiscrete, or declare a Box if they are numbers on a scale"
        )
    return space


def _check_leaf(space: spaces.Space[Any], part: str) -> None:
    name = type(space).__name__
    if not isinstance(space, ActionLeaf):
        raise UserError(
            f"action space {name} is not supported{part}: wrap the environment so that its actions are "
            "Discrete, MultiDiscrete, MultiBinary, Box, or a Dict or Tuple of these"
        )
    if 0 in (space.shape or ()):
        raise UserError(f"action space {name} has the empty shape {space.shape}{part}: expected an action")
    if not isinstance(space, spaces.Box):
        return
    for bound in (space.low, space.high):
        unbounded = bound[is_unbounded(bound)]
        if unbounded.size:
            if np.isfinite(unbounded).all():
                part = f" ({unbounded.flat[0]:g} stands for infinity){part}"
            raise UserError(
                f"action space Box has infinite bounds{part}: declare finite ones, for example with "
                "gymnasium.wrappers.TransformAction(env, lambda action: action, gymnasium.spaces.Box(-1.0, 1.0, "
                f"{space.shape}))"
            )


def is_unbounded(bound: Shaped[np.ndarray, "*shape"]) -> Bool[np.ndarray, "*shape"]:
    """Return where a bound of a Box stands for infinity.

    It does if it is infinite, of the size of `MAX_ABS_BOUND`, or the largest number of a floating type; among integers,
    if it is the largest number of 32 bits or larger.
    """
    if np.issubdtype(bound.dtype, np.integer) or bound.dtype == np.bool_:
        wide = bound.astype(np.float64)
        return np.asarray((wide >= np.iinfo(np.int32).max) | (wide <= np.iinfo(np.int32).min + 1))
    limit = min(MAX_ABS_BOUND, float(np.finfo(bound.dtype.name).max))
    return np.asarray(~(np.abs(bound.astype(np.float64)) < limit))


def num_choices(space: spaces.Space[Any]) -> tuple[int, ...]:
    """Number of choices of each component, in the order of the flat action: `()` for a Box, `(n,)` for a Discrete."""
    match space:
        case spaces.Discrete():
            return (int(space.n),)
        case spaces.MultiDiscrete():
            return tuple(int(n) for n in space.nvec.flatten())
        case spaces.MultiBinary():
            return (2,) * int(np.prod(space.shape))
        case spaces.Dict() | spaces.Tuple():
            return tuple(n for _, leaf in walk_space(space) for n in num_choices(leaf))
    return ()


def action_shape(space: PolicyActionSpace) -> tuple[int, ...]:
    """Shape of one action."""
    return space.shape or ()


def action_size(space: PolicyActionSpace) -> int:
    """A: the sum of `num_choices`, or the number of dimensions of a Box."""
    return sum(num_choices(space)) or int(np.prod(action_shape(space)))


def split_mask(mask_EA: Bool[np.ndarray, "E A"], sizes: tuple[int, ...]) -> list[Bool[np.ndarray, "E _"]]:
    """Split a mask into those of its components, which have `sizes` choices."""
    return np.split(mask_EA, list(accumulate(sizes))[:-1], axis=1)


def has_allowed_action(mask_EA: Bool[np.ndarray, "E A"], sizes: tuple[int, ...]) -> Bool[np.ndarray, "E"]:
    """Whether each row of a mask allows at least one choice of every component."""
    return np.logical_and.reduce([mask_EK.any(axis=1) for mask_EK in split_mask(mask_EA, sizes)])


def is_allowed(
    action_EC: Int64[np.ndarray, "E C"], sizes: tuple[int, ...], mask_EA: Bool[np.ndarray, "E A"]
) -> Bool[np.ndarray, "E"]:
    """Whether each row of a mask allows the choices of all components."""
    parts = zip(split_mask(mask_EA, sizes), action_EC.T, strict=True)
    return np.logical_and.reduce([np.take_along_axis(mask_EK, one_E[:, None], 1)[:, 0] for mask_EK, one_E in parts])


def declared_positions(space: spaces.Space[Any]) -> Int64[np.ndarray, "A"]:
    """Return where each choice, in the order of `walk_space`, is if the parts of Dicts are in the order declared."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return np.arange(sum(num_choices(space)))
    declared = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
    starts, end = {}, 0
    for key, part in declared:
        starts[key] = end
        end += sum(num_choices(part))
    parts = [starts[key] + declared_positions(part) for key, part in ordered_parts(space)]
    return np.concatenate([np.zeros(0, np.int64), *parts])


def strip_action_mask(observation_space: spaces.Space[Any], key: str) -> spaces.Space[Any]:
    """Return an observation space without its action mask, the leaf called `key`, if it has one."""
    leaves = flatten_space(observation_space)
    if key not in leaves:
        return observation_space
    return spaces.Dict([(name, leaf) for name, leaf in leaves.items() if name != key])


def zero_action(space: PolicyActionSpace, num_envs: int) -> Shaped[np.ndarray, "E ..."]:
    """Zeros in the shape and dtype of policy actions: the previous action at the first step of a trial."""
    return np.zeros((num_envs, *action_shape(space)), np.float32 if isinstance(space, spaces.Box) else np.int64)


def policy_action_space(space: NativeActionSpace) -> PolicyActionSpace:
    """Convert an environment's action space: integers from 0, one or a vector, or a flat float32 Box in [-1, 1].

    MultiBinary becomes a vector of choices between 0 and 1; spaces of several dimensions are flattened. The leaves of
    Dicts and Tuples follow each other in one vector.
    """
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(int(space.n))
    sizes = num_choices(space)
    if sizes:
        return spaces.MultiDiscrete(list(sizes))
    return spaces.Box(-1.0, 1.0, (sum(num_components(leaf) for _, leaf in walk_space(space)),), np.float32)


def num_components(leaf: spaces.Space[Any]) -> int:
    """Return how many numbers of the policy's action are those of a leaf."""
    return len(num_choices(leaf)) or int(np.prod(leaf.shape or ()))


def to_env_action(space: NativeActionSpace, action: Shaped[np.ndarray, "E ..."]) -> NativeAction:
    """Convert policy actions of E environments to the environment's `space`, nesting, shape and dtype.

    Discrete and MultiDiscrete are shifted by their start. A Box is mapped linearly from
    [-1, 1] to [low, high] and clipped; integer Boxes are rounded. The arrays are new and may be changed.
    """
    if isinstance(space, spaces.Dict | spaces.Tuple):
        leaves = walk_space(space)
        ends = list(accumulate(num_components(leaf) for _, leaf in leaves))[:-1]
        parts = zip(leaves, np.split(action, ends, axis=1), strict=True)
        return nest_action(space, {keys: _to_env_leaf(leaf, part) for (keys, leaf), part in parts})
    return _to_env_leaf(space, action)


def _to_env_leaf(space: Any, action: Shaped[np.ndarray, "E ..."]) -> Shaped[np.ndarray, "E ..."]:
    if isinstance(space, spaces.Discrete):
        return (action.reshape(len(action)).astype(np.int64) + int(space.start)).astype(space.dtype)
    action = action.reshape(len(action), *space.shape)
    if isinstance(space, spaces.MultiBinary):
        return action.astype(space.dtype)
    if isinstance(space, spaces.MultiDiscrete):
        return (action + space.start).astype(space.dtype)
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    scaled = np.clip(low + (action.astype(np.float64) + 1.0) / 2.0 * (high - low), low, high)
    return (scaled if np.issubdtype(space.dtype, np.floating) else np.rint(scaled)).astype(space.dtype)


def action_bounds(space: NativeActionSpace) -> tuple[Float64[np.ndarray, "A"], Float64[np.ndarray, "A"]]:
    """Return the smallest and largest value of each number of a continuous action, in the order of the policy's."""
    leaves = [leaf for _, leaf in walk_space(space)]
    low, high = ([np.ravel(getattr(leaf, end)).astype(np.float64) for leaf in leaves] for end in ("low", "high"))
    return np.concatenate(low), np.concatenate(high)


def to_env_units(space: NativeActionSpace, action: Float32[np.ndarray, "T A"]) -> Float64[np.ndarray, "T A"]:
    """Convert continuous policy actions as `to_env_action` does, but flat and without rounding integers."""
    low_A, high_A = action_bounds(space)
    return np.clip(low_A + (action.astype(np.float64) + 1.0) / 2.0 * (high_A - low_A), low_A, high_A)


def first_choices(space: NativeActionSpace) -> tuple[int, ...]:
    """Return the number of the first choice of each component of a discrete action, in the order of `num_choices`."""
    starts = []
    for _, leaf in walk_space(space):
        start = np.broadcast_to(getattr(leaf, "start", 0), leaf.shape or ()).ravel()
        starts += [int(each) for each in start]
    return tuple(starts)


def nest_action(space: spaces.Space[Any], leaves: Mapping[Keys, Any], keys: Keys = ()) -> Any:
    """Return the leaves, given by their keys, nested as `space` is, which is itself found at `keys`.

    The parts of a Dict are in its own order, as in its samples.
    """
    if isinstance(space, spaces.Dict):
        return {name: nest_action(part, leaves, (*keys, name)) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(nest_action(part, leaves, (*keys, index)) for index, part in enumerate(space.spaces))
    return leaves[keys]


def split_env_actions(space: NativeActionSpace, actions: NativeAction) -> list[Any]:
    """Return the action of each environment as `space.sample()` does: NumPy scalars of Discrete, arrays of others."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return _split_leaf(space, actions)
    leaves = walk_space(space)
    all_keys = [keys for keys, _ in leaves]
    columns = [_split_leaf(leaf, _part(actions, keys)) for keys, leaf in leaves]
    return [nest_action(space, dict(zip(all_keys, row, strict=True))) for row in zip(*columns, strict=True)]


def _part(action: NativeAction, keys: Keys) -> Any:
    return reduce(getitem, keys, action)


def _split_leaf(leaf: spaces.Space[Any], column: Shaped[np.ndarray, "E ..."]) -> list[Any]:
    """Return the rows of a leaf: scalars of a Discrete, arrays of others, also if they have no dimensions."""
    return list(column) if column.ndim > 1 or isinstance(leaf, spaces.Discrete) else [*map(np.asarray, column)]


def sample_uniform_actions(
    uniform_EC: Float64[np.ndarray, "E C"], sizes: tuple[int, ...], mask_EA: Bool[np.ndarray, "E A"] | None
) -> Int64[np.ndarray, "E C"]:
    """Map uniform samples in [0, 1) to uniform choices among the allowed ones of each component.

    The mask must allow at least one choice of every component.
    """
    if mask_EA is None:
        return (uniform_EC * np.array(sizes)).astype(np.int64)
    masks = split_mask(mask_EA, sizes)
    return np.stack([_sample_allowed(u_E, mask_EK) for u_E, mask_EK in zip(uniform_EC.T, masks, strict=True)], axis=1)


def _sample_allowed(uniform_E: Float64[np.ndarray, "E"], allowed_EK: Bool[np.ndarray, "E K"]) -> Int64[np.ndarray, "E"]:
    index_E = (uniform_E * allowed_EK.sum(axis=1)).astype(np.int64)  # among the allowed choices
    return (allowed_EK.cumsum(axis=1) > index_E[:, None]).argmax(axis=1)
