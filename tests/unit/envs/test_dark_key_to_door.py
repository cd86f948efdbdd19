import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yamame.envs.dark_key_to_door import DarkKeyToDoorConfig, DarkKeyToDoorEnv, DarkKeyToDoorVectorEnv
from yamame.errors import UserError

Y_DOWN, X_DOWN, Y_UP, X_UP, STAY = range(5)


def room(start, key, door, *, size=3, attempt_length=6):
    rooms = DarkKeyToDoorVectorEnv(1, size=size, attempt_length=attempt_length)
    rooms.reset(seed=0)
    for cell, (x, y) in zip((rooms.start, rooms.key, rooms.door), (start, key, door), strict=True):
        cell[:] = x * size + y
    return rooms, rooms.reset(options={"new_task": False})[0][0]


def step(rooms, action):
    observation, reward, terminated, truncated, info = rooms.step(np.array([action]))
    assert info["success"][0] == terminated[0]
    return observation[0], float(reward[0]), bool(terminated[0]), bool(truncated[0])


def test_key_then_door():
    rooms, first = room((1, 1), (1, 2), (0, 2))
    np.testing.assert_allclose(first, [1 / 3, 1 / 3, 0, 0])
    for action, expected, reward, terminated in [
        (X_DOWN, [0, 1 / 3, 0, 1 / 6], 0, False),
        (Y_UP, [0, 2 / 3, 0, 2 / 6], 0, False),  # the door does not open without the key
        (X_UP, [1 / 3, 2 / 3, 1, 3 / 6], 1, False),
        (STAY, [1 / 3, 2 / 3, 1, 4 / 6], 0, False),  # the key is found once
        (X_DOWN, [0, 2 / 3, 1, 5 / 6], 1, True),
    ]:
        observation, earned, ended, truncated = step(rooms, action)
        np.testing.assert_allclose(observation, expected, rtol=1e-6)
        assert (earned, ended, truncated) == (reward, terminated, False)


def test_key_and_door_in_the_starting_cell_take_a_step_each():
    rooms, first = room((2, 2), (2, 2), (2, 2))
    assert first[2] == 0
    assert step(rooms, X_UP)[1:] == (1, False, False)  # the wall keeps it there
    assert step(rooms, STAY)[1:] == (1, True, False)


def test_walls_stop():
    rooms, _ = room((0, 0), (2, 2), (2, 2))
    for action, (x, y) in [(Y_DOWN, (0, 0)), (X_DOWN, (0, 0)), (Y_UP, (0, 1)), (X_UP, (1, 1)), (STAY, (1, 1))]:
        np.testing.assert_allclose(step(rooms, action)[0][:2], [x / 3, y / 3], rtol=1e-6)


def test_attempt_ends_exactly_at_its_limit_and_an_open_door_is_no_truncation():
    rooms, _ = room((0, 0), (2, 2), (2, 2), attempt_length=4)
    assert [step(rooms, STAY)[3] for _ in range(4)] == [False, False, False, True]
    rooms, _ = room((0, 0), (0, 0), (0, 0), attempt_length=2)
    assert [step(rooms, STAY)[2:] for _ in range(2)] == [(False, False), (True, False)]


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.integers(1, 12), st.integers(0, 2**31), st.lists(st.integers(0, 4), min_size=12))
def test_batched_follows_the_rules_written_plainly(size, limit, seed, actions):
    rooms = DarkKeyToDoorVectorEnv(4, size=size, attempt_length=limit)
    rooms.reset(seed=seed)
    tasks = np.stack([rooms.start, rooms.key, rooms.door], axis=1)
    x, y = tasks[:, 0] // size, tasks[:, 0] % size
    has_key = [False] * 4
    for time in range(1, limit + 1):
        chosen = [actions[(time * 4 + row) % len(actions)] for row in range(4)]
        observation, reward, terminated, truncated, _ = rooms.step(np.array(chosen))
        for row, action in enumerate(chosen):
            dx, dy = {0: (0, -1), 1: (-1, 0), 2: (0, 1), 3: (1, 0), 4: (0, 0)}[action]
            x[row], y[row] = min(max(x[row] + dx, 0), size - 1), min(max(y[row] + dy, 0), size - 1)
            cell = x[row] * size + y[row]
            opens, finds = has_key[row] and cell == tasks[row, 2], not has_key[row] and cell == tasks[row, 1]
            has_key[row] |= finds
            expected = [x[row] / size, y[row] / size, has_key[row], time / limit]
            np.testing.assert_allclose(observation[row], expected, rtol=1e-6)
            assert (reward[row], terminated[row]) == (finds + opens, opens)
            assert truncated[row] == (time >= limit and not opens)


def test_batched_is_n_singles():
    batch, rng = DarkKeyToDoorVectorEnv(6, size=2, attempt_length=8), np.random.default_rng(0)
    batch.reset(seed=3)
    singles = [DarkKeyToDoorEnv(size=2, attempt_length=8) for _ in range(6)]
    for row, single in enumerate(singles):
        single.reset(seed=9)
        for name in ("start", "key", "door"):
            getattr(single.vector_env, name)[:] = getattr(batch, name)[row]
        single.reset(options={"new_task": False})
    ended = np.zeros(6, np.bool_)
    for _ in range(20):
        if ended.any():
            batch.reset(options={"reset_mask": ended, "new_task": np.zeros(6, np.bool_)})
            for row in np.flatnonzero(ended):
                singles[row].reset(options={"new_task": False})
        actions = rng.integers(5, size=6)
        observation, reward, terminated, truncated, _ = batch.step(actions)
        for row, single in enumerate(singles):
            one = single.step(actions[row])
            np.testing.assert_array_equal(one[0], observation[row])
            assert one[1:4] == (reward[row], terminated[row], truncated[row])
        ended = terminated | truncated
    assert ended.shape == (6,)


