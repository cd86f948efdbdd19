"""`ActInputs`: what a loaded policy accepts; a `UserError` names the part that does not fit."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from jaxtyping import Bool, Float32, Shaped

from yamame.data.goals import INSTRUCTION_KEY
from yamame.data.observations import ObservationParser, short_value
from yamame.data.spaces import Keys, Leaf, flatten_space, leaf_name, stored_shape
from yamame.data.step import MAX_ABS_REWARD
from yamame.errors import UserError


class ActInputs:
    """Converts and checks what is passed to `LoadedPolicy.act`, by PyTorch and from an exported file alike.

    Args:
        observation_space: Space of one observation.
        num_envs: Number of environments, the leading dimension of all inputs; None: a single one, without it.
        ignores_unknown: Ignore keys of a dict that its space does not have, because the policy was trained on a
            selection. With an instruction they are always ignored: it is made from goals.
    """

    def __init__(
        self, observation_space: spaces.Space[Any], *, num_envs: int | None, ignores_unknown: bool = False
    ) -> None:
        self.leaves = flatten_space(observation_space)
        self._space = observation_space
        self._parser = ObservationParser(observation_space)
        self._single = num_envs is None
        self._num_envs = num_envs or 1
        self._ignores_unknown = ignores_unknown or INSTRUCTION_KEY in self.leaves

    def observation(self, value: Any, steps: Bool[np.ndarray, "E"]) -> dict[str, Shaped[np.ndarray, "E ..."]]:
        """Return the leaves of an observation as the network takes them; zeros outside of `steps`.

        Raises:
            UserError: If a part is missing, unknown, of another kind or shape, not finite, or a category that its space
                does not have.
        """
        leaves = {}
        all_step = bool(steps.all())
        for name, leaf, part in self._parts(self._space, value):
            raw = self._raw(name, leaf, part)
            with np.errstate(over="ignore"):  # outside of `steps`
                stored = self._parser.split_leaf(name, raw, None if all_step else steps)
            stored = stored if all_step else np.where(expand_mask(steps, stored), stored, stored.dtype.type(0))
            if stored.dtype.kind == "f" and not np.isfinite(stored).all():
                raise UserError(f"observation {name!r} has NaN or infinite numbers")
            leaves[name] = stored
        return leaves

    def leaf_outside_bounds(
        self, leaves: Mapping[str, Shaped[np.ndarray, "E ..."]], steps: Bool[np.ndarray, "E"]
    ) -> str | None:
        """Return the name of a Box with numbers outside of its bounds; None: there is none."""
        for name, leaf in self.leaves.items():
            if isinstance(leaf, spaces.Box):
                values = leaves[name] if steps.all() else leaves[name][steps]
                if (values < leaf.low).any() or (values > leaf.high).any():
                    return name
        return None

    def reward(self, value: Any, steps: Bool[np.ndarray, "E"]) -> Float32[np.ndarray, "E"]:
        """Return the rewards; zeros outside of `steps`. Raises `UserError` unless all are below `MAX_ABS_REWARD`."""
        array = np.where(steps, self._numbers("reward", value), 0.0)
        is_valid = np.abs(array) < MAX_ABS_REWARD
        if not is_valid.all():
            raise UserError(
                f"expected reward to be finite and below {MAX_ABS_REWARD:g} in size, got {array[~is_valid][0]:g}: pass "
                "that of the previous action"
            )
        return array.astype(np.float32)

    def flags(self, name: str, value: Any) -> Bool[np.ndarray, "E"]:
        """Return the argument `name` as bools. Raises `UserError` unless they are true or false, or 0 or 1."""
        if value is True or value is False:
            return np.full(self._num_envs, value)
        array = self._numbers(name, value)
        if array.dtype != np.bool_ and not np.isin(array, (0, 1)).all():
            raise UserError(f"expected {name} to be true or false, got {short_value(value)}")
        return array.astype(np.bool_)

    def _numbers(self, name: str, value: Any) -> Shaped[np.ndarray, "E"]:
        """Return one number for each environment; a single one is that of all."""
        array = _as_array(name, value, "a number" if self._single else f"numbers of shape ({self._num_envs},)")
        if array.shape not in ((), () if self._single else (self._num_envs,)):
            expected = "a number" if self._single else f"numbers of shape ({self._num_envs},)"
            raise UserError(f"expected {name} to be {expected}, got shape {array.shape}{self._hint()}")
        return np.broadcast_to(array, (self._num_envs,))

    def _parts(self, space: spaces.Space[Any], value: Any, keys: Keys = ()) -> Iterator[tuple[str, Leaf, Any]]:
        """Yield name, space and value of every leaf."""
        where = f"observation {leaf_name(keys)!r}" if keys else "the observation"
        if isinstance(space, spaces.Dict):
            self._check_keys(where, list(space.spaces), value)
            for key, part in space.spaces.items():
                yield from self._parts(part, value[key], (*keys, key))
        elif isinstance(space, spaces.Tuple):
            if not isinstance(value, tuple | list) or len(value) != len(space.spaces):
                raise UserError(f"expected {where} to be a tuple of {len(space.spaces)} parts, got {_describe(value)}")
            for index, part in enumerate(space.spaces):
                yield from self._parts(part, value[index], (*keys, index))
        else:
            yield leaf_name(keys), self.leaves[leaf_name(keys)], value

    def _check_keys(self, where: str, expected: list[Any], value: Any) -> None:
        if not isinstance(value, Mapping):
            raise UserError(
                f"expected {where} to be a dict with the keys {expected}, got {_describe(value)}{_pair_hint(value)}"
            )
        missing = [key for key in expected if key not in value]
        if missing:
            raise UserError(
                f"{where} has no {missing[0]!r}: expected the keys {expected}, got {short_value(list(value))}"
            )
        unknown = [key for key in value if key not in expected]
        if unknown and not self._ignores_unknown:
            raise UserError(
                f"{where} has {unknown[0]!r}, which the policy was not trained with: expected the keys {expected}"
            )

    def _raw(self, name: str, leaf: Leaf, value: Any) -> Shaped[np.ndarray, "E ..."]:
        """Return the values of a leaf as they were passed, with the leading dimension."""
        is_text = isinstance(leaf, spaces.Text)
        shape = () if is_text else stored_shape(leaf)
        expected = shape if self._single else (self._num_envs, *shape)
        what = f"{'texts' if is_text else 'numbers'} of shape {expected}" if expected else "a text" if is_text else ""
        array = _as_array(f"observation {name!r}", value, what or "a number", kinds="UO" if is_text else "biuf")
        if array.shape != expected:
            raise UserError(f"expected observation {name!r} to have shape {expected}, got {array.shape}{self._hint()}")
        if is_text and not all(isinstance(text, str) for text in array.flat):
            raise UserError(f"expected observation {name!r} to be {what}, got {short_value(value)}")
        return array[None] if self._single else array

    def _hint(self) -> str:
        return ": pass num_envs=k to yamame.load for k environments, and no num_envs for a single one"


def expand_mask(mask: Bool[np.ndarray, "E"], like: Shaped[np.ndarray, "E ..."]) -> Bool[np.ndarray, "E ..."]:
    """Give a mask `[E]` as many dimensions as `like` has."""
    return mask.reshape(-1, *(1,) * (like.ndim - 1))


def _as_array(name: str, value: Any, expected: str, kinds: Literal["biuf", "UO"] = "biuf") -> Shaped[np.ndarray, "..."]:
    """Return a value as an array of one of the kinds of NumPy's dtypes; an empty one may have any."""
    problem = ""
    try:
        array = np.asarray(None if isinstance(value, Mapping | set) else value)
    except Exception as error:  # lists of different lengths; tensors of other libraries raise anything
        array, problem = np.asarray(None), f" ({str(error).strip().partition(chr(10))[0]})"
    if array.dtype.kind not in kinds or (array.dtype == object and not array.ndim):
        hint = _pair_hint(value)
        raise UserError(f"expected {name} to be {expected}, got {_describe(value)}{problem}{hint}")
    return array


def _describe(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"a dict with the keys {short_value(list(value))}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, np.ndarray) and value.ndim and value.dtype != object:
        return f"an array of {value.dtype} with shape {value.shape}"
    return f"{short_value(value)} ({type(value).__name__})"


def _pair_hint(value: Any) -> str:
    """Return what to do if a value looks like the result of `env.reset()`."""
    is_pair = isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], Mapping)
    return ": env.reset() returns observation and info, pass the observation alone" if is_pair else ""
