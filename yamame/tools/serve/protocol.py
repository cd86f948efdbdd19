"""Requests of the service: from JSON to the arguments of `LoadedPolicy.act`, or one line that says what is wrong."""

import base64
import binascii
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from yamame.data.actions import num_choices
from yamame.data.step import MAX_ABS_REWARD
from yamame.errors import UserError
from yamame.policy.loaded import LoadedPolicy

BASE64 = "base64"
"""Key of an array as bytes: `{"base64": "..."}`, little-endian and in C order, in dtype and shape of the space."""
_FIELDS = ("observation", "reward", "episode_start", "reset", "deterministic", "action_mask")


class RequestError(Exception):
    """A request that is refused, with its HTTP status and one line."""

    def __init__(self, status: int, message: str) -> None:
        text = " ".join(message.split())
        super().__init__(text.encode(errors="replace").decode())  # names in a request can hold lone surrogates
        self.status = status


@dataclass(frozen=True, kw_only=True)
class ActRequest:
    """Arguments of `LoadedPolicy.act` for one session."""

    observation: Any
    """Arrays, nested as the observation space."""
    reward: float = 0.0
    episode_start: bool = False
    reset: bool = False
    """Clear the memory first, for a new trial."""
    deterministic: bool | None = None
    action_mask: Any = None
    """None, or a flat bool array."""

    @staticmethod
    def from_json(body: bytes | str, policy: LoadedPolicy) -> "ActRequest":
        """Parse the body of a request.

        Raises:
            RequestError: 400 if it is not a JSON object, 422 if a value does not fit the policy.
        """
        try:
            return ActRequest._from_values(_parse_object(body), policy)
        except RecursionError as error:
            raise RequestError(400, "the body is nested too deeply") from error
        except UserError as error:
            raise RequestError(422, str(error)) from error

    @staticmethod
    def _from_values(values: dict[str, Any], policy: LoadedPolicy) -> "ActRequest":
        for name in values:
            if name not in _FIELDS:
                raise RequestError(422, f"unknown field {_short(name)}: the fields are {', '.join(_FIELDS)}")
        if "observation" not in values:
            raise RequestError(422, "observation is missing")
        request = ActRequest(
            observation=_to_arrays(policy.observation_space, values["observation"], "observation"),
            reward=_reward(values.get("reward", 0.0)),
            episode_start=_flag(values, "episode_start", (True, False)) or False,
            reset=_flag(values, "reset", (True, False)) or False,
            deterministic=_flag(values, "deterministic", (True, False, None)),
            action_mask=_action_mask(values.get("action_mask"), policy),
        )
        policy.check(request.observation, request.action_mask)
        return request


def _parse_object(body: bytes | str) -> dict[str, Any]:
    try:
        values = json.loads(body)
    except ValueError as error:  # also for text that is not UTF-8, and numbers of thousands of digits
        raise RequestError(400, f"the body is not JSON ({_short(str(error))})") from error
    if not isinstance(values, dict):
        raise RequestError(400, f"the body is {_kind(values)}: expected a JSON object")
    return values


def _to_arrays(space: spaces.Space[Any], value: Any, path: str) -> Any:
    """Convert nested JSON values to arrays that are nested as the space is."""
    if isinstance(space, spaces.Dict):
        expected = {str(name) for name in space.spaces}
        if not isinstance(value, dict) or value.keys() != expected:
            found = sorted(value) if isinstance(value, dict) else _kind(value)
            raise RequestError(422, f"{path}: expected an object with {sorted(expected)}, got {_short(found)}")
        return {name: _to_arrays(part, value[str(name)], f"{path}.{name}") for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        if not isinstance(value, list) or len(value) != len(space.spaces):
            found = f"{len(value)}" if isinstance(value, list) else _kind(value)
            raise RequestError(422, f"{path}: expected a list of {len(space.spaces)} parts, got {found}")
        return tuple(_to_arrays(part, value[n], f"{path}.{n}") for n, part in enumerate(space.spaces))
    if isinstance(space, spaces.Text):
        if not isinstance(value, str):
            raise RequestError(422, f"{path}: expected a text, got {_kind(value)}")
        return value
    return _to_array(value, np.dtype(space.dtype), space.shape or (), path)


def _to_array(value: Any, dtype: np.dtype, shape: tuple[int, ...], path: str) -> np.ndarray:
    if isinstance(value, dict) and value.keys() == {BASE64}:
        return _from_base64(value[BASE64], dtype, shape, path)
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError) as error:
        raise RequestError(
            422, f"{path}: expected numbers of shape {list(shape)}, got lists of other lengths"
        ) from error
    if array.dtype.kind not in "biuf":
        raise RequestError(422, f"{path}: expected numbers of shape {list(shape)}, got {_kind(value)}")
    if array.shape != shape:
        raise RequestError(422, f"{path}: expected shape {list(shape)}, got {list(array.shape)}")
    if dtype.kind == "f":
        limit = float(np.finfo(dtype).max)
        if not (np.abs(array.astype(np.float64)) <= limit).all():  # NaN, too
            raise RequestError(422, f"{path} has numbers that are not finite in {dtype.name}")
    else:
        low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        if not ((array >= low) & (array <= high)).all() or (array % 1 != 0).any():
            raise RequestError(422, f"{path}: expected whole numbers from {low} to {high}")
    with np.errstate(invalid="ignore"):  # 2^63, which float64 cannot tell from the limit
        return array.astype(dtype)


def _from_base64(value: Any, dtype: np.dtype, shape: tuple[int, ...], path: str) -> np.ndarray:
    try:
        content = base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise RequestError(422, f"{path}: {BASE64} cannot be decoded") from error
    expected = math.prod(shape) * dtype.itemsize
    if len(content) != expected:
        raise RequestError(
            422, f"{path}: expected {expected} bytes ({dtype.name} of shape {list(shape)}), got {len(content)}"
        )
    return np.frombuffer(content, dtype.newbyteorder("<")).reshape(shape).astype(dtype)


def _reward(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < MAX_ABS_REWARD:
        raise RequestError(422, f"reward: expected a number below {MAX_ABS_REWARD:g} in size, got {_short(value)}")
    return float(value)


def _flag(values: Mapping[str, Any], name: str, choices: tuple[bool | None, ...]) -> bool | None:
    value = values.get(name)
    if name in values and not any(value is choice for choice in choices):
        raise RequestError(422, f"{name}: expected true or false, got {_short(value)}")
    return value


def _action_mask(value: Any, policy: LoadedPolicy) -> Any:
    if value is None:
        return None
    if not policy.needs_action_mask:
        raise RequestError(422, "action_mask: the policy was trained without action masks in info; leave it out")
    flat, size = _flatten(value), sum(num_choices(policy.action_space))
    if len(flat) != size or not all(isinstance(entry, bool | int | float) for entry in flat):
        raise RequestError(422, f"action_mask: expected {size} booleans or numbers, got {_short(value)}")
    if not all(entry in (0, 1) for entry in flat):
        problem = f"action_mask: expected 1 or true for allowed choices, 0 or false for others, got {_short(value)}"
        raise RequestError(422, problem)
    return np.array(flat, np.bool_)


def _flatten(value: Any) -> list[Any]:
    return [entry for part in value for entry in _flatten(part)] if isinstance(value, list) else [value]


def _kind(value: Any) -> str:
    """Name the type of a JSON value."""
    if value is None:
        return "null"
    names = {dict: "an object", list: "a list of other values", str: "a text", bool: "a boolean"}
    return names.get(type(value), "a number")


def _short(value: Any) -> str:
    text = str(value) if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