def oracle(rooms):
    """Shortest way to the key, then to the door, with both known."""
    has_key = rooms._has_key
    goal = np.where(has_key, rooms.door, rooms.key)
    (x, y), (goal_x, goal_y) = np.divmod(rooms._cell, rooms.size), np.divmod(goal, rooms.size)
    along_x = np.where(x < goal_x, X_UP, X_DOWN)
    along_y = np.where(y < goal_y, Y_UP, Y_DOWN)
    return np.where(x != goal_x, along_x, np.where(y != goal_y, along_y, STAY))


def test_oracle_earns_two_in_every_attempt():
    config = DarkKeyToDoorConfig(size=5, horizon=100, attempt_length=25)
    trials = config.build(32, seed=0)
    rooms = trials.env._env
    total, attempts = np.zeros(32), np.zeros(32)
    trials.reset()
    task = (rooms.key.copy(), rooms.door.copy())
    for time in range(100):
        unfinished = rooms._has_key.astype(int)
        step = trials.step(oracle(rooms))
        total += step.reward
        attempts += step.episode_start
        assert not step.terminated.any() and (step.truncated == (time == 99)).all()
        if time < 99:
            np.testing.assert_array_equal((rooms.key, rooms.door), task)  # soft resets keep the task
            np.testing.assert_array_equal(step.success, step.episode_start)
            restarted = step.observation["observation"][step.episode_start]
            assert (restarted[:, 2:] == 0).all()
            np.testing.assert_array_equal(step.final_observation["observation"][step.episode_start, 2], 1)
    assert (rooms.key != task[0]).any()  # a new trial has a new task
    cut = 1 - step.success.astype(int)  # the horizon cut the last attempt, with or without its key
    np.testing.assert_array_equal(total, 2 * (attempts - cut) + cut * (unfinished | (step.reward > 0)))
    assert attempts.min() > 5


def test_random_policy_earns_its_known_return():
    trials = DarkKeyToDoorConfig(size=5, horizon=100, attempt_length=25).build(4000, seed=1)
    rng = np.random.default_rng(2)
    trials.reset()
    total = sum(trials.step(rng.integers(5, size=4000)).reward for _ in range(100))
    # 40,000 trials of a simulator written apart: 1.967 +- 0.010, standard deviation of one trial 1.97
    assert abs(np.mean(total) - 1.967) < 4 * 1.97 / np.sqrt(4000)


def test_fixed_start_is_the_middle_and_tasks_are_uniform():
    rooms = DarkKeyToDoorVectorEnv(3000, size=5, fixed_start=True)
    observation, _ = rooms.reset(seed=0)
    np.testing.assert_allclose(observation, np.tile([0.4, 0.4, 0, 0], (3000, 1)), rtol=1e-6)
    for cells in (rooms.key, rooms.door):
        assert np.abs(np.bincount(cells, minlength=25) - 120).max() < 60
    assert abs(np.mean(rooms.key == rooms.door) - 1 / 25) < 0.015


def test_oracle_in_the_room_with_a_fixed_start_earns_the_optimum():
    trials = DarkKeyToDoorConfig(size=8, fixed_start=True).build(1500, seed=0)
    rooms = trials.env._env
    trials.reset()
    assert (rooms.start == 4 * 8 + 4).all()
    to_key, to_door = distance(rooms.start, rooms.key, 8), distance(rooms.key, rooms.door, 8)
    attempt = to_key + to_door
    assert attempt.max() <= 50
    total = sum(trials.step(oracle(rooms)).reward for _ in range(500))
    np.testing.assert_array_equal(total, 2 * (500 // attempt) + (500 % attempt >= to_key))
    # the mean way from the middle to a cell is 4 steps, between two cells 5.25; each is 1 step where it would be none
    assert abs(attempt.mean() - (4 + 5.25 + 2 / 64)) < 4 * attempt.std() / np.sqrt(1500)


def distance(one, other, size):
    """Steps from cell to cell; to be rewarded in the cell where one is takes a step too."""
    (x, y), (other_x, other_y) = np.divmod(one, size), np.divmod(other, size)
    return np.maximum(np.abs(x - other_x) + np.abs(y - other_y), 1)


def test_first_reset_samples_a_task_whatever_new_task_is():
    env = DarkKeyToDoorVectorEnv(9)
    env.reset(seed=0, options={"new_task": False})
    assert (env.start >= 0).all()


def test_same_seed_same_tasks_and_same_trials():
    def returns(seed):
        trials = DarkKeyToDoorConfig(size=3, horizon=30, attempt_length=10).build(8, seed)
        rng = np.random.default_rng(0)
        trials.reset()
        return [trials.step(rng.integers(5, size=8)).reward.tolist() for _ in range(70)]

    assert returns(4) == returns(4) != returns(5)


def test_impossible_rooms_are_refused():
    with pytest.raises(UserError):
        DarkKeyToDoorConfig(size=0).build(1, 0)


def test_task_name():
    assert DarkKeyToDoorConfig(size=8).task_name == "dark-key-to-door-8x8"
    assert DarkKeyToDoorConfig(size=8, fixed_start=True).task_name == "dark-key-to-door-8x8-fixed-start"
