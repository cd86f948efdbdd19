import os
import subprocess
import sys

import numpy as np
import pytest
from tiny import TINY_NETWORK

import yamame
from yamame.envs.base import EpisodeVectorEnv
from yamame.envs.gymnax import GymnaxConfig, GymnaxEnv
from yamame.envs.xland import GOALS, RULES, XLandConfig, XLandEnv
from yamame.errors import UserError

jax = pytest.importorskip("jax")
gymnax = pytest.importorskip("gymnax")
xland = pytest.importorskip("xminigrid.envs.xland")

from yamame.envs.vector.jax_vector_env import JaxVectorEnv

ROOM = XLandEnv(size=6, view=5, objects=4, rules=1, attempt_length=15)
TINY = {
    "num_envs": 4,
    "env_steps": 1_000,
    **TINY_NETWORK,
    "replay.batch_size": 4,
    "updates_per_env_step": 0.01,
    "env_steps_per_iteration": 500,
    "eval": {"interval_env_steps": 0, "trials": 4, "final_trials": 4, "num_envs": 4, "stop_return": None},
}


def all_rows(environments, value=True):
    return np.full(environments.num_envs, value)


def row_key(seed, row):
    return jax.random.fold_in(jax.random.key(seed), row)


def actions_for(environments, steps):
    rng, space = np.random.default_rng(0), environments.action_space
    if hasattr(space, "n"):
        return rng.integers(space.n, size=(steps, environments.num_envs))
    return rng.uniform(-1, 1, (steps, environments.num_envs, *space.shape)).astype(np.float32)


def assert_same(ours, theirs):
    """Up to what rounding in another order makes of 130 steps of a pole or a pendulum in float32."""
    np.testing.assert_allclose(np.asarray(ours, np.float64), np.asarray(theirs, np.float64), rtol=1e-3, atol=1e-3)


GYMNAX = ["CartPole-v1", "MemoryChain-bsuite", "UmbrellaChain-bsuite", "Pendulum-v1", "BernoulliBandit-misc"]


@pytest.mark.parametrize("name", GYMNAX)
def test_gymnax_rows_are_what_the_library_does_with_the_same_keys(name):
    environments = JaxVectorEnv(GymnaxEnv(name), 3, seed=11)
    assert isinstance(environments, EpisodeVectorEnv)
    theirs, parameters = gymnax.make(name)
    actions = actions_for(environments, 130)
    seen = environments.reset(all_rows(environments), all_rows(environments))["observation"]
    keys, states = [], []
    for row in range(3):
        key, of_task, _ = jax.random.split(row_key(11, row), 3)
        observation, state = theirs.reset(of_task, parameters)
        assert_same(seen[row], observation)
        keys.append(key)
        states.append(state)
    one_step = jax.jit(theirs.step_env)
    ended_once = False
    scale = 2.0 if name == "Pendulum-v1" else 1
    for action in actions:
        step = environments.step(action)
        for row in range(3):
            keys[row], of_step = jax.random.split(keys[row])
            results = one_step(of_step, states[row], action[row] * scale, parameters)
            states[row] = results[1]
            assert_same(step.observation["observation"][row], results[0])
            assert_same(step.reward[row], results[2])
            assert step.terminated[row] == bool(results[3])
            assert step.truncated[row] == bool(theirs.is_truncated(states[row], parameters))
        ends = step.terminated | step.truncated
        assert step.is_transition.all() and step.success is None
        if ends.any():
            ended_once = True
            seen = environments.reset(ends, ends)["observation"]
            for row in range(3):
                if not ends[row]:
                    assert_same(seen[row], step.observation["observation"][row])
                    continue
                keys[row], of_task, _ = jax.random.split(keys[row], 3)
                observation, states[row] = theirs.reset(of_task, parameters)
                assert_same(seen[row], observation)
    assert ended_once or name == "Pendulum-v1"


@pytest.mark.parametrize("name", ["CartPole-v1", "MemoryChain-bsuite"])
def test_ends_are_those_of_gymnax_own_step_before_it_resets(name):
    """Both are deterministic, so that the library's `step`, which resets itself, can be followed up to an end."""
    environments = JaxVectorEnv(GymnaxEnv(name), 1, seed=3)
    environments.reset(all_rows(environments), all_rows(environments))
    theirs, parameters = gymnax.make(name)
    _, of_task, _ = jax.random.split(row_key(3, 0), 3)
    _, state = theirs.reset(of_task, parameters)
    for action in actions_for(environments, 200):
        step = environments.step(action)
        following, state, reward, terminated, truncated, info = theirs.step(
            jax.random.key(0), state, action[0], parameters
        )
        assert_same(step.observation["observation"][0], info["final_observation"])
        assert_same(step.reward[0], reward)
        assert (step.terminated[0], step.truncated[0]) == (bool(terminated), bool(truncated))
        if terminated or truncated:
            assert not np.allclose(following, step.observation["observation"][0])
            return
    pytest.fail("no episode ended")


