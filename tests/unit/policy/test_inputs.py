"""What a loaded policy accepts as inputs, and the line that says what does not fit."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from yamame.data.goals import INSTRUCTION_KEY
from yamame.errors import UserError
from yamame.policy.inputs import ActInputs

ROOM = spaces.Dict(
    camera=spaces.Box(0, 255, (2, 2), np.uint8),
    body=spaces.Dict(speed=spaces.Box(-1.0, 1.0, (2,), np.float32), gear=spaces.Discrete(3, start=1)),
    pair=spaces.Tuple([spaces.MultiDiscrete([2, 3], start=[0, 5]), spaces.MultiBinary(2)]),
    counts=spaces.Box(-5, 5, (2,), np.int16),
    word=spaces.Text(4, charset="abc"),
)
SEEN: dict[str, Any] = {
    "camera": np.array([[0, 255], [7, 8]], np.uint8),
    "body": {"speed": np.array([0.5, -0.5]), "gear": 3},
    "pair": (np.array([1, 7]), np.array([0, 1])),
    "counts": np.array([-5, 5]),
    "word": "ab",
}
WITHOUT_WORD = {name: part for name, part in SEEN.items() if name != "word"}
ONE = np.ones(1, np.bool_)


def changed(path: str, value: Any) -> dict[str, Any]:
    """`SEEN` with another value at a path of keys."""
    first, _, rest = path.partition("/")
    if not rest:
        return {**SEEN, first: value}
    inside = SEEN[first]
    if isinstance(inside, tuple):
        return {**SEEN, first: tuple(value if str(n) == rest else part for n, part in enumerate(inside))}
    return {**SEEN, first: {**inside, rest: value}}


def test_what_fits_is_converted() -> None:
    leaves = ActInputs(ROOM, num_envs=None).observation(SEEN, ONE)
    assert {name: leaf[0].tolist() for name, leaf in leaves.items()} == {
        "camera": [[0, 255], [7, 8]],
        "body/speed": [0.5, -0.5],
        "body/gear": 2,
        "pair/0": [1, 2],
        "pair/1": [0.0, 1.0],
        "counts": [-5.0, 5.0],
        "word": [1, 2, 0, 0],
    }
    assert leaves["camera"].dtype == np.uint8 and leaves["body/gear"].dtype == np.int64


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("body/gear", 3.0),
        ("body/gear", np.array(3)),
        ("body/gear", torch.tensor(3)),
        ("body/speed", [0, 1]),
        ("body/speed", torch.tensor([0.0, 5.0])),
        ("camera", SEEN["camera"].astype(np.float64)),
        ("pair", list(SEEN["pair"])),
        ("pair/1", [True, False]),
        ("counts", [9, -9]),  # only warned of, like all bounds
        ("word", ""),
    ],
)
def test_other_kinds_of_the_same_values_are_taken(path: str, value: Any) -> None:
    ActInputs(ROOM, num_envs=None).observation(changed(path, value), ONE)


class Unreadable:
    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("is on a GPU\nand so on")


REFUSED: list[tuple[Any, str]] = [
    (np.zeros(4), "expected the observation to be a dict with the keys ['camera', "),
    (None, "got None (NoneType)"),
    ((SEEN, {}), "env.reset() returns observation and info, pass the observation alone"),
    ([SEEN, SEEN], "got a list of 2"),
    (WITHOUT_WORD, "the observation has no 'word': expected the keys"),
    ({**SEEN, "sonar": 1.0}, "the observation has 'sonar', which the policy was not trained with: expected the keys"),
    (changed("body", np.zeros(3)), "expected observation 'body' to be a dict with the keys ['speed', 'gear'], got an "),
    (changed("body", {"speed": [0, 0]}), "observation 'body' has no 'gear'"),
    (changed("body/gears", 1), "observation 'body' has 'gears'"),
    (
        changed("pair", np.zeros((2, 2))),
        "expected observation 'pair' to be a tuple of 2 parts, got an array of float64",
    ),
    (changed("pair", SEEN["pair"][:1]), "to be a tuple of 2 parts, got a tuple of 1"),
    (changed("body/speed", {"x": 1}), "to be numbers of shape (2,), got a dict with the keys ['x']"),
    (changed("body/speed", [0.0]), "expected observation 'body/speed' to have shape (2,), got (1,)"),
    (changed("body/speed", [[0.0, 0.0]]), "to have shape (2,), got (1, 2): pass num_envs=k to yamame.load for k"),
    (changed("body/speed", [[0.0], [0.0, 1.0]]), "to be numbers of shape (2,), got a list of 2 ("),
    (changed("body/speed", ["a", "b"]), "to be numbers of shape (2,), got a list of 2"),
    (changed("body/speed", [None, 0.0]), "to be numbers of shape (2,), got a list of 2"),
    (changed("body/speed", [1j, 0]), "to be numbers of shape (2,), got a list of 2"),
    (changed("body/speed", Unreadable()), "is on a GPU)"),
    (changed("body/speed", torch.zeros(2, requires_grad=True)), "requires grad"),
    (changed("body/speed", [0.0, np.nan]), "observation 'body/speed' has NaN or infinite numbers"),
    (changed("body/speed", [0.0, -np.inf]), "observation 'body/speed' has NaN or infinite numbers"),
    (changed("body/speed", [0.0, 1e200]), "observation 'body/speed' is 1e+200 at [1] of Box"),
    (changed("body/gear", 4), "observation 'body/gear' is 4, which is not in Discrete(3, start=1)"),
    (changed("body/gear", 0), "observation 'body/gear' is 0, which is not in"),
    (changed("body/gear", -1), "observation 'body/gear' is -1, which is not in"),
    (changed("body/gear", 1.5), "observation 'body/gear' is 1.5, which is not in Discrete"),
    (changed("body/gear", np.nan), "observation 'body/gear' is nan, which is not in Discrete"),
    (changed("body/gear", [1]), "to have shape (), got (1,)"),
    (changed("body/gear", "1"), "to be a number, got '1' (str)"),
    (changed("body/gear", 2**80), "to be a number, got"),
    (changed("pair/0", [2, 5]), "observation 'pair/0' is 2 at [0], which is not in MultiDiscrete"),
    (changed("pair/0", [0, 4]), "observation 'pair/0' is 4 at [1], which is not in MultiDiscrete"),
    (changed("pair/1", [0, 2]), "observation 'pair/1' is 2 at [1], which is not in MultiBinary(2)"),
    (
        changed("camera", SEEN["camera"] / 255.0),
        "observation 'camera' is 0.027450980392156862 at [1, 0], which is not in Box",
    ),
    (
        changed("camera", SEEN["camera"].astype(int) + 1),
        "observation 'camera' is 256 at [0, 1], which is not in Box",
    ),
    (
        changed("camera", SEEN["camera"].astype(int) - 1),
        "observation 'camera' is -1 at [0, 0], which is not in Box",
    ),
    (changed("counts", [0.5, 0]), "observation 'counts' is 0.5 at [0], which is not in Box(-5, 5"),
    (changed("word", 3), "expected observation 'word' to be a text, got 3 (int)"),
    (changed("word", ["a"]), "expected observation 'word' to have shape (), got (1,)"),
    (changed("word", "abcab"), "observation 'word' has 5 characters, its space allows 4"),
    (changed("word", "x"), "observation 'word' has the character 'x'"),
]


@pytest.mark.parametrize(("observation", "problem"), REFUSED, ids=[problem for _, problem in REFUSED])
def test_what_does_not_fit_is_one_line(observation: Any, problem: str) -> None:
    with pytest.raises(UserError) as caught:
        ActInputs(ROOM, num_envs=None).observation(observation, ONE)
    assert problem in str(caught.value) and "\n" not in str(caught.value)


def batch(count: int) -> dict[str, Any]:
    """`SEEN` for several environments."""

    def repeat(part: Any) -> Any:
        if isinstance(part, dict):
            return {name: repeat(inside) for name, inside in part.items()}
        return tuple(map(repeat, part)) if isinstance(part, tuple) else np.stack([part] * count)

    return repeat(SEEN)


def test_a_batch_of_another_size() -> None:
    inputs, all_step = ActInputs(ROOM, num_envs=3), np.ones(3, np.bool_)
    assert inputs.observation(batch(3), all_step)["word"].shape == (3, 4)
    for observation, found in ((batch(2), "(2, 2)"), (batch(4), "(4, 2)"), (SEEN, "(2,)")):
        with pytest.raises(UserError, match=r"expected observation 'body/speed' to have shape \(3, 2\), got") as caught:
            inputs.observation({**batch(3), "body": observation["body"]}, all_step)
        assert found in str(caught.value)


def test_what_is_passed_for_environments_that_do_not_step_is_ignored() -> None:
    observation, steps = batch(3), np.array([True, False, True])
    observation["body"] = {"speed": np.array([[0.5, 0.5], [np.nan, 1e300], [0.1, 0.1]]), "gear": np.array([1, 99, 3])}
    observation["word"] = ["a", "neither so short nor of the charset", "b"]
    leaves = ActInputs(ROOM, num_envs=3).observation(observation, steps)
    assert leaves["body/gear"].tolist() == [0, 0, 2] and leaves["body/speed"][1].tolist() == [0.0, 0.0]
    assert leaves["word"][:, 0].tolist() == [1, 0, 2]
    for gears in ([1, 99, 0], [1.5, 99, 1]):
        observation["body"]["gear"] = np.array(gears)
        with pytest.raises(UserError, match="observation 'body/gear'"):
            ActInputs(ROOM, num_envs=3).observation(observation, steps)
    reward = ActInputs(ROOM, num_envs=3).reward(np.array([1.0, np.nan, 2.0]), steps)
    assert reward.tolist() == [1.0, 0.0, 2.0]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (np.nan, "expected reward to be finite and below 1e+15 in size, got nan"),
        (1e39, "expected reward to be finite and below 1e+15 in size, got 1e+39"),
        ([0.0, 1.0], "got shape (2,)"),
        ([0.5], "got shape (1,)"),
        (None, "got None (NoneType)"),
        ("1", "got '1' (str)"),
        ({"total": 1.0}, "got a dict with the keys ['total']"),
        (torch.tensor(1.0, requires_grad=True), "requires grad"),
    ],
)
def test_rewards_that_are_refused(value: Any, problem: str) -> None:
    with pytest.raises(UserError, match="expected reward to be ") as caught:
        ActInputs(ROOM, num_envs=None).reward(value, ONE)
    assert problem in str(caught.value) and "\n" not in str(caught.value)


def test_rewards_and_flags_of_several_environments() -> None:
    inputs, all_step = ActInputs(ROOM, num_envs=3), np.ones(3, np.bool_)
    assert inputs.reward(0.5, all_step).tolist() == [0.5] * 3
    assert inputs.reward(np.arange(3), all_step).dtype == np.float32
    assert inputs.flags("episode_start", np.array([0.0, 1.0, 0.0])).tolist() == [False, True, False]
    for value in (np.zeros(2), np.zeros((3, 1)), np.zeros((1,))):
        with pytest.raises(UserError, match=r"expected reward to be numbers of shape \(3,\), got shape"):
            inputs.reward(value, all_step)
        with pytest.raises(UserError, match=r"expected episode_start to be numbers of shape \(3,\), got shape"):
            inputs.flags("episode_start", value)
    for value, found in (([0, 2, 1], "[0, 2, 1]"), (0.5, "0.5"), (np.nan, "nan")):
        with pytest.raises(UserError, match="expected step_mask to be true or false, got") as caught:
            inputs.flags("step_mask", value)
        assert found in str(caught.value)
    for value in (None, "no", [True, "no", False]):
        with pytest.raises(UserError, match="expected reset_mask to be numbers"):
            inputs.flags("reset_mask", value)


def test_leaves_that_a_policy_does_not_observe() -> None:
    ActInputs(ROOM, num_envs=None, ignores_unknown=True).observation({**SEEN, "dropped": object()}, ONE)
    with pytest.raises(UserError, match="has no 'word'"):
        ActInputs(ROOM, num_envs=None, ignores_unknown=True).observation(WITHOUT_WORD, ONE)
    goals = spaces.Dict({INSTRUCTION_KEY: spaces.Box(-1.0, 1.0, (1, 2), np.float32)})
    seen = {INSTRUCTION_KEY: np.zeros((1, 2)), "achieved_goal": np.zeros(2), "desired_goal": np.zeros(2)}
    assert list(ActInputs(goals, num_envs=None).observation(seen, ONE)) == [INSTRUCTION_KEY]


def test_the_leaf_outside_of_its_bounds() -> None:
    inputs = ActInputs(ROOM, num_envs=None)
    for path, value, expected in (("counts", [9, 0], "counts"), ("body/speed", [0.0, -1.5], "body/speed")):
        leaves = inputs.observation(changed(path, value), ONE)
        assert inputs.leaf_outside_bounds(leaves, ONE) == expected
        assert inputs.leaf_outside_bounds(leaves, ~ONE) is None
    assert inputs.leaf_outside_bounds(inputs.observation(SEEN, ONE), ONE) is None
