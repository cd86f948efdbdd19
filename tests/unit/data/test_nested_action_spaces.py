"""Dict and Tuple actions: nested for the environment, one vector for the policy."""

import json
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from yamame.data.actions import check_action_space, policy_action_space, split_env_actions, to_env_action
from yamame.data.minari import from_env_action
from yamame.data.spaces import space_from_json, space_to_json
from yamame.envs.vector.action_masks import ActionMaskExtractor
from yamame.errors import UserError

CHOICES = spaces.Dict(
    turn=spaces.Discrete(3, start=-1),
    arm=spaces.Tuple([spaces.MultiBinary(2), spaces.MultiDiscrete([4, 5], start=[0, 1])]),
)
"""Its keys are not in alphabetical order, the order in which Gymnasium sorts those of a plain dict."""
JOINTS = spaces.Tuple([spaces.Box(0.0, 4.0, (2, 1)), spaces.Dict(z=spaces.Box(-1, 3, (), np.int64))])


@pytest.mark.parametrize("space", [CHOICES, JOINTS], ids=["choices", "joints"])
def test_actions_are_in_the_space_and_come_back(space: spaces.Space[Any]) -> None:
    policy = policy_action_space(check_action_space(space))  # type: ignore[arg-type]
    policy.seed(0)
    actions = np.stack([policy.sample() for _ in range(20)])
    native = to_env_action(space, actions)  # type: ignore[arg-type]
    assert batch_space(space, 20).contains(native)
    singles = split_env_actions(space, native)  # type: ignore[arg-type]
    assert len(singles) == 20 and all(space.contains(single) for single in singles)
    back = from_env_action(space, native)  # type: ignore[arg-type]
    if space is CHOICES:
        np.testing.assert_array_equal(back, actions)
    else:
        np.testing.assert_allclose(back[:, :2], actions[:, :2], atol=1e-6)  # the third was rounded


def test_parts_follow_the_order_of_their_keys() -> None:
    assert policy_action_space(CHOICES) == spaces.MultiDiscrete([2, 2, 4, 5, 3])
    (action,) = split_env_actions(CHOICES, to_env_action(CHOICES, np.array([[1, 0, 3, 4, 0]])))
    assert action["turn"] == -1
    assert action["arm"][0].tolist() == [1, 0] and action["arm"][1].tolist() == [3, 5]
    assert policy_action_space(JOINTS) == spaces.Box(-1.0, 1.0, (3,), np.float32)
    (joints,) = split_env_actions(JOINTS, to_env_action(JOINTS, np.array([[-1.0, 0.0, 1.0]], np.float32)))
    assert joints[0].tolist() == [[0.0], [2.0]] and joints[1]["z"] == 3


def test_the_order_survives_json() -> None:
    again = space_from_json(json.loads(json.dumps(space_to_json(CHOICES))))
    assert again == CHOICES and list(again.spaces) == ["turn", "arm"]  # type: ignore[attr-defined]


def extractor() -> ActionMaskExtractor:
    return ActionMaskExtractor("action_mask", spaces.Box(0.0, 1.0, (1,)), CHOICES)


def added(masks: list[Any]) -> np.ndarray:
    observation = {"observation": np.zeros((len(masks), 1), np.float32)}
    none = np.zeros(len(masks))
    return extractor().add_to(observation, masks, none.astype(np.int64), none.astype(np.bool_))["action_mask"]


ARM = [1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1]
NESTED = {"arm": ([[1, 0], [0, 1]], ([1, 0, 0, 0], [0, 0, 0, 0, 1])), "turn": [0, 1, 1]}


def test_masks_are_nested_as_the_action_or_flat_in_the_order_that_the_space_declares() -> None:
    flat = [0, 1, 1, *ARM]
    assert added([NESTED]).tolist() == added([flat]).tolist() == [[bool(allowed) for allowed in [*ARM, 0, 1, 1]]]


def test_masks_of_a_vector_info_are_split() -> None:
    turns = np.array([[0, 1, 1], [1, 0, 0]])
    info = {"action_mask": {"turn": turns, "_turn": np.ones(2, np.bool_)}, "_action_mask": np.array([True, False])}
    first, second = extractor().from_vector_info(info, 2)
    assert first["turn"].tolist() == [0, 1, 1] and list(first) == ["turn"] and second is None


def test_a_mask_with_other_keys_is_refused() -> None:
    with pytest.raises(UserError, match=r"keys \['turn'\], the action \['arm', 'turn'\]"):
        added([{"turn": [1, 1, 1]}])
