import sys

import gymnasium
import numpy as np
import pytest
from tiny import TINY_NETWORK

import yamame
from yamame.envs.minigrid import VOCABULARY, MinigridConfig, encode_mission, make_minigrid
from yamame.errors import UserError

minigrid = pytest.importorskip("minigrid")

LEFT, RIGHT, FORWARD = 0, 1, 2
WALL, KEY, BALL = 2, 5, 6
EAST, WEST, NORTH = 0, 2, 3
S7 = "MiniGrid-MemoryS7-v0"
TINY = {
    "num_envs": 4,
    "env_steps": 1_000,
    **TINY_NETWORK,
    "replay.batch_size": 4,
    "updates_per_env_step": 0.01,
    "env_steps_per_iteration": 500,
    "eval": {"interval_env_steps": 0, "trials": 4, "final_trials": 4, "num_envs": 4},
}


def expert(rows):
    """Turns to the object of the first room, walks to the end, and turns towards the one like it.

    A generator of actions that is sent observations; it sees nothing else.
    """

    def turned(seen, direction):
        while seen["direction"] != direction:
            seen = yield LEFT
        return seen

    def object_in(cells):
        return next((kind for kind in cells.flatten().tolist() if kind in (KEY, BALL)), None)

    seen = yield from turned(rows, WEST)
    while (cue := object_in(seen["image"][:, :, 0])) is None:
        seen = yield FORWARD
    seen = yield from turned(seen, EAST)
    while seen["image"][3, 5, 0] != WALL:
        seen = yield FORWARD
    seen = yield from turned(seen, NORTH)
    if object_in(seen["image"][3, :, 0]) != cue:
        seen = yield LEFT
        seen = yield LEFT
    while True:
        seen = yield FORWARD


