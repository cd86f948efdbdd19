from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from yamame.data.actions import action_size, check_action_space, has_allowed_action, num_choices, zero_action
from yamame.errors import UserError

NUMBER = spaces.Discrete(2)
LARGEST = float(np.finfo(np.float32).max)
UNBOUNDED = [
    spaces.Box(-LARGEST, LARGEST, (1,)),
    spaces.Box(-LARGEST, 1.0, (2,), np.float64),
    spaces.Box(-1.0, np.finfo(np.float64).max, (1,), np.float64),
    spaces.Box(-65504, 65504, (1,), np.float16),
    spaces.Box(0.0, 1e30, (1,)),
    spaces.Box(-(2.0**63), 2.0**63, (1,)),
    spaces.Box(-(2**63), 2**63 - 1, (1,), np.int64),
    spaces.Box(0, 2**31 - 1, (1,), np.int32),
    spaces.Box(0, 2**32 - 1, (1,), np.uint32),
    spaces.Box(np.array([-1.0, -LARGEST], np.float32), np.array([1.0, 0.0], np.float32)),
]
"""Bounds of the size of the largest numbers, which are declared for "no bounds"."""


@pytest.mark.parametrize(
    ("space", "sizes"),
    [
        (spaces.Discrete(5, start=3), (5,)),
        (spaces.MultiDiscrete([2, 7]), (2, 7)),
        (spaces.MultiDiscrete([[2, 3], [4, 5]]), (2, 3, 4, 5)),
        (spaces.MultiBinary(3), (2, 2, 2)),
        (spaces.MultiBinary((2, 2)), (2, 2, 2, 2)),
        (spaces.Box(-2.0, 3.0, (4,)), ()),
        (spaces.Box(0, 9, (2, 3), np.int32), ()),
        (spaces.Box(0, 255, (3,), np.uint8), ()),
        (spaces.Box(-(2**15), 2**15 - 1, (1,), np.int16), ()),
        (spaces.Box(-1e12, 1e12, (1,)), ()),
        (spaces.Box(0, 1, (3,), np.bool_), ()),
        (spaces.Box(0.0, 1.0, ()), ()),
        (spaces.Dict(b=NUMBER, a=spaces.MultiDiscrete([3, 4])), (3, 4, 2)),
        (spaces.Tuple([spaces.Box(-1.0, 1.0, (2,)), spaces.Dict(a=spaces.Box(0.0, 1.0))]), ()),
    ],
    ids=str,
)
def test_supported_action_spaces_come_back(space: spaces.Space[Any], sizes: tuple[int, ...]) -> None:
    assert check_action_space(space) is space
    assert num_choices(space) == sizes


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Box(-np.inf, np.inf, (2,)), "infinite bounds"),
        (spaces.Box(-1.0, np.inf, (2, 2)), "infinite bounds"),
        (spaces.Box(-1.0, 1.0, (0,)), "empty shape"),
        (spaces.Dict(a=NUMBER, b=spaces.Box(-1.0, 1.0, (40, 40))), r"mixes discrete parts \(a\) .* \(b\)"),
        (spaces.Tuple([NUMBER, spaces.Text(5)]), "Text is not supported"),
        (spaces.Tuple([spaces.Box(-1.0, np.inf, (2, 2))]), "infinite bounds"),
        *((box, "infinite bounds") for box in UNBOUNDED),
        (spaces.Dict(arm=spaces.Dict(torque=UNBOUNDED[0])), r"infinite bounds .* \(part 'arm/torque'\): declare"),
        (spaces.Dict(), "is empty"),
        (spaces.Dict({("arm", 0): NUMBER}), r"key \('arm', 0\), which is a tuple: expected names"),
        (spaces.Dict({True: NUMBER, False: NUMBER}), "key False, which is a bool"),
        (spaces.Dict(arm=spaces.Tuple([spaces.Dict({2.5: NUMBER})])), "key 2.5, which is a float"),
        (spaces.Text(5), "Text is not supported"),
        (spaces.Sequence(NUMBER), "Sequence is not supported"),
        (spaces.Graph(NUMBER, None), "Graph is not supported"),
        (spaces.OneOf([NUMBER]), "OneOf is not supported"),
    ],
)
def test_other_action_spaces_are_the_users_mistake(space: spaces.Space[Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        check_action_space(space)
    assert "\n" not in str(caught.value)


def test_sizes_and_blanks_of_what_the_policy_sees() -> None:
    for space, size, dtype in [
        (spaces.Discrete(4), 4, np.int64),
        (spaces.MultiDiscrete([2, 3]), 5, np.int64),
        (spaces.Box(-1.0, 1.0, (3,)), 3, np.float32),
    ]:
        blank = zero_action(space, 6)
        assert action_size(space) == size
        assert blank.dtype == dtype and blank.shape == (6, *space.shape) and not blank.any()


def test_every_component_needs_a_choice() -> None:
    mask = np.array([[1, 0, 0, 1, 0], [0, 0, 1, 1, 1], [1, 1, 0, 0, 0]], np.bool_)
    assert has_allowed_action(mask, (2, 3)).tolist() == [True, False, False]
    assert has_allowed_action(mask, (5,)).all()
