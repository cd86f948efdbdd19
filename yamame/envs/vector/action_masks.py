"""Extraction of action masks from observations or infos into one observation leaf."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from jaxtyping import Bool, Int64, Shaped
from typing_extensions import override

from yamame.data.actions import (
    ACTION_MASK_KEY,
    NativeActionSpace,
    declared_positions,
    has_allowed_action,
    num_choices,
)
from yamame.data.masked_arrays import has_masked
from yamame.data.observations import short_value
from yamame.data.spaces import flatten_space, ordered_parts, stored_shape
from yamame.envs.vector.faults import ENV_ERRORS, InvalidEnvOutputError
from yamame.envs.wrapper_chain import wrapper_chain
from yamame.errors import UserError

MASK_METHOD = "action_masks"
"""Method of an environment or of one of its wrappers that returns the mask, as MaskablePPO of sb3-contrib calls it."""


class MaskMethodWrapper(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Adds what the method, property or array `MASK_METHOD` returns to every info that has no entry `ACTION_MASK_KEY`.

    The method is not called after the end of an episode that terminated, and may fail after one that was truncated.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], method: Callable[[], Any]) -> None:
        super().__init__(env)
        self._method = method

    @override
    def reset(self, **kwargs: Any) -> Any:
        result = self.env.reset(**kwargs)
        if isinstance(result, tuple) and len(result) == 2 and _lacks_mask(result[1]):
            return result[0], {**result[1], ACTION_MASK_KEY: self._method()}
        return result

    @override
    def step(self, action: Any) -> Any:
        result = self.env.step(action)
        if not (isinstance(result, tuple) and len(result) == 5 and _lacks_mask(result[4])) or result[2]:
            return result
        mask = None
        try:
            mask = self._method()
        except Exception:
            if not result[3]:
                raise
        return *result[:4], {**result[4], ACTION_MASK_KEY: mask}


def _find_method(env: gymnasium.Env[Any, Any]) -> Callable[[], Any] | None:
    """Return the method `MASK_METHOD` of an environment, or a function that reads the property or array of that name.

    None if there is none, or if the method needs arguments, such as the name of an agent.
    """
    if isinstance(inspect.getattr_static(env, MASK_METHOD, None), property):
        return partial(getattr, env, MASK_METHOD)
    method = getattr(env, MASK_METHOD, None)
    if isinstance(method, np.ndarray | list | tuple):
        return partial(getattr, env, MASK_METHOD)
    if not callable(method):
        return None
    try:
        inspect.signature(method).bind()
    except TypeError:
        return None
    except ValueError:  # without a signature, such as functions written in C
        pass
    return method


def _lacks_mask(info: Any) -> bool:
    return isinstance(info, Mapping) and info.get(ACTION_MASK_KEY) is None


class ActionMaskExtractor:
    """Adds the action masks of E environments to their observations, as the leaf `ACTION_MASK_KEY`: bool `[E, A]`.

    A mask is the observation leaf `key` or, if there is no such leaf, the entry `key` of every info: an array or nested
    sequences with one entry for each choice of each component: 1 or True where it is allowed, 0 or False elsewhere. In
    an info, the mask of a Dict action can also be a dict with the same keys; other masks have the entries of its parts
    in the order that the Dict declares. The result has them in the order of `walk_space`. For the default `key`, infos
    without it get what the method `MASK_METHOD` of the environment or of one of its wrappers returns. The first reset
    decides whether infos have masks. An environment whose episode has ended may allow no action or return no mask: then
    all actions are allowed, since none is taken.

    Args:
        key: Name of the mask; "": no masks.
        observation_space: Space of one observation.
        action_space: Action space of one environment.
        first_row: Index of the first of these environments, for messages.
    """

    def __init__(
        self,
        key: str,
        observation_space: spaces.Space[Any],
        action_space: NativeActionSpace,
        *,
        first_row: int = 0,
    ) -> None:
        leaves = flatten_space(observation_space)
        if ACTION_MASK_KEY in leaves and key != ACTION_MASK_KEY:
            raise UserError(f"observation {ACTION_MASK_KEY!r} has the name of action masks: rename it with a wrapper")
        if key and (parts := [name for name in leaves if name.startswith(f"{key}/")]):
            raise UserError(
                f"observation {key!r} has {len(parts)} parts ({', '.join(parts)}): an action mask is one array with an "
                "entry for each choice of each component, or leave it to the info; if it is no mask, set "
                "env.action_mask_key to ''"
            )
        self._key = key
        self._action_space = action_space
        self._sizes = num_choices(action_space)
        self._order_A = declared_positions(action_space)
        self.in_observation = key in leaves
        """Whether masks are a leaf of the observation."""
        self._reads_method = key == ACTION_MASK_KEY and not self.in_observation and bool(self._sizes)
        self._first_row = first_row
        self.in_info: bool | None = None
        """Whether infos have masks; None: not known before the first reset."""
        if self.in_observation:
            self._check_size(int(np.prod(stored_shape(leaves[key]))), f"observation {key!r}")

    def with_method(self, env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
        """Return an environment whose infos have the masks that its method returns; itself if it has none."""
        methods = map(_find_method, wrapper_chain(env)) if self._reads_method else ()
        method = next(filter(None, methods), None)
        return env if method is None else MaskMethodWrapper(env, method)

    def vector_method(self, env: VectorEnv) -> Callable[[Bool[np.ndarray, "E"]], list[Any]] | None:
        """Return the function that returns the mask of every environment of a vector environment, if it has one.

        It takes where an episode has ended, after which the method may fail. There, and everywhere if the environments
        can only be asked together, the mask is None then.
        """
        for each in wrapper_chain(env) if self._reads_method else ():
            if callable(method := getattr(each, MASK_METHOD, None)):
                return partial(_call_for_all, method)
            if isinstance(each, SyncVectorEnv | AsyncVectorEnv) and all(each.call("has_wrapper_attr", MASK_METHOD)):
                if isinstance(each, SyncVectorEnv):
                    return partial(_call_by_row, each.envs)
                return partial(_call_for_all, partial(each.call, MASK_METHOD))
        return None

    def validate(self, infos: Sequence[Mapping[str, Any]]) -> None:
        """Raise `InvalidEnvOutputError` if the mask in an info does not consist of numbers."""
        if self._key and not self.in_observation:
            for info in infos:
                if self._key in info and info[self._key] is not None:
                    _flatten(info[self._key], self._action_space)

    def from_infos(self, infos: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Return the masks in the infos of single environments; None where there is none."""
        return [info.get(self._key) if self._key else None for info in infos]

    def from_vector_info(self, info: Mapping[str, Any], num_envs: int) -> list[Any]:
        """Return the masks in the info of a Gymnasium vector environment; None where there is none.

        Raises `TypeError` or `ValueError` for another number of masks.
        """
        if not self._key or self._key not in info:
            return [None] * num_envs
        is_present = np.broadcast_to(info.get(f"_{self._key}", True), num_envs)
        masks = zip(_split(info[self._key]), is_present, strict=True)
        return [mask if present else None for mask, present in masks]

    def add_to(
        self,
        observation: Mapping[str, Shaped[np.ndarray, "E ..."]],
        info_masks: Sequence[Any],
        step: Int64[np.ndarray, "E"],
        ended: Bool[np.ndarray, "E"],
    ) -> dict[str, Shaped[np.ndarray, "E ..."]]:
        """Return the leaves of the observation with the action masks, if there are any.

        Args:
            observation: Leaves of the observation.
            info_masks: Mask in the info of each environment; None: it has none.
            step: Step of each environment's episode, for messages.
            ended: Where the episode has ended.

        Raises:
            UserError: If a mask is missing, has another size or allows no action.
        """
        leaves = dict(observation)
        if self.in_observation:
            raw = leaves.pop(self._key)
            mask_EA = _to_bools(raw.reshape(len(raw), -1))[:, self._order_A]
        elif any(mask is not None for mask in info_masks) or self.in_info:
            mask_EA = self._stack_info_masks(info_masks, step, ended)
        elif self._key in ("", ACTION_MASK_KEY):
            self.in_info = False
            return leaves
        else:
            raise UserError(
                f"env.action_mask_key is {self._key!r}, but neither the observation nor the info of the first reset "
                "has it: fix the name, or leave the option out if there are no action masks"
            )
        allows_E = has_allowed_action(mask_EA, self._sizes)
        mask_EA[ended & ~allows_E] = True
        for row in np.flatnonzero(~allows_E & ~ended)[:1]:
            raise UserError(
                f"environment {self._first_row + row} allows no action at step {step[row]} of its episode: "
                "its mask needs at least one action (of every component), or the episode must end"
            )
        return {**leaves, ACTION_MASK_KEY: mask_EA}

    def _stack_info_masks(
        self, info_masks: Sequence[Any], step: Int64[np.ndarray, "E"], ended: Bool[np.ndarray, "E"]
    ) -> Bool[np.ndarray, "E A"]:
        self.in_info = self.in_info is not False
        mask_EA = np.zeros((len(info_masks), sum(self._sizes)), np.bool_)
        for row, mask in enumerate(info_masks):
            if (mask is None and not ended[row]) or not self.in_info:  # the latter: the first reset had none
                raise missing_mask_error(self._key, self._first_row + row, int(step[row]) if self.in_info else 0)
            if mask is not None:
                flat = _flatten(mask, self._action_space)
                self._check_size(len(flat), f"environment {self._first_row + row}: info[{self._key!r}]")
                mask_EA[row] = flat
        return mask_EA

    def _check_size(self, found: int, where: str) -> None:
        expected = sum(self._sizes)
        if found != expected or not expected:
            raise UserError(
                f"{where} has {found} entries, but an action mask has one for each of {expected} choices: "
                "fix the mask, or set env.action_mask_key to another name"
            )