def test_trials_record_the_observation_that_an_end_led_to():
    trials = GymnaxConfig(name="CartPole-v1", horizon=60, attempts=None).build(2, seed=0)
    trials.reset()
    starts = 0
    for _ in range(60):
        step = trials.step(np.zeros(2, np.int64))
        for row in np.flatnonzero(step.episode_start):
            ended, started = step.final_observation["observation"][row], step.observation["observation"][row]
            # pushed to the left a pole falls beyond 12 degrees; CartPole starts within 0.05 of upright
            if not step.truncated[row]:
                assert abs(ended[2]) > 0.2 and (np.abs(started) <= 0.05).all()
                starts += 1
    assert starts > 4 and step.truncated.all()


def test_a_gymnax_task_is_repeated_from_its_first_state():
    environments = JaxVectorEnv(GymnaxEnv("CartPole-v1"), 2, seed=0)
    first = environments.reset(all_rows(environments), all_rows(environments))["observation"].copy()
    environments.step(np.zeros(2, np.int64))
    seen = environments.reset(all_rows(environments), np.array([False, True]))["observation"]
    assert np.array_equal(seen[0], first[0]) and not np.array_equal(seen[1], first[1])
    assert not np.array_equal(first[0], first[1])


@pytest.mark.parametrize(
    "environment",
    [
        pytest.param(GymnaxEnv("CartPole-v1"), id="gymnax"),
        pytest.param(ROOM, id="xland", marks=pytest.mark.thorough),
    ],
)
def test_a_reset_touches_only_its_rows_and_rows_do_not_depend_on_how_many_there_are(environment):
    few, many = JaxVectorEnv(environment, 2, seed=4), JaxVectorEnv(environment, 5, seed=4)
    actions = actions_for(many, 30)
    assert_same(
        few.reset(all_rows(few), all_rows(few))["observation"],
        many.reset(all_rows(many), all_rows(many))["observation"][:2],
    )
    rng = np.random.default_rng(1)
    for action in actions:
        step, more = few.step(action[:2]), many.step(action)
        assert_same(step.observation["observation"], more.observation["observation"][:2])
        mask, new_task = rng.random((2, 5)) < 0.3
        some, all_of_them = few.reset(mask[:2], new_task[:2]), many.reset(mask, new_task)
        assert_same(some["observation"], all_of_them["observation"][:2])
        assert_same(all_of_them["observation"][~mask], more.observation["observation"][~mask])


@pytest.mark.thorough
def test_xland_rows_are_what_the_library_does_with_the_same_keys():
    environments = JaxVectorEnv(ROOM, 4, seed=2)
    theirs = xland.XLandMiniGrid()
    actions = actions_for(environments, 60)
    seen = environments.reset(all_rows(environments), all_rows(environments))["observation"]
    keys, tasks, states = [], [], []
    reset, one_step = jax.jit(theirs.reset), jax.jit(theirs.step)
    for row in range(4):
        key, of_task, of_episode = jax.random.split(row_key(2, row), 3)
        tasks.append(ROOM.parameters(ROOM.sample_task(of_task)))
        states.append(reset(tasks[row], of_episode))
        keys.append(key)
        assert np.array_equal(seen[row], states[row].observation)
    ends = np.zeros(4, np.bool_)
    attempts = 0
    for action in actions:
        step = environments.step(action)
        for row in range(4):
            keys[row], _ = jax.random.split(keys[row])
            states[row] = one_step(tasks[row], states[row], action[row])
            assert np.array_equal(step.observation["observation"][row], states[row].observation)
            assert_same(step.reward[row], states[row].reward)
            assert step.success[row] == step.terminated[row] == (float(states[row].discount) == 0.0)
            assert (step.terminated[row] | step.truncated[row]) == bool(states[row].last())
        ends = step.terminated | step.truncated
        if ends.any():
            attempts += int(ends.sum())
            environments.reset(ends, np.zeros(4, np.bool_))
            for row in np.flatnonzero(ends):
                keys[row], _, of_episode = jax.random.split(keys[row], 3)
                states[row] = reset(tasks[row], of_episode)
    assert attempts >= 16


@pytest.mark.thorough
def test_an_xland_trial_keeps_its_ruleset_and_the_next_has_another():
    trials = XLandConfig(horizon=40, attempt_length=10).build(2, seed=0)

    def rulesets():
        return [np.concatenate([leaf.flatten() for leaf in jax.tree.leaves(jax.device_get(rows.task))])]

    rows = trials.env.env._state
    trials.reset()
    results, places = [], []
    for _ in range(80):
        rows = trials.env.env._state
        results.append(rulesets()[0].tolist())
        places.append(np.asarray(rows.state.state.agent.position).tolist())
        trials.step(np.full(2, 1))
    assert all(each == results[0] for each in results[:40]) and all(each == results[40] for each in results[40:])
    assert results[0] != results[40]
    assert len({str(places[start]) for start in (0, 10, 20, 30)}) > 1


