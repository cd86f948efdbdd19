import pickle
import sys

import numpy as np
import pytest
from tiny import TINY_NETWORK

import yamame
from yamame.envs.metaworld import MetaworldConfig, MetaworldEnv, load_tasks
from yamame.errors import UserError
from yamame.recipes import load_recipe
from yamame.run_config import RunConfig

pytestmark = pytest.mark.slow

metaworld = pytest.importorskip("metaworld")

REACH = "reach-v3"
TINY = {
    "num_envs": 2,
    "env_steps": 1_000,
    **TINY_NETWORK,
    "replay.batch_size": 4,
    "updates_per_env_step": 0.01,
    "env_steps_per_iteration": 500,
    "eval": {"interval_env_steps": 0, "trials": 2, "final_trials": 2, "num_envs": 2},
    "env.num_workers": 0,
}


def goals(tasks):
    return {(task.env_name, tuple(pickle.loads(task.data)["rand_vec"])) for task in tasks}


def single(length=500, split="train", name=REACH):
    return MetaworldEnv(load_tasks(name, 0)[split], attempt_length=length)


def played(trials, steps, seed=0):
    rng = np.random.default_rng(seed)
    log = [trials.reset()["observation"].copy()]
    for _ in range(steps):
        step = trials.step(rng.uniform(-1, 1, (trials.num_envs, 4)).astype(np.float32))
        log += [step.final_observation["observation"], step.observation["observation"], step.reward, step.truncated]
    trials.close()
    return log


def test_the_splits_of_one_task_are_50_variations_each_and_share_none():
    split = load_tasks(REACH, 0)
    assert [len(goals(split[each])) for each in ("train", "test")] == [50, 50]
    assert not goals(split["train"]) & goals(split["test"])
    assert goals(load_tasks(REACH, 1)["train"]) != goals(split["train"])


def test_variations_follow_from_their_seed_alone():
    once = goals(load_tasks(REACH, 7)["test"])
    load_tasks.cache_clear()
    np.random.seed(3)
    state = np.random.get_state()[1].copy()
    assert goals(load_tasks(REACH, 7)["test"]) == once
    assert np.array_equal(np.random.get_state()[1], state)


def test_evaluation_is_on_the_test_tasks():
    config = MetaworldConfig()
    judged_on = config.eval_config()
    assert (config.split, judged_on.split) == ("train", "test")
    assert (config.task_name, judged_on.task_name) == ("metaworld-reach-v3", "metaworld-reach-v3-test")
    trials = MetaworldConfig(split="test", attempts=1, attempt_length=1, num_workers=0).build(2, seed=0)
    seen = set()
    trials.reset()
    for _ in range(30):
        seen |= goals(row.task for row in trials.env._envs)
        trials.step(np.zeros((2, 4), np.float32))
    assert len(seen) > 20 and seen <= goals(load_tasks(REACH, 0)["test"])


def test_observation_hides_the_goal_and_flags_the_reset():
    arm = single(length=20)
    observation, _ = arm.reset(seed=0)
    assert observation.shape == (40,) and observation[39] == 1.0
    simulated, _ = arm._simulator.reset()
    assert np.array_equal(observation[:39], simulated.astype(np.float32))
    for _ in range(20):
        assert not observation[36:39].any()
        observation, *_ = arm.step(arm.action_space.sample())
        assert observation[39] == 0.0 and arm.observation_space.contains(observation)
    assert arm._simulator._target_pos.any()


def test_a_trial_keeps_its_hidden_goal_and_the_next_has_another():
    trials = MetaworldConfig(attempts=3, attempt_length=4, num_workers=0).build(1, seed=0)
    trials.reset()
    row = trials.env._envs[0]
    targets, first, ends = [], [], []
    for _ in range(24):
        targets.append(tuple(row._simulator._target_pos))
        step = trials.step(np.full((1, 4), 0.3, np.float32))
        first.append(bool(step.episode_start[0]))
        ends.append(bool(step.truncated[0]))
    assert len(set(targets[:12])) == len(set(targets[12:])) == 1
    assert targets[0] != targets[12]
    assert first == ([False] * 3 + [True]) * 6
    assert ends == ([False] * 11 + [True]) * 2


