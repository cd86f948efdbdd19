"""Observations of environments: checked against their space and converted to leaves."""

from collections import deque
from collections.abc import Mapping, Sequence
from functools import cache, reduce
from operator import getitem
from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Bool, Int, Shaped, UInt8

from yamame.data.masked_arrays import find_masked, has_masked
from yamame.data.spaces import (
    DEFAULT_KEY,
    Keys,
    Leaf,
    describe_space,
    flatten_space,
    leaf_name,
    stored_dtype,
    stored_shape,
    walk_space,
)
from yamame.errors import UserError

MAX_ABS_OBSERVATION = 1e30
"""Numbers of this size and larger are refused: they stand for something else, such as a ray without an echo, and their
squares are infinite in float32."""

Tokens = UInt8[np.ndarray, "... L"] | Int[np.ndarray, "... L"]


class OutOfSpaceError(UserError):
    """An observation is not in its space. The message names the leaf, the value and the space, and no remedy."""

    def __init__(self, problem: str, row: int = 0) -> None:
        super().__init__(problem)
        self.row = row
        """Index of the observation in its batch."""


class ObservationShapeError(OutOfSpaceError):
    """A leaf of an observation, or of a batch of them, does not have the shape of its space."""

    def __init__(self, name: str, shape: tuple[int, ...], expected: tuple[int, ...], row: int = 0) -> None:
        super().__init__(f"observation {name!r} has shape {shape}, expected {expected} by its space", row)
        self.name, self.shape = name, shape


