import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_maze import PlainMazeRunner, oracle_steps, random_return, read_maze, shortest_paths

from yamame.data.goals import COMPLETED, INSTRUCTION_KEY
from yamame.envs.maze_runner import MazeRunnerConfig, MazeRunnerVectorEnv, start_cell
from yamame.envs.rendering import AGENT, GOAL, WALL
from yamame.envs.wrappers.instruction import InstructionWrapper
from yamame.errors import UserError
from yamame.recipes import load_recipe
from yamame.run_config import RunConfig

WEST, NORTH, EAST, SOUTH, STAY = range(5)
MAZE = read_maze(
    "#######",
    "#.....#",
    "#.###.#",
    "#.#.#.#",
    "#...#.#",
    "##.S..#",
    "#######",
)
START = (5, 3)


def runner_in(wall, *goals, **settings):
    """One maze with a given instruction, at its start."""
    mazes = MazeRunnerVectorEnv(1, size=len(wall), **settings)
    mazes.reset(seed=0)
    instruction = np.full((1, mazes.max_goals), -1)
    instruction[0, : len(goals)] = [row * len(wall) + column for row, column in goals]
    mazes.set_tasks(np.array([0]), wall[None], instruction)
    return mazes, mazes.reset(options={"new_task": False})[0]


def test_rules_by_hand():
    mazes, first = runner_in(MAZE, (3, 3), (1, 1))
    np.testing.assert_allclose(first["observation"][0] * 7, [5, 3, 1, 2, 2, 0], rtol=1e-6)
    for action, place, ahead in [
        (SOUTH, (5, 3), [1, 2, 2, 0]),  # a wall
        (NORTH, (4, 3), [2, 1, 0, 1]),
        (EAST, (4, 3), [2, 1, 0, 1]),  # a wall
        (NORTH, (3, 3), [0, 0, 0, 2]),
        (SOUTH, (4, 3), [2, 1, 0, 1]),
        (WEST, (4, 2), [1, 0, 1, 1]),
        (STAY, (4, 2), [1, 0, 1, 1]),
        (SOUTH, (5, 2), [0, 1, 3, 0]),
    ]:
        observation, reward, terminated, truncated, info = mazes.step(np.array([action]))
        np.testing.assert_allclose(observation["observation"][0] * 7, [*place, *ahead], rtol=1e-6)
        assert observation["achieved_goal"].tolist() == [[list(place)]]
        assert observation["desired_goal"].tolist() == [[[3, 3], [1, 1], [-1, -1]]]
        assert (reward.tolist(), terminated.tolist(), truncated.tolist(), info) == ([0], [False], [False], {})


def test_without_position_only_the_first_two_numbers_are_missing():
    seeing, blind = MazeRunnerVectorEnv(8), MazeRunnerVectorEnv(8, position=False)
    seen, felt = seeing.reset(seed=0)[0], blind.reset(seed=0)[0]
    rng = np.random.default_rng(0)
    for _ in range(30):
        np.testing.assert_array_equal(seen["observation"][:, 2:], felt["observation"])
        np.testing.assert_array_equal(seen["achieved_goal"], felt["achieved_goal"])
        actions = rng.integers(5, size=8)
        seen, felt = seeing.step(actions)[0], blind.step(actions)[0]
    assert seeing.single_observation_space["observation"].shape == (6,)
    assert blind.single_observation_space["observation"].shape == (4,)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([7, 10, 15]), st.booleans(), st.integers(1, 5), st.integers(0, 2**31))
def test_batched_follows_the_rules_written_plainly(size, rewired, max_goals, seed):
    mazes = MazeRunnerVectorEnv(3, size=size, rewired=rewired, max_goals=max_goals)
    observation, _ = mazes.reset(seed=seed)
    goals = [[tuple(goal) for goal in row.astype(int).tolist() if goal[0] >= 0] for row in observation["desired_goal"]]
    plain = [PlainMazeRunner(*task) for task in zip(mazes.wall, goals, mazes.wiring, strict=True)]
    rng = np.random.default_rng(seed)
    for _ in range(60):
        assert observation in mazes.observation_space
        for row, runner in enumerate(plain):
            expected = np.array([*runner.place, *runner.sees()]) / mazes.side
            np.testing.assert_allclose(observation["observation"][row], expected, rtol=1e-6)
            assert observation["achieved_goal"][row].tolist() == [list(runner.place)]
        actions = rng.integers(5, size=3)
        for runner, action in zip(plain, actions, strict=True):
            runner.step(action)
        observation = mazes.step(actions)[0]