def test_attempts_of_full_length_are_never_stepped_past_500():
    trials = MetaworldConfig(attempts=2, num_workers=0).build(1, seed=0)
    assert trials.horizon == 1000
    trials.reset()
    steps = [trials.step(np.zeros((1, 4), np.float32)) for _ in range(1001)]
    assert np.flatnonzero([step.episode_start[0] for step in steps]).tolist() == [499, 999]
    assert np.flatnonzero([step.truncated[0] for step in steps]).tolist() == [999]
    assert not any(step.terminated[0] for step in steps)
    assert steps[499].final_observation["observation"][0, 39] == 0.0
    assert steps[499].observation["observation"][0, 39] == 1.0
    with pytest.raises(UserError, match="attempt_length must be at least 1 and at most 500"):
        MetaworldConfig(attempt_length=501)


@pytest.mark.filterwarnings("ignore:Constant.s. may be too high")  # the expert's
def test_success_is_announced_when_an_expert_arrives_and_not_before():
    from metaworld.policies import ENV_POLICY_MAP

    expert, arm = ENV_POLICY_MAP[REACH](), single(length=200, split="test")
    for seed in range(3):
        observation, _ = arm.reset(seed=seed)
        announced, distances, rewards = [], [], []
        for _ in range(200):
            expert_input = np.append(observation[:36].astype(np.float64), arm._simulator._target_pos)
            observation, reward, terminated, truncated, info = arm.step(np.clip(expert.get_action(expert_input), -1, 1))
            announced.append(info["success"])
            distances.append(np.linalg.norm(arm._simulator.tcp_center - arm._simulator._target_pos))
            rewards.append(reward)
        assert truncated and not terminated
        assert not announced[0] and announced[-1]
        assert announced == [distance <= 0.05 for distance in distances]
        assert 9 < max(rewards) <= 10


def test_workers_give_the_same_trajectories():
    config = MetaworldConfig(attempts=2, attempt_length=5, num_workers=0)
    here = played(config.build(3, seed=5), 23)
    there = played(MetaworldConfig(attempts=2, attempt_length=5, num_workers=2).build(3, seed=5), 23)
    assert all(np.array_equal(one, other) for one, other in zip(here, there, strict=True))
    assert not np.array_equal(played(config.build(3, seed=6), 3)[0], here[0])


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "train", "test"), [("ML10", 10, 5), ("ML45", 45, 5)])
def test_benchmarks_have_tasks_of_their_own_for_evaluation(name, train, test):
    split = load_tasks(name, 0)
    names = {each: [task.env_name for task in split[each]] for each in ("train", "test")}
    assert {each: len(set(of)) for each, of in names.items()} == {"train": train, "test": test}
    assert all(of.count(task) == 50 for of in names.values() for task in set(of))
    assert not set(names["train"]) & set(names["test"])
    rows = MetaworldConfig(name=name, attempts=1, attempt_length=1, num_workers=0).build(2, seed=0)
    rows.reset()
    seen = set()
    for _ in range(20):
        step = rows.step(np.zeros((2, 4), np.float32))
        seen |= {row.task.env_name for row in rows.env._envs}
        assert not step.observation["observation"][:, 36:39].any()
        for row in rows.env._envs:
            assert isinstance(row._simulator, metaworld.ALL_V3_ENVIRONMENTS[row.task.env_name])
    rows.close()
    assert len(seen) > 5 and seen <= set(names["train"])


@pytest.mark.thorough
@pytest.mark.parametrize("name", [REACH, "ML10", "ML45"])
def test_training_runs(tmp_path, name):
    task = {"env.name": name, "env.attempts": 2, "env.attempt_length": 50}
    run = yamame.train("metaworld", run_dir=tmp_path / "run", **TINY, **task)
    assert run.result["env_steps"] == 1_000
    assert run.result["updates"] == 10
    assert np.isfinite(run.result["return_mean"]) and len(run.result["return_per_attempt"]) == 2
    assert run.result["success_rate"] is not None


def test_the_recipe_follows_its_task():
    recipe = load_recipe("metaworld")
    config = recipe.make_config(MetaworldConfig(attempts=1, attempt_length=60))
    assert isinstance(config, RunConfig) and config.resolved_context_length == 60


@pytest.mark.parametrize(("name", "nearest"), [("reech-v3", REACH), ("reach", REACH), ("ML11", "ML10")])
def test_misspelt_name_is_answered_with_the_nearest(name, nearest):
    with pytest.raises(UserError, match=f"did you mean '{nearest}'"):
        MetaworldConfig(name=name).build(1, 0)


def test_missing_package_is_answered_with_the_extra(monkeypatch):
    load_tasks.cache_clear()
    monkeypatch.setitem(sys.modules, "metaworld", None)
    with pytest.raises(UserError, match=r"pip install 'yamame\[metaworld\]'"):
        MetaworldConfig().build(1, 0)
