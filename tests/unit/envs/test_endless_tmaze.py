import numpy as np
import pytest

import yamame
from yamame.envs.endless_tmaze import FORWARD, LEFT, RIGHT, EndlessTMazeConfig, EndlessTMazeEnv, EndlessTMazeVectorEnv
from yamame.errors import UserError


def walk(actions: list[int], cues: list[int], corridor_length: int) -> list[tuple[list[float], float, bool, bool]]:
    maze = EndlessTMazeVectorEnv(1, corridor_length=corridor_length, corridors=len(cues))
    maze.reset(seed=0)
    maze.cues[:] = cues
    observation, _ = maze.reset(options={"new_task": False})
    log = [(observation[0].tolist(), 0.0, False, False)]
    for action in actions:
        observation, reward, terminated, truncated, info = maze.step(np.array([action]))
        assert terminated[0] == truncated[0]
        log.append((observation[0].tolist(), float(reward[0]), bool(truncated[0]), bool(info["success"][0])))
    return log


def test_two_corridors_step_by_step():
    log = walk([FORWARD, FORWARD, RIGHT, FORWARD, FORWARD, LEFT], [1, -1], 2)
    assert log == [
        ([0, 1], 0, False, False),
        ([0, 0], 0, False, False),
        ([1, 0], 0, False, False),
        ([0, -1], 0.5, False, False),  # the next corridor, with its cue
        ([0, 0], 0, False, False),
        ([1, 0], 0, False, False),
        ([0, 0], 0.5, True, True),
    ]


def test_every_mistake():
    log = walk([LEFT, FORWARD, RIGHT, FORWARD, FORWARD, LEFT, FORWARD, RIGHT, FORWARD], [1, 1, -1], 2)
    assert [observation for observation, *_ in log] == [
        [0, 1],
        [0, 0],  # no turn in the corridor, and the cue is shown once
        [0, 0],
        [0, 0],
        [1, 0],
        [1, 0],  # no way forward at the junction
        [0, 1],  # a wrong turn leads on, too
        [0, 0],
        [0, 0],
        [1, 0],
    ]
    np.testing.assert_allclose([reward for _, reward, *_ in log], [0, 0, 0, 0, 0, 0, -1 / 3, 0, 0, 0])
    assert [ended for _, _, ended, _ in log] == [False] * 9 + [True] and not log[-1][3]


def test_no_step_is_left_after_the_last_corridor_and_one_wrong_turn_is_no_success():
    log = walk([FORWARD, RIGHT, FORWARD, LEFT], [1, 1], 1)
    assert [reward for _, reward, *_ in log] == [0, 0, 0.5, 0, -0.5]
    assert log[-1][2:] == (True, False)


def play(policy, rows: int, **sizes):
    """Total reward of whole trials; `policy(observation, remembered cue)` returns the actions."""
    config = EndlessTMazeConfig(**sizes)
    trials = config.build(rows, seed=2)
    assert trials.horizon == config.max_trial_steps
    total, cue = np.zeros(rows), np.zeros(rows)
    seen = trials.reset()["observation"]
    for time in range(config.max_trial_steps):
        cue = np.where(seen[:, 1] != 0, seen[:, 1], cue)
        step = trials.step(policy(seen, cue))
        total += step.reward
        seen = step.observation["observation"]
        last = time == config.max_trial_steps - 1
        assert (step.terminated == last).all() and (step.truncated == last).all()
    return total, step.success


@pytest.mark.parametrize("sizes", [{}, {"corridor_length": 1, "corridors": 1}, {"corridor_length": 3, "corridors": 7}])
def test_scripted_optimum_is_one(sizes):
    def turn_as_shown(seen, cue):
        return np.where(seen[:, 0] == 1, np.where(cue > 0, RIGHT, LEFT), FORWARD)

    total, success = play(turn_as_shown, 64, **sizes)
    np.testing.assert_allclose(total, 1.0)
    assert success.all()


def test_the_first_cue_alone_and_the_sum_of_all_cues_are_no_memory():
    """Each is right in the first corridor and a guess, or little better, in the others."""
    first, total_cue = np.zeros(4000), np.zeros(4000)

    def by_first(seen, cue):
        first[:] = np.where(first == 0, cue, first)
        return np.where(seen[:, 0] == 1, np.where(first > 0, RIGHT, LEFT), FORWARD)

    def by_sum(seen, cue):
        total_cue[:] += seen[:, 1]
        return np.where(seen[:, 0] == 1, np.where(total_cue > 0, RIGHT, LEFT), FORWARD)

    assert abs(play(by_first, 4000)[0].mean() - 0.1) < 4 * np.sqrt(0.09 / 4000)
    assert play(by_sum, 4000)[0].mean() < 0.45


@pytest.mark.parametrize("probabilities", [(1 / 3, 1 / 3, 1 / 3), (0.9, 0.1, 0.0)])
def test_policies_that_ignore_the_cues_earn_nothing_on_average(probabilities):
    rng = np.random.default_rng(0)
    total, _ = play(lambda seen, cue: rng.choice(3, size=len(seen), p=probabilities), 4000, corridor_length=5)
    assert np.abs(total).max() > 0
    assert abs(total.mean()) < 4 * total.std() / np.sqrt(4000)


def test_batched_is_n_singles():
    batch, rng = EndlessTMazeVectorEnv(5, corridor_length=2, corridors=4), np.random.default_rng(0)
    batch.reset(seed=3)
    singles = [EndlessTMazeEnv(corridor_length=2, corridors=4) for _ in range(5)]
    for single, cues in zip(singles, batch.cues, strict=True):
        single.reset(seed=9)
        single.vector_env.cues[:] = cues
        single.reset(options={"new_task": False})
    for _ in range(batch.episode_length):
        actions = rng.choice([FORWARD, FORWARD, LEFT, RIGHT], size=5)
        observation, reward, terminated, truncated, info = batch.step(actions)
        for row, single in enumerate(singles):
            one = single.step(actions[row])
            np.testing.assert_array_equal(one[0], observation[row])
            assert one[1:4] == (reward[row], terminated[row], truncated[row])
            assert one[4]["success"] == info["success"][row]


def test_masked_reset_leaves_other_rows_and_keeps_the_cues_unless_the_task_is_new():
    maze = EndlessTMazeVectorEnv(200, corridor_length=3)
    maze.reset(seed=0)
    cues = maze.cues.copy()
    before = maze.step(np.full(200, FORWARD))[0]
    mask, new_task = np.arange(200) < 150, np.arange(200) < 100
    observation, _ = maze.reset(options={"reset_mask": mask, "new_task": new_task})
    np.testing.assert_array_equal(observation[150:], before[150:])
    np.testing.assert_array_equal(observation[:150, 1], maze.cues[:150, 0])
    np.testing.assert_array_equal(maze.cues[100:], cues[100:])
    assert (maze.cues[:100] != cues[:100]).any()


def test_empty_mazes_are_refused():
    with pytest.raises(UserError):
        EndlessTMazeConfig(corridor_length=0)
    with pytest.raises(UserError):
        EndlessTMazeVectorEnv(1, corridors=0)


def test_task_name():
    assert EndlessTMazeConfig(corridor_length=20).task_name == "endless-tmaze-10x20"


def test_check_env_finds_nothing_unusual():
    assert yamame.check_env(EndlessTMazeEnv, horizon=110) == []