def test_instructions_are_uniform_over_lengths_and_free_cells():
    mazes = MazeRunnerVectorEnv(6000, size=7, max_goals=3)
    observation, _ = mazes.reset(seed=0)
    length = (mazes.goal >= 0).sum(axis=1)
    assert np.abs(np.bincount(length)[1:] - 2000).max() < 4 * np.sqrt(6000 * 2 / 9)
    prob = np.zeros((3, 49))
    for row in range(6000):
        goals = mazes.goal[row, : length[row]]
        free = ~mazes.wall[row].ravel()
        free[5 * 7 + 3] = False
        assert len(set(goals)) == length[row] and free[goals].all() and (mazes.goal[row, length[row] :] == -1).all()
        assert observation["desired_goal"][row, : length[row]].tolist() == [list(divmod(goal, 7)) for goal in goals]
        prob[: length[row]] += free / free.sum()
    for slot in range(3):
        found = np.bincount(mazes.goal[length > slot, slot], minlength=49)
        assert (np.abs(found - prob[slot]) <= 4.5 * np.sqrt(prob[slot])).all()


def test_rewired_directions_belong_to_the_task():
    mazes = MazeRunnerVectorEnv(500, size=7, rewired=True)
    mazes.reset(seed=0)
    wiring = mazes.wiring.copy()
    np.testing.assert_array_equal(np.sort(wiring, axis=1), np.tile(np.arange(5), (500, 1)))
    fraction = np.mean(wiring[:, :, None] == np.arange(5), axis=0)
    assert np.abs(fraction - 0.2).max() < 4.5 * np.sqrt(0.16 / 500)
    mazes.reset(options={"new_task": False})
    np.testing.assert_array_equal(mazes.wiring, wiring)
    mazes.reset(options={"new_task": np.arange(500) < 250})
    assert (mazes.wiring[:250] != wiring[:250]).any(axis=1).mean() > 0.98
    np.testing.assert_array_equal(mazes.wiring[250:], wiring[250:])
    north = (wiring[:, :, None] == NORTH).argmax(axis=1)[:, 0]
    mazes.reset(seed=0)
    mazes.step(north)
    assert (mazes.cell == 4 * 7 + 3).all()  # out of the tunnel, in every maze


def test_continuous_actions_do_what_discrete_ones_do():
    pairs = [
        ((0.3, -0.9), WEST),
        ((-0.9, 0.8), NORTH),
        ((-0.1, 0.2), EAST),
        ((1.0, 0.99), SOUTH),
        ((1.0, 1.0), SOUTH),
        ((-1.0, 1.0), NORTH),
    ]
    continuous, discrete = (MazeRunnerVectorEnv(6, actions=kind) for kind in ("continuous", "discrete"))
    seen = [mazes.reset(seed=1)[0] for mazes in (continuous, discrete)]
    rng = np.random.default_rng(0)
    for _ in range(100):
        for name, leaf in seen[0].items():
            np.testing.assert_array_equal(leaf, seen[1][name])
        chosen = rng.integers(len(pairs), size=6)
        numbers = np.array([pairs[choice][0] for choice in chosen], np.float32)
        seen = [continuous.step(numbers)[0], discrete.step(np.array([pairs[choice][1] for choice in chosen]))[0]]
    assert len(np.unique(continuous.cell)) > 1


def test_rewired_continuous_actions_reach_every_direction():
    mazes = MazeRunnerVectorEnv(200, size=7, actions="continuous", rewired=True)
    mazes.reset(seed=0)
    np.testing.assert_array_equal(np.sort(mazes.wiring, axis=1), np.tile(np.arange(4), (200, 1)))
    numbers = np.array([(0, -1), (-1, 0), (0, 1), (1, 0)], np.float32)
    mazes.step(numbers[(mazes.wiring == NORTH).argmax(axis=1)])
    assert (mazes.cell == 4 * 7 + 3).all()


