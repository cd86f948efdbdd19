from itertools import product

import numpy as np
import pytest

import yamame
from yamame.envs.rooms import DOWN, LEFT, RIGHT, STAY, UP, RoomsConfig, RoomsEnv, RoomsVectorEnv
from yamame.errors import UserError

MAP = ("...###...###...", "...............", "...###...###...")
FLOOR = [(x - 7, 1 - row) for row, line in enumerate(MAP) for x, cell in enumerate(line) if cell == "."]
CORNERS = list(product((-1, 1), (-1, 1)))
TASKS = np.array(
    [
        [first, (second[0] + 6 * first[0], second[1]), third]
        for first, second, third in product(CORNERS, repeat=3)
        if third != first
    ]
)
"""Goals of the 48 tasks."""
NUM_TASKS = len(TASKS)
RANDOM_RETURN, SEARCHER_RETURN = 0.1524, 2375.2333


def rows_of_every_task():
    """A trial of each task."""
    trials = RoomsConfig().build(NUM_TASKS, seed=0)
    trials.reset()
    rooms = trials.env._env
    rooms.goals[:] = TASKS
    return trials, rooms


def step_towards(position, target):
    """Shortest ways: to the line of the corridors, along it to the target's column, then up or down."""
    (x, y), (target_x, target_y) = position.T, target.T
    is_there = (np.abs(x - 6 * np.round(target_x / 6)) <= 1) & (x == target_x)
    aim_y = np.where(is_there, target_y, 0)
    along_x = np.where(x < target_x, RIGHT, LEFT)
    along_y = np.where(y < aim_y, UP, DOWN)
    return np.where(y != aim_y, along_y, np.where(x != target_x, along_x, STAY))


def one(goals=((1, 1), (5, -1), (-1, 1)), **kwargs):
    rooms = RoomsVectorEnv(1, **kwargs)
    rooms.reset(seed=0)
    rooms.goals[0] = goals
    rooms.reset(options={"new_task": False})
    return rooms


def test_step_by_step():
    rooms = one()
    for action, position, reward in [
        (RIGHT, (1, 0), -0.1),
        (RIGHT, (2, 0), -0.1),
        (UP, (2, 0), -0.1),  # the wall of the corridor
        (DOWN, (2, 0), -0.1),
        (RIGHT, (3, 0), -0.1),
        (RIGHT, (4, 0), -0.1),
        (RIGHT, (5, 0), -0.1),
        (DOWN, (5, -1), -0.1),  # the second goal before the first one
        (DOWN, (5, -1), -0.1),
        (LEFT, (5, -1), -0.1),  # the wall of the room
        (UP, (5, 0), -0.1),
        *[(LEFT, (x, 0), -0.1) for x in (4, 3, 2, 1)],
        (UP, (1, 1), 1.0),
        (STAY, (1, 1), 1.0),  # goals pay at every step
        (UP, (1, 1), 1.0),
        (LEFT, (0, 1), -0.1),
        (LEFT, (-1, 1), -0.1),  # the third goal before the second one
        (DOWN, (-1, 0), -0.1),
        *[(RIGHT, (x, 0), -0.1) for x in (0, 1, 2, 3, 4, 5)],
        (DOWN, (5, -1), 10.0),
        (STAY, (5, -1), 10.0),
        (UP, (5, 0), -0.1),
        *[(LEFT, (x, 0), -0.1) for x in (4, 3, 2, 1)],
        (UP, (1, 1), 1.0),  # the first goal still pays 1
        (LEFT, (0, 1), -0.1),
        (LEFT, (-1, 1), 100.0),
        (STAY, (-1, 1), 100.0),
    ]:
        observation, rewards, terminated, truncated, info = rooms.step(np.array([action]))
        np.testing.assert_allclose(observation[0], np.array(position) / (7, 1), rtol=1e-6)
        assert rewards[0] == reward and not terminated[0] and not truncated[0]
        assert info["success"][0] == (reward == 100.0)


