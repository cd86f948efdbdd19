import numpy as np
from maze_difficulty import NEVER, MazeDifficulty, explorer_steps, maze_difficulty, oracle_steps
from plain_maze import read_maze

from yamame.envs.maze_runner import MazeRunnerConfig

DEAD_END = read_maze(
    "#######",
    "#.#...#",
    "#.#.#.#",
    "#.#.#.#",
    "#.###.#",
    "#..S..#",
    "#######",
)


def cells(*places):
    return np.array([row * 7 + column if row else -1 for row, column in places])


def test_oracle_and_explorer_by_hand():
    goals = cells((3, 3), (1, 1))
    assert oracle_steps(DEAD_END, goals) == [10, 10 + 16]
    # it tries the west first, sees at (1, 1) that there is no way, 6 steps from the start, and comes back
    assert explorer_steps(DEAD_END, goals) == [6 + 6 + 10, 22 + 16]


def test_columns_behind_the_last_goal_repeat_it():
    goals = cells((5, 1), (0, 0), (0, 0))
    assert oracle_steps(DEAD_END, goals) == explorer_steps(DEAD_END, goals) == [2, 2, 2]


def test_what_cannot_be_reached_is_never_completed_nor_what_comes_after():
    wall = DEAD_END.copy()
    wall[1, 4] = True
    goals = cells((5, 4), (3, 3), (5, 3))
    assert oracle_steps(wall, goals) == explorer_steps(wall, goals) == [1, NEVER, NEVER]


def test_shares_and_returns():
    steps = np.array([[3, 9, 9], [4, 8, 12], [5, NEVER, NEVER]])
    found = MazeDifficulty(length=np.array([2, 3, 2]), oracle=steps, explorer=steps + 1)
    assert found.reachable == 2 / 3
    assert [found.completed(steps, horizon) for horizon in (8, 9, 12)] == [0, 1 / 3, 2 / 3]
    assert [found.mean_return(steps, horizon) for horizon in (2, 8, 9, 12)] == [0, 4 / 3, 5 / 3, 2]


def test_of_random_tasks():
    found = maze_difficulty(MazeRunnerConfig(size=9), tasks=60, seed=3)
    assert found.reachable == 1
    assert (np.diff(found.oracle, axis=1) >= 0).all()
    assert (found.explorer >= found.oracle).all() and (found.explorer > found.oracle).any()
    assert ((found.explorer - found.oracle) % 2 == 0).all()  # detours on a grid
    horizon = MazeRunnerConfig(size=9).max_trial_steps
    assert found.completed(found.explorer, horizon) == 1
    assert found.mean_return(found.explorer, horizon) == found.length.mean()
    again = maze_difficulty(MazeRunnerConfig(size=9), tasks=60, seed=3)
    np.testing.assert_array_equal(again.explorer, found.explorer)