@pytest.mark.parametrize("name", [S7, "MiniGrid-MemoryS13-v0"])
def test_an_expert_that_only_sees_observations_always_finds_the_match(name):
    room = make_minigrid(name, mission_words=16)
    limit = room.unwrapped.max_steps
    cues = set()
    for seed in range(20):
        seen, _ = room.reset(seed=seed)
        acting, steps, ended = expert(seen), 0, False
        action = next(acting)
        while not ended:
            seen, reward, terminated, truncated, info = room.step(action)
            steps, ended = steps + 1, terminated or truncated
            assert info["success"] == (reward > 0)
            if not ended:
                assert not info["success"]
                action = acting.send(seen)
        cues.add(type(room.unwrapped.grid.get(1, room.unwrapped.height // 2 - 1)).__name__)
        assert info["success"] and terminated
        assert reward == pytest.approx(1 - 0.9 * steps / limit) and reward > 0.9
    assert cues == {"Key", "Ball"}


def test_the_wrong_end_is_no_success():
    room = make_minigrid(S7, mission_words=16)
    room.reset(seed=0)
    room.unwrapped.agent_pos = np.array(room.unwrapped.failure_pos)
    _, reward, terminated, _, info = room.step(LEFT)
    assert terminated and reward == 0 and info["success"] is False


def test_rooms_that_meet_in_a_task_part_again():
    """A level's own random numbers are those of its task, so that they cannot choose the next one."""
    one, other = make_minigrid(S7, mission_words=16), make_minigrid(S7, mission_words=16)
    one.reset(seed=1), other.reset(seed=999)
    other._task_seed = one._task_seed
    for room in (one, other):
        room.reset(options={"new_task": False})
    assert one.reset() and other.reset() and one._task_seed != other._task_seed


def test_observations_are_those_of_minigrid_and_fit_their_space():
    ours, theirs = make_minigrid("BabyAI-GoToLocal-v0", mission_words=16), gymnasium.make("BabyAI-GoToLocal-v0")
    seen, _ = ours.reset(seed=3)
    raw, _ = theirs.reset(seed=ours._task_seed)
    rng = np.random.default_rng(0)
    for _ in range(40):
        assert ours.observation_space.contains(seen)
        assert np.array_equal(seen["image"], raw["image"]) and seen["direction"] == raw["direction"]
        words = [VOCABULARY[token - 1] for token in seen["mission"] if token]
        assert " ".join(words) == raw["mission"]
        action = int(rng.integers(7))
        (seen, reward, *flags, _), (raw, raw_reward, *raw_flags, _) = ours.step(action), theirs.step(action)
        assert (reward, flags) == (raw_reward, raw_flags)


def test_a_random_policy_has_its_known_success_rate():
    trials = MinigridConfig(num_workers=0).build(64, seed=0)
    rng = np.random.default_rng(0)
    trials.reset()
    ended, succeeded = np.zeros(64, np.bool_), np.zeros(64, np.bool_)
    for _ in range(245):
        step = trials.step(rng.integers(7, size=64))
        succeeded |= step.success & ~ended
        ended |= step.terminated | step.truncated
    trials.close()
    # 0.27 of 2,000 episodes of the package alone; four standard errors of 64 are 0.22
    assert ended.all() and 0.05 < succeeded.mean() < 0.49


def test_a_task_is_repeated_until_a_new_one_is_drawn():
    room = make_minigrid("BabyAI-GoToLocal-v0", mission_words=16)
    first, _ = room.reset(seed=0)
    grid = room.unwrapped.grid.encode()
    room.step(FORWARD)
    again, _ = room.reset(options={"new_task": False})
    assert np.array_equal(room.unwrapped.grid.encode(), grid)
    assert all(np.array_equal(first[leaf], again[leaf]) for leaf in first)
    room.reset()
    assert not np.array_equal(room.unwrapped.grid.encode(), grid)


def test_workers_give_the_same_trajectories():
    def played(workers):
        trials = MinigridConfig(name="BabyAI-GoToLocal-v0", horizon=20, num_workers=workers).build(4, seed=1)
        rng, log = np.random.default_rng(0), [trials.reset()]
        for _ in range(45):
            step = trials.step(rng.integers(7, size=4))
            log += [step.final_observation, step.observation, {"reward": step.reward, "success": step.success}]
        trials.close()
        return log

    for one, other in zip(played(0), played(2), strict=True):
        assert all(np.array_equal(one[leaf], other[leaf]) for leaf in one)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*is out of date")
def test_every_mission_of_the_package_can_be_said(capsys):
    names = [name for name in gymnasium.registry if name.startswith(("MiniGrid-", "BabyAI-")) and "WFC" not in name]
    assert len(names) > 150
    for name in names:
        room = make_minigrid(name, mission_words=72)
        for seed in range(3):
            room.reset(seed=seed)
    assert capsys.readouterr().out == ""


def test_missions_become_words():
    tokens = encode_mission("put the red ball next to a key, then go to the door", 16)
    assert [VOCABULARY[token - 1] if token else "" for token in tokens] == [
        *("put", "the", "red", "ball", "next", "to", "a", "key", ",", "then", "go", "to", "the", "door", "", ""),
    ]
    with pytest.raises(UserError, match=r"has 5 words: set env\.mission_words"):
        encode_mission("go to the red ball", 4)
    with pytest.raises(UserError, match="unknown word 'octopus'"):
        encode_mission("go to the octopus", 16)


@pytest.mark.slow
@pytest.mark.parametrize("name", [S7, pytest.param("BabyAI-GoToLocal-v0", marks=pytest.mark.thorough)])
def test_training_runs(tmp_path, name):
    run = yamame.train("minigrid", horizon=60, run_dir=tmp_path / "run", **TINY, **{"env.name": name})
    assert run.result["env_steps"] == 1_000 and run.result["updates"] == 10
    assert 0.0 <= run.result["return_mean"] <= 1.0 and run.result["success_rate"] is not None


def test_wrong_names_are_answered_with_help(monkeypatch):
    with pytest.raises(UserError, match="name must start with MiniGrid- or BabyAI-"):
        MinigridConfig(name="CartPole-v1")
    with pytest.raises(UserError, match=f"did you mean '{S7}'"):
        MinigridConfig(name="MiniGrid-MemoriS7-v0", num_workers=0).build(1, 0)
    monkeypatch.setitem(sys.modules, "minigrid", None)
    with pytest.raises(UserError, match=r"pip install 'yamame\[minigrid\]'"):
        MinigridConfig(num_workers=0).build(1, 0)