def test_every_step_is_that_of_the_map():
    rooms = RoomsVectorEnv(len(FLOOR))
    rooms.reset(seed=0)
    for action, (dx, dy) in enumerate([(0, 0), (0, 1), (1, 0), (0, -1), (-1, 0)]):
        rooms._position = np.array(FLOOR)
        observation, *_ = rooms.step(np.full(len(FLOOR), action))
        expected = [(x + dx, y + dy) if (x + dx, y + dy) in FLOOR else (x, y) for x, y in FLOOR]
        np.testing.assert_allclose(observation, np.array(expected) / (7, 1), rtol=1e-6)


def test_larger_rooms_and_shorter_corridors():
    rooms = RoomsVectorEnv(3000, room_size=5, corridor_length=1)
    rooms.reset(seed=0)
    assert rooms._is_floor.shape == (17, 5) and rooms._is_floor.sum() == 3 * 25 + 2
    assert {tuple(goal) for goal in rooms.goals[:, 0]} == set(product((-2, 2), (-2, 2)))
    assert set(np.unique(rooms.goals[:, 1, 0])) == {-8, -4, 4, 8}


def test_an_attempt_ends_at_its_limit():
    rooms = one(attempt_length=3)
    flags = [rooms.step(np.array([STAY]))[2:4] for _ in range(3)]
    assert [(bool(terminated[0]), bool(truncated[0])) for terminated, truncated in flags] == [
        (False, False),
        (False, False),
        (True, True),
    ]


def test_tasks_are_uniform_and_the_first_goal_tells_the_room_of_the_second():
    rooms = RoomsVectorEnv(200 * NUM_TASKS)
    rooms.reset(seed=0)
    assert (np.sign(rooms.goals[:, 1, 0]) == rooms.goals[:, 0, 0]).all()
    tasks, counts = np.unique(rooms.goals.reshape(-1, 6), axis=0, return_counts=True)
    np.testing.assert_array_equal(tasks, np.unique(TASKS.reshape(-1, 6), axis=0))
    assert np.abs(counts - 200).max() < 60


def test_an_agent_that_knows_the_goals_earns_3376():
    trials, rooms = rows_of_every_task()
    total, index = np.zeros(NUM_TASKS), np.arange(NUM_TASKS)
    for _ in range(50):
        goal = rooms.goals[index, np.minimum(rooms._num_reached, 2)]
        total += trials.step(step_towards(rooms._position, goal)).reward
    # at the third goal after 2 steps, then 6 or 8, then 6 to 10: 52 / 3 on average
    steps = 52 / 3
    assert total.mean() == pytest.approx(1 + 10 + 100 * (51 - steps) - 0.1 * (steps - 3), abs=1e-3)
    assert total.mean() == pytest.approx(3376.2333, abs=1e-3)


def test_a_searcher_that_sees_rewards_alone_earns_2375():
    """Tries the corners that are still possible: of the middle room, then of the room on that side, then the others."""
    trials, rooms = rows_of_every_task()
    total, found = np.zeros(NUM_TASKS), [[] for _ in range(NUM_TASKS)]
    around = [(1, 1), (1, -1), (-1, -1), (-1, 1)]
    left = [list(around) for _ in range(NUM_TASKS)]
    for _ in range(50):
        target = np.array([corners[0] for corners in left])
        reward = trials.step(step_towards(rooms._position, target)).reward
        total += reward
        for task, position in enumerate(map(tuple, rooms._position.tolist())):
            goals, corners = found[task], left[task]
            if len(goals) < 3 and position == corners[0]:
                if reward[task] < (1.0, 10.0, 100.0)[len(goals)]:
                    corners.pop(0)
                    continue
                goals.append(position)
                side = goals[0][0]
                left[task] = [
                    [],
                    [(x * side, y) for x, y in ((5, 1), (7, 1), (7, -1), (5, -1))],
                    sorted(set(around) - {goals[0]}, key=lambda corner: (-side * corner[0], corner[1] * goals[0][1])),
                    [position],
                ][len(goals)]
    np.testing.assert_array_equal(np.array(found), TASKS)
    assert total.mean() == pytest.approx(SEARCHER_RETURN, abs=1e-3)


