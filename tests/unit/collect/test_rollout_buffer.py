import numpy as np

from yamame.collect.collector import RolloutBuffer


def test_rows_that_are_needed_survive_growing_and_moving():
    tape = RolloutBuffer(capacity=4)
    begin = np.zeros(2, np.int64)
    for row in range(300):
        tape.write(row, {"x": np.array([row, -row]), "y": np.full((2, 3), row, np.float32)}, begin)
        for env in range(2):
            rows = np.arange(begin[env], row + 1)
            np.testing.assert_array_equal(tape.read("x", env, int(begin[env]), row + 1), rows * (1, -1)[env])
            np.testing.assert_array_equal(tape.read("y", env, int(begin[env]), row + 1), np.tile(rows[:, None], 3))
        begin[0] = row if row % 7 == 0 else begin[0]
        begin[1] = row if row % 90 == 0 else begin[1]


def test_the_tape_is_no_longer_than_twice_the_longest_trial():
    tape = RolloutBuffer(capacity=4)
    for row in range(10_000):
        tape.write(row, {"x": np.zeros(1)}, np.array([row // 20 * 20]))
    assert tape._columns["x"].shape[0] <= 64


def test_a_late_column_is_zero_before_it_was_first_written():
    tape = RolloutBuffer(capacity=4)
    for row in range(3):
        late = {"late": np.ones(1, np.bool_)} if row == 2 else {}
        tape.write(row, {"x": np.ones(1), **late}, np.array([0]))
    np.testing.assert_array_equal(tape.read("late", 0, 0, 3), [False, False, True])
