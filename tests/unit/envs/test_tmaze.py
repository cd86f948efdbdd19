import numpy as np
import pytest

from yamame.envs.tmaze import DOWN, LEFT, RIGHT, UP, ActiveTMazeConfig, PassiveTMazeConfig, TMazeEnv, TMazeVectorEnv
from yamame.errors import UserError


def walk(actions: list[int], *, goal: int, horizon: int, passive: bool) -> list[tuple[list[float], float, bool, bool]]:
    maze = TMazeVectorEnv(1, horizon=horizon, passive=passive)
    maze.reset(seed=0)
    maze.goal[:] = goal
    observation, _ = maze.reset(options={"new_task": False})
    log = [(observation[0].tolist(), 0.0, False, False)]
    for action in actions:
        observation, reward, terminated, truncated, info = maze.step(np.array([action]))
        assert terminated[0] == truncated[0]
        log.append((observation[0].tolist(), float(reward[0]), bool(truncated[0]), bool(info["success"][0])))
    return log


def test_passive_maze_step_by_step():
    log = walk([RIGHT, RIGHT, RIGHT, UP], goal=1, horizon=3, passive=True)
    assert log == [
        ([0, 1], 0, False, False),
        ([0, 0], 0, False, False),
        ([0, 0], 0, False, False),
        ([1, 0], 0, False, False),
        ([1, 1], 1, True, True),
    ]


def test_passive_maze_with_every_mistake():
    log = walk([LEFT, UP, RIGHT, LEFT, RIGHT, DOWN], goal=-1, horizon=5, passive=True)
    assert [each[0] for each in log] == [[0, -1], [0, 0], [0, 0], [0, 0], [0, 0], [0, 0], [0, 0]]
    np.testing.assert_allclose([each[1] for each in log], [0, -0.2, -0.2, 0, -0.2, 0, 0])
    assert [each[2] for each in log] == [False] * 6 + [True] and not log[-1][3]


def test_goal_cells_are_left_through_the_junction_only():
    log = walk([RIGHT, UP, UP, LEFT, RIGHT, DOWN, DOWN], goal=-1, horizon=6, passive=True)
    assert [each[0] for each in log[1:]] == [[0, 0]] + [[0, 0]] * 6  # still in the corridor: no way up
    log = walk([RIGHT, RIGHT, DOWN], goal=1, horizon=2, passive=True)
    assert [each[0] for each in log] == [[0, 1], [0, 0], [1, 0], [1, -1]] and log[-1][1:] == (0, True, False)
    log = walk([RIGHT, RIGHT, RIGHT], goal=1, horizon=2, passive=True)
    assert log[-1] == ([1, 0], 0, True, False)
    log = walk([RIGHT, UP], goal=1, horizon=1, passive=True)
    assert log[-1] == ([1, 1], 1, True, True)


def test_active_maze_shows_the_cue_once_and_forgives_the_first_step():
    log = walk([LEFT, RIGHT, LEFT, RIGHT, RIGHT], goal=-1, horizon=2, passive=False)
    assert [each[0] for each in log] == [[0, 0], [0, -1], [0, 0], [0, 0], [0, 0], [0, 0]]
    assert [each[1] for each in log] == [0, 0, 0, -0.5, 0, 0]
    log = walk([LEFT, RIGHT, RIGHT, RIGHT, DOWN], goal=-1, horizon=2, passive=False)
    assert [each[0] for each in log] == [[0, 0], [0, -1], [0, 0], [0, 0], [1, 0], [1, -1]]
    assert [each[1:] for each in log][-1] == (1, True, True) and sum(each[1] for each in log) == 1


def test_in_the_goal_cell_only_up_and_down_move():
    log = walk([RIGHT, UP, UP, RIGHT, LEFT, DOWN, DOWN, DOWN], goal=-1, horizon=1, passive=False)
    assert [each[0] for each in log[:5]] == [[0, 0], [1, 0], [1, 1], [1, 1], [1, 1]]


