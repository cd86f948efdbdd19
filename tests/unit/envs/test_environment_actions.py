import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from yamame.data.actions import policy_action_space, to_env_action


def test_discrete_is_shifted_by_its_start():
    space = spaces.Discrete(4, start=-2)
    assert policy_action_space(space) == spaces.Discrete(4)
    assert to_env_action(space, np.array([0, 3])).tolist() == [-2, 1]


def test_box_is_mapped_linearly_onto_its_bounds():
    space = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 10.0], np.float32))
    assert policy_action_space(space) == spaces.Box(-1.0, 1.0, (2,), np.float32)
    native = to_env_action(space, np.array([[-1, -1], [0, 0], [1, 1], [0.5, -0.5]], np.float32))
    np.testing.assert_allclose(native, [[-2, 0], [0, 5], [2, 10], [1, 2.5]])
    assert native.dtype == np.float32


def test_integer_box_is_rounded():
    space = spaces.Box(0, 10, (1,), np.int32)
    assert to_env_action(space, np.array([[0.19]], np.float32)).tolist() == [[6]]


@settings(max_examples=30, deadline=None)
@given(st.floats(-1e6, 1e6, width=32), st.floats(0.001, 1e6), st.floats(-3, 3, width=32))
def test_box_action_always_belongs_to_the_space(low, width, action):
    space = spaces.Box(np.float32(low), np.float32(low + width), (1,), np.float32)
    assert space.contains(to_env_action(space, np.array([[action]], np.float32))[0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_native_dtype_is_kept(dtype):
    space = spaces.Box(-3, 3, (2,), dtype)
    assert to_env_action(space, np.zeros((5, 2), np.float32)).dtype == dtype


def test_several_choices_are_flat_for_the_policy_and_as_declared_for_the_environment():
    space = spaces.MultiDiscrete([[2, 3], [4, 5]], np.int32, start=[[1, 0], [-2, 7]])
    assert policy_action_space(space) == spaces.MultiDiscrete([2, 3, 4, 5])
    native = to_env_action(space, np.array([[1, 2, 3, 4], [0, 0, 0, 0]]))
    assert native.tolist() == [[[2, 2], [1, 11]], [[1, 0], [-2, 7]]]
    assert native.dtype == np.int32 and all(space.contains(each) for each in native)


@pytest.mark.parametrize("shape", [3, (3,), (1, 3), (3, 1)])
def test_binary_choices_are_choices_of_two(shape):
    space = spaces.MultiBinary(shape)
    assert policy_action_space(space) == spaces.MultiDiscrete([2, 2, 2])
    native = to_env_action(space, np.array([[1, 0, 1], [0, 0, 1]]))
    assert native.reshape(2, 3).tolist() == [[1, 0, 1], [0, 0, 1]]
    assert all(space.contains(each) for each in native)


def test_nested_boxes_are_flat_for_the_policy():
    low = np.arange(6, dtype=np.float32).reshape(2, 3)
    space = spaces.Box(low, low + 2)
    assert policy_action_space(space) == spaces.Box(-1.0, 1.0, (6,), np.float32)
    native = to_env_action(space, np.array([[-1, 0, 1, -1, 0, 1]], np.float32))
    np.testing.assert_allclose(native, [[[0, 2, 4], [3, 5, 7]]])
    assert space.contains(native[0])
    assert to_env_action(spaces.Box(-2.0, 2.0, ()), np.ones((3, 1), np.float32)).tolist() == [2.0] * 3


def test_bits_in_a_box_are_rounded():
    space = spaces.Box(0, 1, (2,), np.bool_)
    assert to_env_action(space, np.array([[-0.5, 0.5]], np.float32)).tolist() == [[False, True]]