def _call_for_all(method: Callable[[], Sequence[Any]], ended: Bool[np.ndarray, "E"]) -> list[Any]:
    try:
        return list(method())
    except ENV_ERRORS:
        if not ended.any():
            raise
        return [None] * len(ended)


def _call_by_row(envs: Sequence[gymnasium.Env[Any, Any]], ended: Bool[np.ndarray, "E"]) -> list[Any]:
    masks: list[Any] = []
    for env, has_ended in zip(envs, ended, strict=True):
        try:
            method = env.get_wrapper_attr(MASK_METHOD)
            masks.append(method() if callable(method) else method)
        except ENV_ERRORS:
            if not has_ended:
                raise
            masks.append(None)
    return masks


def missing_mask_error(key: str, row: int, step: int) -> UserError:
    """Return the error for environments of which only some, or only sometimes, return a mask."""
    return UserError(
        f"info[{key!r}] is not given by every environment at every reset and step (missing in environment {row} at "
        f"step {step} of its episode): always give it, or set env.action_mask_key to '' to ignore masks"
    )


def _split(masks: Any) -> list[Any]:
    """Return the mask of each environment of a vector info, in which dicts have entries `_key`: where `key` is set."""
    if not isinstance(masks, Mapping):
        return list(masks)
    parts = {name: _split(part) for name, part in masks.items() if not (name[:1] == "_" and name[1:] in masks)}
    return [dict(zip(parts, row, strict=True)) for row in zip(*parts.values(), strict=True)]