@pytest.mark.parametrize("rules", [0, 1, 2])
def test_rulesets_are_drawn_from_all_kinds_and_never_use_up_what_the_goal_needs(rules):
    room = XLandEnv(size=7, view=5, objects=4, rules=rules, attempt_length=50)
    drawn = jax.device_get(jax.vmap(room.sample_task)(jax.random.split(jax.random.key(0), 300)))
    assert set(drawn.goal[:, 0].tolist()) == set(GOALS.values())
    assert set(drawn.rules[:, :rules, 0].flatten().tolist()) == (set(RULES.values()) if rules else set())
    assert not drawn.rules[:, rules].any()
    for goal, encoded, lying in zip(drawn.goal, drawn.rules, drawn.init_tiles.tolist(), strict=True):
        assert len({tuple(tile) for tile in lying}) == 4
        current, left = lying[0], lying[1:]
        for rule in encoded[:rules].tolist():
            assert rule[1:3] == current
            if rule[0] == RULES["put-near"]:
                assert rule[3:5] in left
                left = [tile for tile in left if tile != rule[3:5]]
            current = rule[5:7] if rule[0] == RULES["put-near"] else rule[3:5]
            assert current not in lying
        assert goal[1:3].tolist() == current
        assert goal[3:5].tolist() in left if goal[0] == GOALS["put-near"] else not goal[3:5].any()


@pytest.mark.thorough
def test_random_actions_reach_every_kind_of_goal_behind_every_kind_of_rule():
    room = XLandEnv(size=4, view=3, objects=3, rules=1, attempt_length=400)
    environments = JaxVectorEnv(room, 400, seed=0)
    environments.reset(all_rows(environments), all_rows(environments))
    task = jax.device_get(environments._state.task)
    solved = np.zeros(400, np.bool_)
    for action in actions_for(environments, 400):
        solved |= environments.step(action).success & ~solved
    for goal in GOALS.values():
        for rule in RULES.values():
            those = (task.goal[:, 0] == goal) & (task.rules[:, 0, 0] == rule)
            assert those.sum() > 10
            assert solved[those].any(), (goal, rule)


@pytest.mark.slow
def test_training_on_gymnax_runs(tmp_path):
    run = yamame.train("gymnax", run_dir=tmp_path / "run", **TINY)
    assert run.result["env_steps"] == 1_000 and run.result["updates"] == 10
    assert -1.0 <= run.result["return_mean"] <= 1.0


@pytest.mark.thorough
def test_training_on_xland_runs(tmp_path):
    task = {"env.horizon": 40, "env.attempt_length": 10}
    run = yamame.train("xland", run_dir=tmp_path / "run", **TINY, **task)
    assert run.result["env_steps"] == 1_000 and run.result["updates"] == 10
    assert len(run.result["return_per_attempt"]) >= 4 and run.result["success_rate"] is not None


def in_a_new_process(program, **environment):
    ours = {name: value for name, value in os.environ.items() if name != "XLA_PYTHON_CLIENT_PREALLOCATE"}
    answer = subprocess.run(
        [sys.executable, "-c", program], env=ours | environment, capture_output=True, text=True, check=True
    )
    return answer.stdout.strip()


REPORT = "import os, sys; print('jax' in sys.modules, os.environ.get('XLA_PYTHON_CLIENT_PREALLOCATE'))"
BUILD = f"from yamame.envs.gymnax import GymnaxConfig; GymnaxConfig(horizon=3).build(1, 0); {REPORT}"


@pytest.mark.slow
def test_jax_is_only_imported_where_it_is_built_and_leaves_memory_to_pytorch():
    assert in_a_new_process(f"import yamame.recipes.gymnax, yamame.recipes.xland; {REPORT}") == "False None"
    assert in_a_new_process(BUILD) == "True false"


@pytest.mark.thorough
def test_what_a_user_has_set_for_jax_stays():
    assert in_a_new_process(BUILD, XLA_PYTHON_CLIENT_PREALLOCATE="true") == "True true"


def test_mistakes_are_answered_with_help(monkeypatch):
    with pytest.raises(UserError, match="did you mean 'MemoryChain-bsuite'"):
        GymnaxConfig(name="MemoryChian-bsuite", horizon=8).build(1, 0)
    with pytest.raises(UserError, match="objects must be at least 4"):
        XLandConfig(objects=3, rules=2)
    with pytest.raises(UserError, match="objects must be at most 8"):
        XLandConfig(size=5, objects=9)
    with pytest.raises(UserError, match="view must be odd"):
        XLandConfig(view=4)
    with pytest.raises(UserError, match="at most 36 together"):
        XLandConfig(size=12, objects=30, rules=7)
    for missing, task in [("gymnax", GymnaxConfig(horizon=8)), ("xminigrid", XLandConfig())]:
        monkeypatch.setitem(sys.modules, missing, None)
        with pytest.raises(UserError, match=r"pip install 'yamame\[jax\]'"):
            task.build(1, 0)
