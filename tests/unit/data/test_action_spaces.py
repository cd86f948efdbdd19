from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from yamame.data.actions import action_size, check_action_space, has_allowed_action, num_choices, zero_action
from yamame.errors import UserError

NUMBER = spaces.Discrete(2)


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
        (spaces.Box(0.0, 1.0, ()), ()),
        (spaces.Dict(b=NUMBER, a=spaces.MultiDiscrete([3, 4])), (2, 3, 4)),
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
        (spaces.Dict(), "is empty"),
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