@pytest.mark.parametrize("config", [PassiveTMazeConfig(horizon=17), ActiveTMazeConfig(horizon=17)])
def test_scripted_optimum_is_one(config):
    passive = isinstance(config, PassiveTMazeConfig)
    trials = config.build(64, seed=2)
    assert trials.horizon == config.max_trial_steps == (18 if passive else 20)
    total, cue = np.zeros(64), np.zeros(64)
    seen = trials.reset()["observation"]
    for time in range(config.max_trial_steps):
        cue = np.where(seen[:, 0] == 0, cue + seen[:, 1], cue)
        action = np.where(seen[:, 0] == 1, np.where(cue > 0, UP, DOWN), RIGHT)
        if not passive and time == 0:
            action = np.full(64, LEFT)
        step = trials.step(action)
        total += step.reward
        seen = step.observation["observation"]
        last = time == config.max_trial_steps - 1
        assert (step.terminated == last).all() and (step.truncated == last).all()
        assert step.success is not None and (step.success == last).all()
    np.testing.assert_array_equal(total, 1.0)
    assert 15 < (cue > 0).sum() < 49  # both goals occur


@pytest.mark.parametrize(("passive", "expected"), [(True, -0.75), (False, -0.75 * 21 / 20)])
def test_random_policy_pays_three_quarters(passive, expected):
    maze, rng = TMazeVectorEnv(4000, horizon=20, passive=passive), np.random.default_rng(0)
    maze.reset(seed=1)
    total = sum(maze.step(rng.integers(4, size=4000))[1] for _ in range(maze.episode_length))
    assert abs(np.mean(total) - expected) < 0.01


def test_batched_is_n_singles():
    batch, rng = TMazeVectorEnv(5, horizon=4, passive=False), np.random.default_rng(0)
    observation, _ = batch.reset(seed=3)
    singles = [TMazeEnv(horizon=4, passive=False) for _ in range(5)]
    for single, goal in zip(singles, batch.goal, strict=True):
        single.reset(seed=9)
        single.vector_env.goal[:] = goal
        single.reset(options={"new_task": False})
    for _ in range(batch.episode_length):
        actions = rng.choice([RIGHT, RIGHT, UP, LEFT, DOWN], size=5)
        observation, reward, terminated, truncated, _ = batch.step(actions)
        for row, single in enumerate(singles):
            one = single.step(actions[row])
            np.testing.assert_array_equal(one[0], observation[row])
            assert one[1:4] == (reward[row], terminated[row], truncated[row])


def test_masked_reset_leaves_other_rows_and_keeps_the_goal_unless_the_task_is_new():
    maze = TMazeVectorEnv(200, horizon=5)
    maze.reset(seed=0)
    goal = maze.goal.copy()
    before = maze.step(np.full(200, RIGHT))[0]
    mask, new_task = np.arange(200) < 150, np.arange(200) < 100
    observation, _ = maze.reset(options={"reset_mask": mask, "new_task": new_task})
    np.testing.assert_array_equal(observation[150:], before[150:])
    np.testing.assert_array_equal(observation[:150, 1], maze.goal[:150])
    np.testing.assert_array_equal(maze.goal[100:], goal[100:])
    assert (maze.goal[:100] != goal[:100]).any()


def test_first_reset_samples_a_task_whatever_new_task_is():
    env = TMazeVectorEnv(9)
    env.reset(seed=0, options={"new_task": False})
    assert (env.goal != 0).all()


def test_same_seed_same_goals():
    goals = [(maze := TMazeVectorEnv(50), maze.reset(seed=seed), maze.goal)[-1].tolist() for seed in (1, 1, 2)]
    assert goals[0] == goals[1] != goals[2]


def test_empty_corridor_is_refused():
    with pytest.raises(UserError):
        PassiveTMazeConfig(horizon=0).build(1, 0)


def test_task_names():
    assert (PassiveTMazeConfig().task_name, ActiveTMazeConfig(horizon=5).task_name) == (
        "passive-tmaze-30",
        "active-tmaze-5",
    )
