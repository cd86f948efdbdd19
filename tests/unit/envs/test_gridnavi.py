import numpy as np
import pytest

import yamame
from yamame.envs.gridnavi import DOWN, LEFT, RIGHT, STAY, UP, GridNaviConfig, GridNaviEnv, GridNaviVectorEnv
from yamame.errors import UserError

GOALS = [x * 5 + y for x in range(5) for y in range(5) if max(x, y) > 1]
"""All cells but the start and its three neighbors."""
SEARCH = [
    (2, 0),
    (3, 0),
    (4, 0),
    (4, 1),
    (3, 1),
    (2, 1),
    (2, 2),
    (3, 2),
    (4, 2),
    (4, 3),
    (3, 3),
    (2, 3),
    (1, 3),
    (1, 2),
]
SEARCH += [(0, 2), (0, 3), (0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]
"""Order in which a searcher visits the cells: row by row to and fro, 12 of 21 in the first 15 steps."""


def grids_with_every_goal():
    """Trials on each of the 21 possible goals."""
    trials = GridNaviConfig().build(len(GOALS), seed=0)
    trials.reset()
    grids = trials.env._env
    grids.goal[:] = GOALS
    return trials, grids


def step_towards(cell, target):
    (x, y), (target_x, target_y) = np.divmod(cell, 5), np.divmod(target, 5)
    along_y = np.where(y < target_y, UP, np.where(y > target_y, DOWN, STAY))
    return np.where(x < target_x, RIGHT, np.where(x > target_x, LEFT, along_y))


def return_per_attempt(trials, grids, choose):
    """Mean over all goals. `choose` returns the actions, given the last rewards and the cells that had them."""
    reward, cell, returns = np.full(len(GOALS), -0.1), np.zeros(len(GOALS), np.int64), np.zeros(4)
    for time in range(60):
        action = choose(reward, cell)
        cell = grids._next_cell[grids._cell, action]
        reward = trials.step(action).reward
        returns[time // 15] += reward.mean()
    return returns


def test_step_by_step():
    grid = GridNaviVectorEnv(1)
    grid.reset(seed=0)
    grid.goal[:] = 2 * 5 + 1
    observation, _ = grid.reset(options={"new_task": False})
    np.testing.assert_array_equal(observation[0], [0, 0])
    for action, cell, reward in [
        (LEFT, (0, 0), -0.1),  # the wall
        (DOWN, (0, 0), -0.1),
        (RIGHT, (1, 0), -0.1),
        (RIGHT, (2, 0), -0.1),
        (UP, (2, 1), 1.0),
        (STAY, (2, 1), 1.0),  # the goal pays at every step
        (UP, (2, 2), -0.1),
        (LEFT, (1, 2), -0.1),
        (DOWN, (1, 1), -0.1),
    ]:
        observation, rewards, terminated, truncated, info = grid.step(np.array([action]))
        np.testing.assert_allclose(observation[0], np.array(cell) / 5, rtol=1e-6)
        assert rewards[0] == reward and not terminated[0] and not truncated[0] and not info["success"][0]


def test_an_attempt_ends_at_its_limit_and_succeeds_at_the_goal():
    grid = GridNaviVectorEnv(2, attempt_length=3)
    grid.reset(seed=0)
    grid.goal[:] = [10, 11]
    grid.reset(options={"new_task": False})
    ends = [grid.step(np.array([action, action]))[2:] for action in (RIGHT, RIGHT, STAY)]
    for (terminated, truncated, _), expected in zip(ends, (False, False, True), strict=True):
        assert (terminated == expected).all() and (truncated == expected).all()
    assert [info["success"].tolist() for *_, info in ends] == [[False, False], [False, False], [True, False]]


def test_goals_are_uniform_and_never_beside_the_start():
    grids = GridNaviVectorEnv(4200)
    grids.reset(seed=0)
    counts = np.bincount(grids.goal, minlength=25)
    assert np.flatnonzero(counts).tolist() == GOALS
    assert np.abs(counts[GOALS] - 200).max() < 60


def test_an_agent_that_knows_the_goal_earns_44():
    trials, grids = grids_with_every_goal()
    returns = return_per_attempt(trials, grids, lambda reward, cell: step_towards(grids._cell, grids.goal))
    # at distance d: d - 1 steps at -0.1, then 16 - d at 1; the mean distance is 96 / 21
    np.testing.assert_allclose(returns, 16.1 - 1.1 * 96 / 21)
    assert returns.sum() == pytest.approx(44.2857, abs=1e-4)


def test_a_belief_oracle_searches_first_and_then_walks_straight():
    """The goals that are still possible, from rewards alone: the first of them in `SEARCH` is visited next."""
    trials, grids = grids_with_every_goal()
    order = np.array([x * 5 + y for x, y in SEARCH])
    assert sorted(order) == GOALS
    possible = np.ones((len(GOALS), len(order)), np.bool_)

    def choose(reward, cell):
        here = order == cell[:, None]
        possible[:] &= np.where((reward > 0)[:, None], here, ~here)
        return step_towards(grids._cell, order[possible.argmax(axis=1)])

    returns = return_per_attempt(trials, grids, choose)
    assert (possible.sum(axis=1) == 1).all() and (order[possible.argmax(axis=1)] == GOALS).all()
    np.testing.assert_allclose(returns[0], 4.0)
    np.testing.assert_allclose(returns[1:], 16.1 - 1.1 * 96 / 21)  # the last goals are found on the straight way there
    assert returns.sum() == pytest.approx(37.2143, abs=1e-4)


def test_random_policy_earns_its_known_return():
    """By the powers of the transition matrix: -4.66 in a trial, and 4,200 trials agree."""
    trials = GridNaviConfig().build(4200, seed=1)
    trials.reset()
    grids = trials.env._env
    move = np.zeros((25, 25))
    for cell in range(25):
        np.add.at(move[cell], grids._next_cell[cell], 0.2)
    at_goal = sum(np.linalg.matrix_power(move, n)[0, GOALS].mean() for n in range(1, 16))
    expected = 4 * (1.1 * at_goal - 0.1 * 15)
    assert expected == pytest.approx(-4.6619, abs=1e-4)
    rng = np.random.default_rng(2)
    total = sum(trials.step(rng.integers(5, size=4200)).reward for _ in range(60))
    assert abs(total.mean() - expected) < 4 * total.std() / np.sqrt(4200)


def test_attempts_repeat_the_goal_and_trials_do_not():
    trials = GridNaviConfig(attempts=2, attempt_length=4).build(200, seed=0)
    trials.reset()
    grids = trials.env._env
    goal = grids.goal.copy()
    for time in range(8):
        step = trials.step(np.full(200, RIGHT))
        assert (step.truncated == (time == 7)).all() and (step.terminated == step.truncated).all()
        assert (step.episode_start == (time % 4 == 3)).all()
        if time < 7:
            np.testing.assert_array_equal(grids.goal, goal)
        if time % 4 == 3:
            assert (grids._cell == 0).all()
    assert (grids.goal != goal).any()


def test_batched_is_n_singles():
    batch, rng = GridNaviVectorEnv(6, attempt_length=8), np.random.default_rng(0)
    batch.reset(seed=3)
    singles = [GridNaviEnv(attempt_length=8) for _ in range(6)]
    for row, single in enumerate(singles):
        single.reset(seed=9)
        single.vector_env.goal[:] = batch.goal[row]
        single.reset(options={"new_task": False})
    for _ in range(8):
        actions = rng.integers(5, size=6)
        observation, reward, terminated, truncated, info = batch.step(actions)
        for row, single in enumerate(singles):
            one = single.step(actions[row])
            np.testing.assert_array_equal(one[0], observation[row])
            assert one[1:4] == (reward[row], terminated[row], truncated[row])
            assert one[4]["success"] == info["success"][row]


def test_impossible_grids_are_refused():
    with pytest.raises(UserError):
        GridNaviConfig(size=2)
    with pytest.raises(UserError):
        GridNaviVectorEnv(1, attempt_length=0)


def test_task_name():
    assert GridNaviConfig(size=7).task_name == "gridnavi-7x7"


def test_check_env_finds_nothing_unusual():
    assert yamame.check_env(GridNaviEnv, horizon=60, attempts=4) == []
