import json
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from yamame.data.observations import flatten_observation
from yamame.data.spaces import flatten_space, space_from_json, space_to_json
from yamame.errors import UserError

NESTED = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (2, 3, 1), np.uint8),
        "body": spaces.Tuple([spaces.Discrete(3, start=-1), spaces.Dict({"angle": spaces.Box(-np.pi, np.pi, ())})]),
        "flags": spaces.MultiBinary([2, 2]),
        "cards": spaces.MultiDiscrete([4, 13]),
        "note": spaces.Text(4, min_length=0, charset="abc"),
    }
)
UNSUPPORTED = [
    spaces.Sequence(spaces.Discrete(2)),
    spaces.Graph(spaces.Discrete(2), None),
    spaces.OneOf([spaces.Discrete(2), spaces.Discrete(3)]),
]


def type_name(space: spaces.Space[Any]) -> str:
    return type(space).__name__


def test_leaves_of_any_nesting_have_path_names() -> None:
    leaves = flatten_space(NESTED)
    assert set(leaves) == {"camera", "body/0", "body/1/angle", "flags", "cards", "note"}
    assert leaves["body/1/angle"] == spaces.Box(-np.pi, np.pi, ())


def test_a_bare_space_is_one_leaf() -> None:
    assert flatten_space(spaces.Discrete(3)) == {"observation": spaces.Discrete(3)}


@pytest.mark.parametrize("space", UNSUPPORTED, ids=type_name)
def test_unsupported_spaces_are_the_users_mistake(space: spaces.Space[Any]) -> None:
    for nested in (space, spaces.Dict({"x": spaces.Tuple([space])})):
        with pytest.raises(UserError, match=type_name(space)):
            flatten_space(nested)
    with pytest.raises(UserError, match=type_name(space)):
        space_to_json(space)


def test_observations_flatten_to_the_leaves_of_their_space() -> None:
    observation = {
        "camera": np.full((2, 3, 1), 200, np.uint8),
        "body": (np.int64(1), {"angle": np.float64(0.5)}),
        "flags": np.eye(2, dtype=np.int8),
        "cards": np.array([3, 12]),
        "note": "cab",
    }
    flat = flatten_observation(NESTED, observation)
    assert list(flat) == list(flatten_space(NESTED))
    assert flat["camera"].dtype == np.uint8 and flat["camera"].max() == 200
    assert flat["body/0"].dtype == np.int64 and flat["body/0"] == 2, "counted from zero"
    assert flat["body/1/angle"].dtype == np.float32 and flat["body/1/angle"] == 0.5
    assert flat["flags"].dtype == np.float32 and flat["flags"].tolist() == [[1, 0], [0, 1]]
    assert flat["cards"].dtype == np.int64 and flat["cards"].tolist() == [3, 12]
    assert flat["note"].dtype == np.uint8 and flat["note"].tolist() == [3, 1, 2, 0]


def test_batches_flatten_like_single_observations() -> None:
    samples = [NESTED.sample() for _ in range(4)]
    batch = {
        "camera": np.stack([sample["camera"] for sample in samples]),
        "body": (
            np.array([sample["body"][0] for sample in samples]),
            {"angle": np.array([sample["body"][1]["angle"] for sample in samples])},
        ),
        "flags": np.stack([sample["flags"] for sample in samples]),
        "cards": np.stack([sample["cards"] for sample in samples]),
        "note": tuple(sample["note"] for sample in samples),
    }
    together = flatten_observation(NESTED, batch)
    for row, sample in enumerate(samples):
        for name, leaf in flatten_observation(NESTED, sample).items():
            np.testing.assert_array_equal(together[name][row], leaf)


def test_categories_with_a_start_count_from_zero() -> None:
    space = spaces.MultiDiscrete([3, 4], start=[10, -2])
    assert flatten_observation(space, np.array([12, -2]))["observation"].tolist() == [2, 0]


def test_boolean_boxes_stay_boolean() -> None:
    space = spaces.Box(0, 1, (2,), np.bool_)
    assert flatten_observation(space, np.array([True, False]))["observation"].dtype == np.bool_


@pytest.mark.parametrize(
    "space",
    [
        NESTED,
        spaces.Discrete(7, start=3),
        spaces.Box(np.array([-1.0, -np.inf], np.float32), np.array([np.inf, 0.1], np.float32)),
        spaces.Box(-1e-3, 1 / 3, (2, 1), np.float64),
        spaces.Box(0, 255, (2, 2, 3), np.uint8),
        spaces.MultiBinary(4),
        spaces.MultiDiscrete([[2, 3], [4, 5]]),
        spaces.MultiDiscrete([3, 4], start=[10, -2]),
        spaces.MultiDiscrete([3, 4], np.int32),
        spaces.Text(7, min_length=2, charset="日 b"),
        spaces.Tuple([spaces.Discrete(2), spaces.Tuple([])]),
    ],
    ids=str,
)
def test_json_round_trip(space: spaces.Space[Any]) -> None:
    described = json.loads(json.dumps(space_to_json(space)))
    assert space_from_json(described) == space


def test_bounds_of_long_floats_are_numbers_of_json() -> None:
    described = json.loads(json.dumps(space_to_json(spaces.Box(-1, 2, (2,), np.longdouble))))
    assert space_from_json(described) == spaces.Box(-1, 2, (2,), np.longdouble)


def test_an_unknown_kind_is_not_a_crash() -> None:
    with pytest.raises(UserError, match="Hologram"):
        space_from_json({"kind": "Hologram"})


def test_a_discrete_space_is_read_by_a_gymnasium_without_its_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    class EarlierDiscrete(spaces.Discrete):
        def __init__(self, n: int, seed: int | None = None, start: int = 0) -> None:
            super().__init__(n, seed=seed, start=start)

    written = space_to_json(spaces.Discrete(4, start=2))
    monkeypatch.setattr(spaces, "Discrete", EarlierDiscrete)
    read = space_from_json(written)
    assert (read.n, read.start) == (4, 2)
