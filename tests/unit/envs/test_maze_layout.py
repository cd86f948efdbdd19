import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_maze import PlainMazeRunner, plain_maze, read_maze, shortest_paths

from yamame.envs.maze_runner import free_distances, max_safe_goals, sample_maze, side_length, start_cell

SIDES = st.sampled_from([7, 9, 11, 15, 31])


def test_sides_are_odd():
    assert [side_length(size) for size in (6, 7, 15, 30, 31)] == [7, 7, 15, 31, 31]


@settings(max_examples=40, deadline=None)
@given(SIDES, st.integers(0, 2**31))
def test_every_maze_has_its_border_its_spawn_rows_and_no_enclosed_cell(side, seed):
    wall = sample_maze(np.random.default_rng(seed), side)
    assert wall[[0, -1]].all() and wall[:, [0, -1]].all()
    middle = side // 2
    spawn = np.zeros((4, side - 2), np.bool_)
    spawn[1:, [middle - 2, middle]] = True  # columns middle - 1 and middle + 1, the border left out
    np.testing.assert_array_equal(wall[-5:-1, 1:-1], spawn)
    assert start_cell(side) == (side - 2) * side + middle and not wall.flat[start_cell(side)]
    assert not wall[1:-5:2, 1:-1:2].any()  # between posts it is always free
    np.testing.assert_array_equal(shortest_paths(wall, start_cell(side)) >= 0, ~wall.ravel())
    assert max_safe_goals(side) == (~spawn).sum() - 1 <= (~wall).sum() - 1


@pytest.mark.parametrize("side", [9, 15])
def test_mazes_are_drawn_as_often_as_by_rules_written_plainly(side):
    count, rng, plain_rng = 900, np.random.default_rng(0), random.Random(1)
    ours = np.stack([sample_maze(rng, side) for _ in range(count)])
    plain = np.stack([plain_maze(plain_rng, side) for _ in range(count // 5)])
    fraction = (count * ours.mean(axis=0) + count // 5 * plain.mean(axis=0)) / (count + count // 5)
    spread = np.sqrt(fraction * (1 - fraction) * (1 / count + 5 / count))
    assert (np.abs(ours.mean(axis=0) - plain.mean(axis=0)) <= 4.5 * spread).all()
    for statistic in (lambda wall: wall.mean(axis=(1, 2)), dead_ends):
        one, other = statistic(ours), statistic(plain)
        error = np.hypot(one.std() / np.sqrt(len(one)), other.std() / np.sqrt(len(other)))
        assert abs(one.mean() - other.mean()) < 4 * error


def dead_ends(wall):
    around = [np.roll(wall, shift, axis) for axis in (1, 2) for shift in (-1, 1)]
    return (~wall & (np.sum(around, axis=0) == 3)).sum(axis=(1, 2)).astype(float)


def test_mazes_follow_from_the_seed():
    first, again, other = (sample_maze(np.random.default_rng(seed), 15) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@settings(max_examples=20, deadline=None)
@given(SIDES, st.integers(0, 2**31))
def test_free_ahead_is_counted_as_one_walks(side, seed):
    wall = np.stack([sample_maze(np.random.default_rng([seed, number]), side) for number in range(2)])
    ahead = free_distances(wall)
    for maze, row, column in np.argwhere(~wall):
        runner = PlainMazeRunner(wall[maze], [])
        runner.place = (row, column)
        assert ahead[maze, row, column].tolist() == runner.sees()


def test_shortest_ways_by_hand():
    wall = read_maze(
        "#######",
        "#.....#",
        "#.###.#",
        "#.#.#.#",
        "#.###.#",
        "#....##",
        "#######",
    )
    steps = shortest_paths(wall, 5 * 7 + 3).reshape(7, 7)
    assert (steps[wall] == -1).all()
    assert steps[3, 3] == -1  # enclosed
    assert steps[5].tolist() == [-1, 2, 1, 0, 1, -1, -1]
    assert steps[1].tolist() == [-1, 6, 7, 8, 9, 10, -1]
    assert steps[4, 5] == 13
