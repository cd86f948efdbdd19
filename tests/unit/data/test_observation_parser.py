"""Observations are checked against their space: one line names the leaf, the value and the space."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium import spaces

from yamame.data.observations import (
    ObservationParser,
    ObservationShapeError,
    OutOfSpaceError,
    copy_arrays,
    flatten_observation,
)
from yamame.data.spaces import flatten_space
from yamame.errors import UserError

BIT = np.array([0, 1], np.int8)
REFUSED: dict[str, tuple[spaces.Space[Any], Any, str]] = {
    "category above": (spaces.Discrete(3), 3, "observation 'x' is 3, which is not in Discrete(3)"),
    "category below": (spaces.Discrete(3), np.int64(-1), "is -1, which is not in Discrete(3)"),
    "category below its start": (spaces.Discrete(3, start=2), 1, "is 1, which is not in Discrete(3, start=2)"),
    "half a category": (spaces.Discrete(3), 0.5, "is 0.5, which is not in Discrete(3)"),
    "no category": (spaces.Discrete(3), None, "is None, which is not in Discrete(3)"),
    "NaN as category": (spaces.Discrete(3), np.nan, "is nan, which is not in Discrete(3)"),
    "category of a small type": (
        spaces.Discrete(5, dtype=np.int8),
        300,
        "is 300, which is not in Discrete(5, dtype=int8)",
    ),
    "one of several categories": (
        spaces.MultiDiscrete([2, 3]),
        [1, 3],
        "is 3 at [1], which is not in MultiDiscrete([2 3])",
    ),
    "categories with a start": (spaces.MultiDiscrete([2, 3], start=[5, 0]), [4, 0], "is 4 at [0]"),
    "categories that wrap": (spaces.MultiDiscrete([2, 3], np.int8), np.array([256, 0]), "is 256 at [0]"),
    "two as bit": (spaces.MultiBinary(2), [0, 2], "is 2 at [1], which is not in MultiBinary(2)"),
    "minus one as bit": (spaces.MultiBinary((2, 2)), [BIT, -BIT], "is -1 at [1, 1]"),
    "bit that wraps": (spaces.MultiBinary(2), np.array([256, 0]), "is 256 at [0]"),
    "pixel above a byte": (
        spaces.Box(0, 255, (2,), np.uint8),
        [0, 256],
        "is 256 at [1], which is not in Box(0, 255, (2,)",
    ),
    "pixel below zero": (spaces.Box(0, 255, (2,), np.uint8), np.array([0, -1]), "is -1 at [1]"),
    "pixel as fraction": (spaces.Box(0, 255, (2,), np.uint8), [0.5, 0.0], "is 0.5 at [0]"),
    "number beyond its type": (spaces.Box(-9, 9, (1,), np.int16), np.array([70_000]), "is 70000 at [0]"),
    "two in a Box of bools": (spaces.Box(0, 1, (1,), np.bool_), [2], "is 2 at [0]"),
    "too few numbers": (
        spaces.Box(-1, 1, (3,)),
        np.zeros(2),
        "observation 'x' has shape (2,), expected (3,) by its space",
    ),
    "a number in brackets": (spaces.Discrete(3), np.array([1]), "has shape (1,), expected ()"),
    "a column": (spaces.Box(-1, 1, (3,)), np.zeros((3, 1)), "has shape (3, 1), expected (3,)"),
    "ragged lists": (spaces.Box(-1, 1, (2, 2)), [[0.0], [0.0, 1.0]], "is no array"),
    "text as number": (spaces.Box(-1, 1, (1,)), ["1.0"], "is '1.0', which is not in Box(-1.0, 1.0, (1,), float32)"),
    "complex number": (spaces.Box(-1, 1, (1,)), [1j], "is 1j, which is not in Box"),
    "no echo": (
        spaces.Box(0, 30, (3,)),
        [1.0, 1e38, 2.0],
        "is 1e+38 at [1] of Box(0.0, 30.0, (3,), float32), expected magnitudes below 1e+30",
    ),
    "beyond float32": (
        spaces.Box(-np.inf, np.inf, (1,)),
        [-1e200],
        "is -1e+200 at [0] of Box(-inf, inf, (1,), float32), expected magnitudes below 1e+30",
    ),
    "largest float": (
        spaces.Box(-np.inf, np.inf, ()),
        np.finfo(np.float32).max,
        "is 3.4028234663852886e+38 of Box(-inf, inf, (), float32), expected",
    ),
    "largest integer": (
        spaces.Box(0, 9, (2,), np.int64),
        np.array([3, 2**63 - 1]),
        "is 9223372036854775807 at [1] of Box(0, 9, (2,), int64), an end of the range of int64",
    ),
    "smallest integer": (spaces.Box(-(2**31), 9, (1,), np.int32), [-(2**31)], "an end of the range of int32, expected"),
    "board of 64 bits": (
        spaces.Box(0, 2**50, (2,), np.uint64),
        np.array([0, 2**63 + 1], np.uint64),
        "is 9223372036854775809 at [1] of Box(0, 1125899906842624, (2,), uint64), expected at most "
        "9,007,199,254,740,992, beyond which float64 rounds (subtract a start, or declare bits as MultiBinary)",
    ),
    "nanoseconds": (spaces.Box(0, 2**50, (), np.int64), 1_800_000_000_000_000_001, "beyond which float64 rounds"),
    "integer that float32 rounds": (spaces.Box(0, 9, (1,), np.int32), [2**24 + 1], "float32 rounds (widen its bounds)"),
    "long text": (spaces.Text(3), "abcd", "has 4 characters, its space allows 3"),
    "other character": (spaces.Text(3, charset="ab"), "az", "has the character 'z'"),
    "number as text": (spaces.Text(3), 12, "is 12, expected a text"),
    "bytes as text": (spaces.Text(3), b"ab", "is b'ab', expected a text"),
}


def many(space: spaces.Space[Any], wrong: Any) -> list[Any]:
    """Observations of a Dict with the leaf x; the third one is wrong."""
    space.seed(0)
    return [{"x": space.sample(), "y": 0.0}, {"x": space.sample(), "y": 0.0}, {"x": wrong, "y": 0.0}]


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_in_the_space_is_named(name: str) -> None:
    space, wrong, message = REFUSED[name]
    parser = ObservationParser(spaces.Dict(x=space, y=spaces.Box(0, 1, ())))
    with pytest.raises(OutOfSpaceError) as error:
        parser.stack(many(space, wrong))
    assert message in str(error.value) and "\n" not in str(error.value)
    assert error.value.row == 2
    with pytest.raises(OutOfSpaceError) as error:
        parser.stack([many(space, wrong)[2]])
    assert message in str(error.value) and error.value.row == 0


@pytest.mark.parametrize(
    ("space", "values"),
    [
        (spaces.Discrete(3), [2, 2.0, True, np.uint8(2), np.array(2)]),
        (spaces.Discrete(3, start=-1), [-1, np.int8(1)]),
        (spaces.MultiDiscrete([2, 3]), [[1, 2], np.array([1.0, 2.0]), (0, 0)]),
        (spaces.MultiBinary(2), [[True, False], [0.0, 1.0], BIT]),
        (spaces.Box(-1, 1, (2,)), [[-5.0, 7.0], [1, 2], np.array([1e29, 0.0])]),
        (spaces.Box(-1, 1, (2,), np.float16), [np.array([1e6, 0.0])]),
        (spaces.Box(0, 9, (2,), np.int64), [[100, -3], [1.0, 2.0]]),
        (spaces.Box(0, 2**64 - 1, (1,), np.uint64), [np.array([2**53], np.uint64)]),
        (spaces.Box(-128, 127, (1,), np.int8), [np.array([-128], np.int8), [127]]),
        (spaces.Box(0, 255, (2,), np.uint8), [np.array([0, 255]), [3.0, 4.0]]),
        (spaces.Box(-1, 1, (1,)), [[np.nan], [np.inf]]),
        (spaces.Text(3), ["", "abc", np.str_("b")]),
    ],
    ids=str,
)
def test_what_is_as_good_as_in_the_space_is_taken(space: spaces.Space[Any], values: list[Any]) -> None:
    """Numbers beyond the bounds of a Box, too: observations are normalized. NaN and infinity are found later."""
    parser = ObservationParser(space)
    stacked = parser.stack(values)["observation"]
    for row, value in enumerate(values):
        single = parser.split(value)["observation"]
        np.testing.assert_array_equal(stacked[row], single)
        assert stacked.dtype == single.dtype and not np.shares_memory(stacked, np.asarray(value))
    assert not np.isfinite(stacked).all() if np.isnan(stacked).any() else np.isfinite(stacked).all()


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        ({"a": 0}, "observation 'b' lacks"),
        ({"b": {"c": 1}}, "the observation has the keys 'b', expected an entry 'a' by its space"),
        ({"a": 0, "b": {"d": 1}}, "observation 'b' has the keys 'd', expected an entry 'c'"),
        ({"a": 0, "b": np.zeros(1)}, "observation 'b' is an array of shape (1,), expected an entry 'c'"),
        (np.zeros(2), "the observation is an array of shape (2,), expected an entry 'a'"),
        (None, "the observation is None, expected an entry 'a'"),
    ],
)
def test_a_missing_leaf_is_named(observation: Any, message: str) -> None:
    parser = ObservationParser(spaces.Dict(a=spaces.Discrete(2), b=spaces.Dict(c=spaces.Discrete(2))))
    for parse in (lambda: parser.stack([{"a": 0, "b": {"c": 1}}, observation]), lambda: parser.split(observation)):
        with pytest.raises(OutOfSpaceError) as error:
            parse()
        assert message.replace("observation 'b' lacks", "expected an entry 'b'") in str(error.value)


def test_rows_that_do_not_count_may_have_any_value() -> None:
    parser = ObservationParser(spaces.Dict(a=spaces.Discrete(2, start=1), t=spaces.Text(2)))
    batch = {"a": np.array([0, 2, 7]), "t": (None, "ab", "far too long")}
    rows = np.array([False, True, False])
    leaves = parser.split(batch, rows)
    assert leaves["a"][1] == 1
    with pytest.raises(OutOfSpaceError, match="'a' is 7") as error:
        parser.split(batch, ~rows & np.array([False, True, True]))
    assert error.value.row == 2
    with pytest.raises(ObservationShapeError, match=r"\(3,\), expected \(2,\)"):
        parser.split(batch, np.ones(2, np.bool_))


def test_leaves_are_in_the_order_of_their_names_whatever_the_order_of_the_dict() -> None:
    parts = {"b": spaces.Discrete(2), "a": spaces.Tuple([spaces.Box(0, 1, (1,)), spaces.Dict(z=spaces.Discrete(3))])}
    one, other = spaces.Dict(**parts), spaces.Dict(list(reversed(parts.items())))
    assert one == other and list(one.spaces) != list(other.spaces)
    assert list(flatten_space(one)) == list(flatten_space(other)) == ["a/0", "a/1/z", "b"]
    one.seed(0)
    sample = one.sample()
    assert list(flatten_observation(one, sample)) == list(flatten_observation(other, sample))


def test_two_leaves_of_one_name_are_refused() -> None:
    for space in (
        spaces.Dict({1: spaces.Discrete(2), "1": spaces.Discrete(2)}),
        spaces.Dict({"a/b": spaces.Discrete(2), "a": spaces.Dict(b=spaces.Discrete(2))}),
    ):
        with pytest.raises(UserError, match=r"two leaves called '(1|a/b)'"):
            ObservationParser(space)


def test_copies_of_named_tuples_share_no_array() -> None:
    class Sight(NamedTuple):
        near: np.ndarray
        far: list[np.ndarray]

    before = Sight(np.zeros(2), [np.zeros(3)])
    copy = copy_arrays({"sight": before})["sight"]
    before.near[:] = before.far[0][:] = 1.0
    assert type(copy) is Sight and not copy.near.any() and not copy.far[0].any()