def _flatten(mask: Any, space: spaces.Space[Any]) -> Bool[np.ndarray, "A"]:
    """Return a mask of actions of `space`, in the order of `walk_space`."""
    if isinstance(mask, Mapping):
        parts = ordered_parts(space) if isinstance(space, spaces.Dict) else []
        expected = [key for key, _ in parts]
        if set(mask) != set(expected):
            found = sorted(map(str, mask))
            raise UserError(f"an action mask has the keys {found}, the action {expected}: make them alike")
        return np.concatenate([np.zeros(0, np.bool_), *(_flatten(mask[key], part) for key, part in parts)])
    if isinstance(mask, tuple | list) and isinstance(space, spaces.Tuple) and len(mask) == len(space.spaces):
        return np.concatenate([np.zeros(0, np.bool_), *map(_flatten, mask, space.spaces)])
    flat = _flatten_sequences(mask)
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return flat
    order_A = declared_positions(space)
    return flat[order_A] if len(flat) == len(order_A) else flat


def _flatten_sequences(mask: Any) -> Bool[np.ndarray, "A"]:
    if isinstance(mask, tuple | list):
        return np.concatenate([np.zeros(0, np.bool_), *map(_flatten_sequences, mask)])
    if has_masked(mask):
        raise UserError("an action mask has masked entries (numpy.ma), neither 1 nor 0: fill them with .filled(0)")
    flat = np.asarray(mask).reshape(-1)
    if flat.dtype.kind == "O" and isinstance(mask, np.ndarray) and mask.ndim:  # arrays of different lengths
        return _flatten_sequences(mask.tolist())
    if flat.dtype.kind not in "biuf":
        raise UserError(
            f"an action mask is or has {short_value(mask)}, expected 1 for each allowed action and 0 for each "
            "forbidden one: fix the mask, or set env.action_mask_key to '' to ignore masks"
        )
    if flat.dtype.kind == "f" and np.isnan(flat).any():
        raise InvalidEnvOutputError("nonfinite", "an action mask has entries that are neither bools nor numbers")
    return _to_bools(flat)


def _to_bools(mask: Shaped[np.ndarray, "*shape"]) -> Bool[np.ndarray, "*shape"]:
    """Return a mask of bools. Raises `UserError` for entries such as those of logits or of a list of actions."""
    allowed = mask != 0
    if mask.dtype != np.bool_ and (allowed & (mask != 1)).any():
        found = mask[allowed & (mask != 1)].flat[0].item()
        raise UserError(
            f"an action mask has the entry {found:g}, expected 1 for each allowed action and 0 for each forbidden one: "
            "fix the mask (no logits, no list of actions), or set env.action_mask_key to '' to ignore masks"
        )
    return allowed