def test_seeds_repeat_even_where_mazes_were_used_before():
    def story(mazes, seed):
        rng, observations = np.random.default_rng(0), [mazes.reset(seed=seed)[0]]
        for time in range(40):
            observations.append(mazes.step(rng.integers(5, size=5))[0])
            if time % 10 == 9:
                observations.append(mazes.reset(options={"reset_mask": np.arange(5) % 2 == 0})[0])
        return [leaf.tolist() for each in observations for leaf in each.values()]

    mazes = MazeRunnerVectorEnv(5, rewired=True)
    first = story(mazes, 4)
    assert story(mazes, 4) == story(MazeRunnerVectorEnv(5, rewired=True), 4) == first != story(mazes, 5)


def test_a_reset_touches_only_the_rows_of_its_mask():
    rng = np.random.default_rng(0)
    disturbed, left_alone = (MazeRunnerVectorEnv(6, rewired=True) for _ in range(2))
    for mazes in (disturbed, left_alone):
        mazes.reset(seed=2)
    mask = np.array([True, False, True, False, False, True])
    for time in range(60):
        if time % 7 == 3:
            before = {name: leaf.copy() for name, leaf in seen.items()}
            after = disturbed.reset(options={"reset_mask": mask, "new_task": mask & (rng.random(6) < 0.5)})[0]
            for name, leaf in after.items():
                np.testing.assert_array_equal(leaf[~mask], before[name][~mask])
            assert (after["achieved_goal"][mask, 0] == [13, 7]).all()
        actions = rng.integers(5, size=6)
        seen, expected = disturbed.step(actions)[0], left_alone.step(actions)[0]
        for name, leaf in seen.items():
            np.testing.assert_array_equal(leaf[~mask], expected[name][~mask])
    assert (disturbed.wall[mask] != left_alone.wall[mask]).any(axis=(1, 2)).all()
    np.testing.assert_array_equal(disturbed.wall[~mask], left_alone.wall[~mask])


def test_first_reset_samples_a_task_whatever_new_task_is():
    mazes = MazeRunnerVectorEnv(4)
    mazes.reset(seed=0, options={"new_task": False})
    assert (mazes.goal[:, 0] >= 0).all() and not mazes.wall.all(axis=(1, 2)).any()


def mazes_of(trials):
    assert isinstance(trials.env, InstructionWrapper)
    return trials.env.env._env


def best_actions(mazes, instruction, ways):
    """The first step of a shortest way to each row's next goal, through each row's wiring. `ways`: by goal."""
    completed = (instruction == COMPLETED).all(axis=2).sum(axis=1)
    side, best = mazes.side, np.zeros(mazes.num_envs, np.int64)
    for row, here in enumerate(mazes.cell):
        goal = int(mazes.goal[row, completed[row]])
        if (row, goal) not in ways:
            ways[row, goal] = shortest_paths(mazes.wall[row], goal)
        around = ways[row, goal][[here - 1, here - side, here + 1, here + side]]
        direction = np.where(around < 0, side**2, around).argmin()
        best[row] = (mazes.wiring[row] == direction).argmax()
    return best


@pytest.mark.parametrize("kind", [{}, {"rewired": True}, {"actions": "continuous", "rewired": True}, {"size": 30}])
def test_oracle_completes_every_instruction_in_the_steps_of_its_tree_search(kind):
    config = MazeRunnerConfig(**kind)
    trials = config.build(12, seed=0)
    mazes = mazes_of(trials)
    instruction = trials.reset()[INSTRUCTION_KEY]
    length = (mazes.goal >= 0).sum(axis=1)
    fewest = np.array(
        [oracle_steps(wall, start_cell(mazes.side), goals) for wall, goals in zip(mazes.wall, mazes.goal, strict=True)]
    )
    numbers = np.array([(0, -1), (-1, 0), (0, 1), (1, 0)], np.float32)
    total, ended_after, ways = np.zeros(12), np.zeros(12, np.int64), {}
    for time in range(1, fewest.max() + 1):
        actions = best_actions(mazes, instruction, ways)
        step = trials.step(numbers[actions] if config.actions == "continuous" else actions)
        instruction = step.observation[INSTRUCTION_KEY]
        running = ended_after == 0
        total += step.reward * running
        np.testing.assert_array_equal(step.terminated, step.success)
        ended_after[running & step.terminated] = time
        ways = {key: way for key, way in ways.items() if not step.terminated[key[0]]}
    np.testing.assert_array_equal(ended_after, fewest)
    np.testing.assert_array_equal(total, length)
    assert set(length) == {1, 2, 3}


