import numpy as np

from yamame.collect.rollout_buffer import RolloutBuffer


def test_rows_that_are_needed_survive_growing_and_moving():
    buffer = RolloutBuffer(capacity=4)
    start = np.zeros(2, np.int64)
    for row in range(300):
        buffer.write(row, {"x": np.array([row, -row]), "y": np.full((2, 3), row, np.float32)}, start)
        for env in range(2):
            rows = np.arange(start[env], row + 1)
            np.testing.assert_array_equal(buffer.read("x", env, int(start[env]), row + 1), rows * (1, -1)[env])
            np.testing.assert_array_equal(buffer.read("y", env, int(start[env]), row + 1), np.tile(rows[:, None], 3))
        start[0] = row if row % 7 == 0 else start[0]
        start[1] = row if row % 90 == 0 else start[1]


def test_the_tape_is_no_longer_than_twice_the_longest_trial():
    buffer = RolloutBuffer(capacity=4)
    for row in range(10_000):
        buffer.write(row, {"x": np.zeros(1)}, np.array([row // 20 * 20]))
    assert buffer._columns["x"].shape[0] <= 64


def test_a_late_column_is_zero_before_it_was_first_written():
    buffer = RolloutBuffer(capacity=4)
    for row in range(3):
        late = {"late": np.ones(1, np.bool_)} if row == 2 else {}
        buffer.write(row, {"x": np.ones(1), **late}, np.array([0]))
    np.testing.assert_array_equal(buffer.read("late", 0, 0, 3), [False, False, True])