def test_random_policy_earns_its_known_return():
    """By the powers of the transition matrix: 0.15 in a trial, and 9,600 trials agree."""
    move = np.zeros((len(FLOOR), len(FLOOR)))
    for (x, y), (dx, dy) in product(FLOOR, [(0, 0), (0, 1), (1, 0), (0, -1), (-1, 0)]):
        to = (x + dx, y + dy) if (x + dx, y + dy) in FLOOR else (x, y)
        move[FLOOR.index((x, y)), FLOOR.index(to)] += 0.2
    expected = np.zeros(NUM_TASKS)
    for task, goals in enumerate(TASKS.tolist()):
        first, second, third = (FLOOR.index(tuple(goal)) for goal in goals)
        share = np.zeros((4, len(FLOOR)))  # of each number of goals reached and cell
        share[0, FLOOR.index((0, 0))] = 1.0
        for _ in range(50):
            share = share @ move
            paid = [share[:, first].sum(), share[1:, second].sum(), share[2:, third].sum()]
            expected[task] += paid @ np.array([1.1, 10.1, 100.1]) - 0.1
            share[1, first] += share[0, first]
            share[2, second] += share[1, second]
            share[3, third] += share[2, third]
            share[0, first] = share[1, second] = share[2, third] = 0.0
    assert expected.mean() == pytest.approx(RANDOM_RETURN, abs=1e-4)
    trials = RoomsConfig().build(200 * NUM_TASKS, seed=1)
    trials.reset()
    trials.env._env.goals[:] = np.tile(TASKS, (200, 1, 1))
    rng = np.random.default_rng(2)
    total = sum(trials.step(rng.integers(5, size=200 * NUM_TASKS)).reward for _ in range(50))
    assert abs(total.mean() - expected.mean()) < 4 * total.std() / np.sqrt(len(total))


def test_attempts_repeat_the_goals_from_the_first_one_and_trials_do_not():
    trials = RoomsConfig(attempts=2, attempt_length=4).build(200, seed=0)
    trials.reset()
    rooms = trials.env._env
    goals = rooms.goals.copy()
    for time in range(8):
        step = trials.step(np.full(200, RIGHT))
        assert (step.truncated == (time == 7)).all() and (step.terminated == step.truncated).all()
        if time < 7:
            np.testing.assert_array_equal(rooms.goals, goals)
        if time == 3:
            assert (rooms._position == 0).all() and (rooms._num_reached == 0).all()
        rooms._num_reached[:] = 2 if time < 3 else 0
    assert (rooms.goals != goals).any()


def test_batched_is_n_singles():
    batch, rng = RoomsVectorEnv(6, attempt_length=30), np.random.default_rng(0)
    batch.reset(seed=3)
    singles = [RoomsEnv(attempt_length=30) for _ in range(6)]
    for row, single in enumerate(singles):
        single.reset(seed=9)
        single.vector_env.goals[0] = batch.goals[row]
        single.reset(options={"new_task": False})
    for _ in range(30):
        actions = rng.integers(5, size=6)
        observation, reward, terminated, truncated, info = batch.step(actions)
        for row, single in enumerate(singles):
            alone = single.step(actions[row])
            np.testing.assert_array_equal(alone[0], observation[row])
            assert alone[1:4] == (reward[row], terminated[row], truncated[row])
            assert alone[4]["success"] == info["success"][row]


def test_impossible_rooms_are_refused():
    for fields in ({"room_size": 1}, {"room_size": 4}, {"corridor_length": 0}, {"attempt_length": 0}):
        with pytest.raises(UserError):
            RoomsVectorEnv(1, **fields)
        with pytest.raises(UserError):
            RoomsConfig(**fields)


def test_task_name():
    assert RoomsConfig(room_size=5).task_name == "rooms-5x5"


def test_check_env_finds_nothing_unusual():
    assert yamame.check_env(RoomsEnv, horizon=50, attempts=1) == []