def test_random_policy_earns_what_it_earns_by_rules_written_plainly():
    trials = MazeRunnerConfig(size=9, horizon=100).build(1500, seed=1)
    rng, running, total = np.random.default_rng(2), np.ones(1500, np.bool_), np.zeros(1500)
    trials.reset()
    for _ in range(100):
        step = trials.step(rng.integers(5, size=1500))
        total += step.reward * running
        running &= ~(step.terminated | step.truncated)
    assert not running.any()
    plain = np.array([random_return(seed, side=9, horizon=100, max_goals=3) for seed in range(300)])
    error = np.hypot(total.std() / np.sqrt(1500), plain.std() / np.sqrt(300))
    assert abs(total.mean() - plain.mean()) < 4 * error < 0.25


def test_pictures_show_walls_goals_and_agent():
    mazes, _ = runner_in(MAZE, (4, 3), (1, 1), (5, 5), render_mode="rgb_array")
    assert colors(mazes) == {**dict.fromkeys(np.flatnonzero(MAZE), WALL), 38: AGENT, 31: GOAL, 8: GOAL, 40: GOAL}
    mazes.step(np.array([NORTH]))
    assert colors(mazes) == {**dict.fromkeys(np.flatnonzero(MAZE), WALL), 31: AGENT, 8: GOAL, 40: GOAL}
    frame = MazeRunnerConfig().build_for_rendering(0)
    frame.reset()
    assert frame.env.render().shape == (480, 480, 3)


def colors(mazes):
    """What every cell shows that is not plain floor: the uppermost color."""
    image = mazes.render()[0]
    pixels, side = len(image) // mazes.side, mazes.side
    cells = image.reshape(side, pixels, side, pixels, 3).swapaxes(1, 2).reshape(side * side, -1, 3)
    shown = {}
    for number, cell in enumerate(cells):
        colors = {tuple(color) for color in cell.tolist()}
        for color in (WALL, GOAL, AGENT):
            if color in colors:
                shown[number] = color
    return shown


def test_horizons_and_names():
    lengths = {size: MazeRunnerConfig(size=size).max_trial_steps for size in (6, 9, 15, 30)}
    assert lengths == {6: 100, 9: 175, 15: 400, 30: 1000}
    assert MazeRunnerConfig(horizon=70).build(2, 0).horizon == 70
    assert MazeRunnerConfig(size=30).task_name == "maze-runner-30x30"
    strange = MazeRunnerConfig(actions="continuous", rewired=True, position=False, hide_future_goals=True, max_goals=1)
    assert strange.task_name == "maze-runner-15x15-continuous-rewired-no-position"
    environments = strange.build(2, 0).env
    assert environments.hide_future_goals and environments.slots == 1


@pytest.mark.parametrize("wrong", [{"size": 5}, {"horizon": 0}, {"max_goals": 0}, {"max_goals": 14, "size": 7}])
def test_impossible_mazes_are_refused(wrong):
    with pytest.raises(UserError, match=next(iter(wrong))):
        MazeRunnerConfig(**wrong)
    if "horizon" not in wrong:
        with pytest.raises(UserError, match=next(iter(wrong))):
            MazeRunnerVectorEnv(1, **wrong)


@pytest.mark.parametrize(("rewired", "updates"), [(False, 10_000), (True, 30_000)])
def test_the_recipe_gives_rewired_mazes_more_time(rewired, updates):
    config = load_recipe("maze-runner").make_config(MazeRunnerConfig(rewired=rewired, horizon=50))
    assert isinstance(config, RunConfig) and config.resolved_context_length == 50
    assert round(config.env_steps * config.updates_per_env_step) == config.algorithm.learner.lr_decay_updates == updates
    assert config.exploration.anneal_env_steps <= config.env_steps
    assert (config.algorithm.learner.policy_gradient.entropy_coef > 0.01) == rewired