class ObservationParser:
    """Checks observations of a space and converts them to leaves.

    Refused are missing leaves, shapes and types that are not those of the space, masked entries of NumPy's masked
    arrays, categories, bits and texts that it does not hold, numbers of `MAX_ABS_OBSERVATION` and more, the smallest
    and largest int32 and int64, and integers that the stored float does not hold exactly. NaN and infinity pass: they
    are faults of an environment, see `validate_finite`. Numbers beyond the bounds of a Box pass, too: observations are
    normalized.

    Categories become zero-based int64, texts become tokens, Boxes of uint8 or bool stay, all else becomes floats.

    Raises:
        UserError: If the space is not supported.
        OutOfSpaceError: From all methods, for the first leaf that is refused.
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        self._leaves = [
            (keys, _TextParser(name, leaf) if isinstance(leaf, spaces.Text) else _NumberParser(name, leaf))
            for (keys, _), (name, leaf) in zip(walk_space(space), flatten_space(space).items(), strict=True)
        ]

    def stack(self, observations: Sequence[Any]) -> dict[str, np.ndarray]:
        """Return the leaves `[len(observations), ...]` of single observations, in new memory."""
        return {
            parser.name: parser.stack(_select(observations, keys) if keys else observations)
            for keys, parser in self._leaves
        }

    def split(self, observation: Any, rows: Bool[np.ndarray, "E"] | None = None) -> dict[str, np.ndarray]:
        """Return the leaves of one observation, or of a batch of them (arrays `[E, ...]`, nested as the space is).

        Leaves of uint8 and bool may share memory with the observation.

        Args:
            observation: The observation or batch.
            rows: Observations of a batch that are checked; the others may have any value. None: all.
        """
        return {
            parser.name: parser.split(_select([observation], keys)[0] if keys else observation, rows)
            for keys, parser in self._leaves
        }

    def split_leaf(self, name: str, value: Any, rows: Bool[np.ndarray, "E"] | None = None) -> Shaped[np.ndarray, "..."]:
        """Return one of the leaves of `split` from its own value."""
        (leaf,) = (parser for _, parser in self._leaves if parser.name == name)
        return leaf.split(value, rows)


def flatten_observation(space: spaces.Space[Any], observation: Any) -> dict[str, np.ndarray]:
    """Return the leaves of one observation, or of a batch of them. See `ObservationParser`."""
    return ObservationParser(space).split(observation)


def encode_text(space: spaces.Text, texts: Any, name: str = DEFAULT_KEY) -> Tokens:
    """Encode a text, or any nesting of sequences and arrays of texts, as tokens; L = `max_length`.

    Raises `OutOfSpaceError` if a text is too long or has a character that is not in the space.
    """
    array = np.asarray(texts, np.object_)  # arrays of characters drop a NUL at the end
    rows = [_tokens(space, str(text), name, row) for row, text in enumerate(array.flatten())]
    return np.array(rows, stored_dtype(space)).reshape(*array.shape, space.max_length)


def integer_bounds(leaf: spaces.Space[Any]) -> tuple[Any, Any]:
    """Return the smallest and the largest value of a leaf of integers: one number each, or an array of its shape."""
    if isinstance(leaf, spaces.Discrete):
        return int(leaf.start), int(leaf.start) + int(leaf.n) - 1
    if isinstance(leaf, spaces.MultiDiscrete):
        start = leaf.start.astype(np.int64)
        return start, start + leaf.nvec.astype(np.int64) - 1
    return (leaf.low.astype(np.int64), leaf.high.astype(np.int64)) if isinstance(leaf, spaces.Box) else (0, 1)


class _NumberParser:
    """Checks and converts a leaf of numbers."""

    def __init__(self, name: str, leaf: Leaf) -> None:
        self.name = name
        self._leaf = leaf
        self._shape = stored_shape(leaf)
        self._dtype = np.dtype(stored_dtype(leaf))
        self._start: Any = None
        """Smallest category, which becomes 0; None: no categories."""
        self._range: tuple[Any, Any] | None = None
        """Smallest and largest integer, one or an array; None: not integers."""
        self._type_range: tuple[int, int] | None = None
        """Smallest and largest integer of the type of a Box of integers."""
        self._excludes_ends = False
        """Whether the ends of the range of a signed type of 32 or more bits are refused, as large floats are."""
        if isinstance(leaf, spaces.Discrete | spaces.MultiDiscrete):
            self._start = integer_bounds(leaf)[0]
            self._range = integer_bounds(leaf)
        elif not isinstance(leaf, spaces.Box):
            self._range = integer_bounds(leaf)
        elif leaf.dtype == np.bool_:
            self._range = 0, 1
        elif np.issubdtype(leaf.dtype, np.integer):
            limits = np.iinfo(np.dtype(leaf.dtype).name)
            low, high = self._type_range = int(limits.min), int(limits.max)
            self._excludes_ends = bool(low < 0 and limits.bits >= 32)
            if self._excludes_ends:
                low, high = low + 1, high - 1
            if self._dtype.kind == "f":  # beyond, it skips integers
                exact = 2 ** (int(np.finfo(self._dtype.name).nmant) + 1)
                low, high = max(low, -exact), min(high, exact)
            self._range = low, high

    def stack(self, values: Sequence[Any]) -> Shaped[np.ndarray, "E ..."]:
        if (masked_row := find_masked(values)) is not None:
            raise _masked_error(self.name, masked_row)
        try:
            array = np.array(values)
        except (ValueError, TypeError, RuntimeError):  # values of different shapes, or whatever their classes raise
            array = np.zeros(0, object)
        if array.dtype.kind not in "biuf" or array.shape[1:] != self._shape:
            arrays = []
            for row, value in enumerate(values):
                arrays.append(self._to_array(value, row))
                if arrays[row].shape != self._shape:
                    raise ObservationShapeError(self.name, arrays[row].shape, self._shape, row)
            array = np.stack(arrays)
        self._check(array, None)
        return self._convert(array, copy=False)

    def split(self, value: Any, rows: Bool[np.ndarray, "E"] | None) -> Shaped[np.ndarray, "..."]:
        if has_masked(value, rows):
            raise _masked_error(self.name, 0)
        array = self._to_array(value, 0)
        num_leading = array.ndim - len(self._shape)
        first = array.shape[:1] if rows is None else rows.shape
        if array.shape not in ((*first, *self._shape), self._shape if rows is None else None):
            raise ObservationShapeError(self.name, array.shape, (*first, *self._shape))
        if num_leading:
            self._check(array, rows)
        else:
            self._check(array[None], None)
        return self._convert(array, copy=array.dtype not in (np.uint8, np.bool_))

    def _to_array(self, value: Any, row: int) -> Shaped[np.ndarray, "..."]:
        """Return a value as an array of numbers."""
        try:
            array = np.asarray(value)
        except (ValueError, TypeError, RuntimeError) as error:
            raise OutOfSpaceError(f"observation {self.name!r} is no array ({error})", row) from error
        if array.dtype.kind not in "biuf":
            found = array.flat[0] if array.size else array
            raise OutOfSpaceError(
                f"observation {self.name!r} is {short_value(found)}, which is not in {describe_space(self._leaf)}", row
            )
        return array

    def _check(self, array: Shaped[np.ndarray, "E ..."], rows: Bool[np.ndarray, "E"] | None) -> None:
        checked = array if rows is None else array[rows]
        if self._is_valid(checked):
            return
        wrong = self._find_wrong(checked)
        if not wrong.any():  # NaN or infinity
            return
        index = tuple(int(each) for each in np.argwhere(wrong)[0])
        row = index[0] if rows is None else int(np.flatnonzero(rows)[index[0]])
        where = f" at {list(index[1:])}" if index[1:] else ""
        found = f"observation {self.name!r} is {short_value(checked[index])}{where}"
        space = describe_space(self._leaf)
        if self._range is None:
            limit = f"{MAX_ABS_OBSERVATION:g} (does it mark a missing value?)"
            raise OutOfSpaceError(f"{found} of {space}, expected magnitudes below {limit}", row)
        if self._excludes_ends and checked[index] in (self._type_range or ()):
            raise OutOfSpaceError(
                f"{found} of {space}, an end of the range of {self._leaf.dtype}, expected a number inside (does "
                "it mark a missing value?)",
                row,
            )
        low, high = self._type_range or (0, -1)
        if low <= checked[index] <= high and checked[index] % 1 == 0:
            limit = f"{self._range[1]:,}, beyond which {self._dtype} rounds"
            remedy = "subtract a start, or declare bits as MultiBinary"
            remedy = "widen its bounds" if self._dtype == np.float32 else remedy
            raise OutOfSpaceError(f"{found} of {space}, expected at most {limit} ({remedy})", row)
        raise OutOfSpaceError(f"{found}, which is not in {space}", row)

    def _is_valid(self, array: Shaped[np.ndarray, "E ..."]) -> bool:
        """Return whether no number is wrong, NaN or infinite."""
        if not array.size or (array.dtype == self._leaf.dtype and self._holds_all_integers()):
            return True
        if self._range is None:
            return float(np.abs(array).max()) < MAX_ABS_OBSERVATION
        low, high = self._range
        if array.dtype.kind == "f" and not (array == np.floor(array)).all():
            return False
        if self._start is None or isinstance(self._start, int):
            return bool(array.min() >= low and array.max() <= high)
        return bool(((array >= low) & (array <= high)).all())

    def _find_wrong(self, array: Shaped[np.ndarray, "E ..."]) -> Bool[np.ndarray, "E ..."]:
        """Return where numbers are wrong; NaN and infinity are not wrong in a Box of floats."""
        if self._range is None:
            return np.isfinite(array) & (np.abs(array) >= np.float64(MAX_ABS_OBSERVATION))
        low, high = self._range
        is_whole = array == np.floor(array) if array.dtype.kind == "f" else True
        return ~((array >= low) & (array <= high) & is_whole)

    def _holds_all_integers(self) -> bool:
        """Return whether the leaf is a Box of integers in which all numbers of its type are valid."""
        if self._type_range is None:
            return False
        return self._range == self._type_range

    def _convert(self, array: Shaped[np.ndarray, "..."], *, copy: bool) -> np.ndarray:
        if self._start is not None:
            return np.asarray(array.astype(np.int64) - self._start)
        return array.astype(self._dtype, copy=copy)


class _TextParser:
    """Checks and converts a leaf of texts."""

    def __init__(self, name: str, leaf: spaces.Text) -> None:
        self.name = name
        self._leaf = leaf

    def stack(self, values: Sequence[Any]) -> Tokens:
        return self.split(list(values), None)

    def split(self, value: Any, rows: Bool[np.ndarray, "E"] | None) -> Tokens:
        is_single = isinstance(value, str)
        texts = [value] if is_single else np.asarray(value, object).reshape(-1).tolist()
        for row, text in enumerate(texts):
            if rows is not None and not rows[row]:
                texts[row] = ""
            elif not isinstance(text, str):
                raise OutOfSpaceError(f"observation {self.name!r} is {short_value(text)}, expected a text", row)
        tokens = encode_text(self._leaf, texts, self.name)
        return tokens[0] if is_single else tokens


def _masked_error(name: str, row: int) -> OutOfSpaceError:
    problem = "has masked entries (numpy.ma), whose numbers stand for nothing"
    remedy = "fill them, and say which are missing by a feature of its own"
    return OutOfSpaceError(f"observation {name!r} {problem}: {remedy}", row)


def _select(observations: Sequence[Any], keys: Keys) -> list[Any]:
    """Return the values of a leaf in nested observations. Raises `OutOfSpaceError` where one lacks it."""
    try:
        if len(keys) == 1:
            (key,) = keys
            return [observation[key] for observation in observations]
        return [reduce(getitem, keys, observation) for observation in observations]
    except (KeyError, IndexError, TypeError):
        for row, observation in enumerate(observations):
            _check_keys(observation, keys, row)
        raise


def _check_keys(observation: Any, keys: Keys, row: int) -> None:
    value = observation
    for depth, key in enumerate(keys):
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError) as error:
            where = f"observation {leaf_name(keys[:depth])!r}" if depth else "the observation"
            keyed = ", ".join(map(repr, value)) if isinstance(value, Mapping) else ""
            found = f"has the keys {keyed}" if keyed else f"is {short_value(value)}"
            raise OutOfSpaceError(f"{where} {found}, expected an entry {key!r} by its space", row) from error


def _tokens(space: spaces.Text, text: str, name: str, row: int) -> list[int]:
    if len(text) > space.max_length:
        raise OutOfSpaceError(
            f"observation {name!r} has {len(text)} characters, its space allows {space.max_length} (max_length)",
            row,
        )
    numbers = _numbers(space.characters)
    unknown = [character for character in text if character not in numbers]
    if unknown:
        raise OutOfSpaceError(
            f"observation {name!r} has the character {unknown[0]!r}, which is not in the charset of its space",
            row,
        )
    return [numbers[character] for character in text] + [0] * (space.max_length - len(text))


@cache
def _numbers(characters: str) -> Mapping[str, int]:
    return {character: number for number, character in enumerate(sorted(characters), start=1)}


def short_value(value: Any) -> str:
    """Return a value in at most 60 characters of one line; numbers of NumPy as plain ones."""
    if isinstance(value, np.generic):
        value = value.item()
    text = " ".join((f"an array of shape {value.shape}" if isinstance(value, np.ndarray) else repr(value)).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def copy_arrays(value: Any) -> Any:
    """Return a value of nested dicts, tuples, lists and deques with copies of its arrays and tensors."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {name: copy_arrays(part) for name, part in value.items()}
    if isinstance(value, tuple):
        copies = map(copy_arrays, value)
        return value._make(copies) if hasattr(value, "_make") else tuple(copies)
    if isinstance(value, list | deque):
        return list(map(copy_arrays, value))
    is_tensor = type(value).__module__ == "torch"  # which is not imported for it
    return value.clone() if is_tensor and hasattr(value, "clone") else value
