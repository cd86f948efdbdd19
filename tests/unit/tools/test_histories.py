"""Learning histories: a scripted learner becomes better, episodes are skipped whole, and runs become histories."""

import json
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import yamame
from yamame.cli import main
from yamame.config.serialization import to_json
from yamame.data.codec import encode
from yamame.data.database import RecordTag
from yamame.data.schema import consistency_error
from yamame.data.store import ReplayStore
from yamame.data.trajectory import Trajectory
from yamame.data.verify import iter_valid_trajectories
from yamame.envs.dark_key_to_door import DarkKeyToDoorConfig
from yamame.envs.wind import WindConfig
from yamame.errors import UserError
from yamame.recipes import load_recipe
from yamame.runs.directory import TASK
from yamame.tools.histories import (
    ScriptedLearner,
    joined_history,
    run_histories,
    scripted_histories,
    skip_episodes,
    write_histories,
)
from yamame.training.offline_remarks import offline_remarks

ROOM = DarkKeyToDoorConfig(size=4, horizon=120, attempt_length=15)
ROOM_FLAGS = ["--env.size", "4", "--env.horizon", "30", "--env.attempt-length", "10"]


def episodes(history: Trajectory) -> list[slice]:
    bounds = [*np.flatnonzero(history.episode_start[:-1]).tolist(), len(history)]
    return [slice(start, end) for start, end in pairwise(bounds)]


def test_a_scripted_learner_becomes_better_along_its_history() -> None:
    histories = list(scripted_histories(ROOM, ScriptedLearner(), count=70, seed=0))
    assert len(histories) == 70 and all(len(each) == each.horizon == 120 for each in histories)
    assert all(consistency_error(each) == "" and each.truncated[-1] for each in histories)
    thirds = np.stack([each.reward for each in histories]).reshape(70, 3, 40).sum(2).mean(0)
    assert thirds[0] < 0.6 * thirds[1] and thirds[1] < 0.8 * thirds[2]
    last = [history.return_per_attempt()[-2] for history in histories]
    assert np.mean(last) > 1.95, "the solution without noise earns 2"
    starts = [each.observation["observation"][each.episode_start] for each in histories]
    assert all((of_history[:, :2] == of_history[0, :2]).all() for of_history in starts), "one room a history"


def test_histories_are_those_of_their_seed() -> None:
    first, again, other = (
        [each.action for each in scripted_histories(ROOM, ScriptedLearner(), count=3, seed=seed)] for seed in (0, 0, 1)
    )
    assert all(map(np.array_equal, first, again)) and not all(map(np.array_equal, first, other))


def test_noise_levels_are_those_asked_for() -> None:
    def mean_return(initial: float, final: float) -> float:
        learner = ScriptedLearner(initial_eps=initial, final_eps=final)
        return float(np.mean([each.reward.sum() for each in scripted_histories(ROOM, learner, count=64, seed=0)]))

    random, falling, perfect = mean_return(1.0, 1.0), mean_return(1.0, 0.0), mean_return(0.0, 0.0)
    assert random < 0.4 * falling and falling < 0.8 * perfect


def test_skipped_episodes_are_left_out_whole() -> None:
    history = next(scripted_histories(ROOM, ScriptedLearner(), count=1, seed=0))
    kept, all_episodes = skip_episodes(history, 3, horizon=60, max_steps=120), episodes(history)
    assert kept.horizon == 60 and consistency_error(kept) == ""
    for part, original in zip(episodes(kept), all_episodes[::3], strict=True):
        for name in ("reward", "action", "success"):
            np.testing.assert_array_equal(getattr(kept, name)[part], getattr(history, name)[original])
        leaf, whole = kept.observation["observation"], history.observation["observation"]
        np.testing.assert_array_equal(leaf[part], whole[original])
    assert len(skip_episodes(history, 1, horizon=50)) == 50


def test_a_learner_that_skips_makes_more_steps() -> None:
    learner = ScriptedLearner(keep_every=4)
    histories = list(scripted_histories(ROOM, learner, count=16, seed=0))
    assert all(20 < len(each) <= 120 and each.horizon == 120 for each in histories)
    assert np.mean([each.return_per_attempt()[-2] for each in histories]) > 1.8


def test_trials_of_a_run_become_one_history() -> None:
    trials = list(scripted_histories(ROOM, ScriptedLearner(), count=3, seed=0))
    history = joined_history(trials, keep_every=1, horizon=120)
    assert len(history) == 360 and consistency_error(history) == "" and history.horizon == 120
    assert not history.truncated[:-1].any() and history.truncated[-1]
    for index, trial in enumerate(trials):
        part = slice(120 * index, 120 * index + 120)
        np.testing.assert_array_equal(history.action[part], trial.action)
        np.testing.assert_array_equal(history.episode_start[part], trial.episode_start[:-1])
        np.testing.assert_array_equal(history.observation["observation"][part], trial.observation["observation"][:-1])


def test_imported_trials_are_left_out_and_evicted_ones_are_missed(tmp_path: Path) -> None:
    trials = list(scripted_histories(ROOM, ScriptedLearner(), count=5, seed=0))
    kept, small = (write_run(tmp_path / name, ROOM) for name in ("kept", "small"))
    shutil.rmtree(kept / "replay")
    shutil.rmtree(small / "replay")
    with ReplayStore(kept / "replay", capacity_trajectories=9, cache_bytes=0) as store:
        store.extend(trials[:2])
        store.extend_records(map(encode, trials[2:3]), tag=RecordTag.IMPORTED)
        store.extend_records(map(encode, trials[3:4]), tag=RecordTag.PROTECTED)
        store.extend(trials[4:])
    (history,) = run_histories([kept], keep_every=1)
    expected = np.concatenate([trials[index].action for index in (0, 1, 4)])
    np.testing.assert_array_equal(history.action, expected)
    with ReplayStore(small / "replay", capacity_trajectories=2, cache_bytes=0) as store:
        store.extend(trials)
    with pytest.raises(UserError, match="in which it learned, were evicted"):
        list(run_histories([small], keep_every=1))


def write_run(run: Path, env: DarkKeyToDoorConfig) -> Path:
    """A run directory, as far as histories read it."""
    write_histories(run / "replay", scripted_histories(env, ScriptedLearner(), count=2, seed=0), env)
    recipe = load_recipe("dark-key-to-door")
    (run / "config.json").write_text(json.dumps(to_json(recipe.make_config(env))), encoding="utf-8")
    return run


def test_histories_of_runs_have_the_task_of_the_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    envs = [DarkKeyToDoorConfig(size=4, horizon=30, attempt_length=10, room_seed=room) for room in range(2)]
    runs = [str(write_run(tmp_path / f"room-{room}", env)) for room, env in enumerate(envs)]
    start, end = ["data", "histories"], ["--output", str(tmp_path / "store"), "--from"]
    for recipe, flags, message in (
        ("dark-key-to-door", ["--env.size", "7"], "room-0 has env.size 4, not 7: histories have the task of their"),
        ("dark-key-to-door", ["--env.horizon", "100"], "room-0 has env.horizon 30, not 100"),
        ("dark-key-to-door", ["--env.room-seed", "0"], "room-1 has env.room_seed 1, not 0"),
        ("dark-key-to-door", ["--env.sise", "4"], "did you mean --env.size?"),
        ("wind", [], "room-0 is a run of dark-key-to-door-4x4, not of wind: leave it out"),
    ):
        assert main([*start, recipe, *flags, *end, *runs]) == 2
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
    assert not (tmp_path / "store").exists()
    assert main([*start, "dark-key-to-door", "--env.size", "4", *end, *runs]) == 0
    task = json.loads((tmp_path / "store" / TASK).read_text())
    assert task == {name: value for name, value in to_json(envs[0]).items() if name != "room_seed"}
    assert all(each.horizon == 30 for each in iter_valid_trajectories(tmp_path / "store", None))
    assert offline_remarks([str(tmp_path / "store")], replace(envs[0], room_seed=None)) == []
    assert main([*start, "--output", str(tmp_path / "one"), "--from", runs[1]]) == 0
    assert json.loads((tmp_path / "one" / TASK).read_text()) == to_json(envs[1])


@pytest.mark.slow
def test_runs_in_a_fixed_room_are_distilled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two runs that each learn one room, their histories, and a run that learns from these."""
    runs = [tmp_path / f"room-{room}" for room in range(2)]
    for room, run in enumerate(runs):
        flags = [*ROOM_FLAGS, "--env.room-seed", str(room), "--env-steps", "240", "--num-envs", "4", "--size", "tiny"]
        flags += ["--eval.final-trials", "4", "--eval.interval-env-steps", "0", "--run-dir", str(run), "--quiet"]
        assert main(["train", "dark-key-to-door", *flags]) == 0
    store, output = tmp_path / "histories", tmp_path / "run"
    command = ["data", "histories", "dark-key-to-door", *ROOM_FLAGS, "--output", str(store), "--json"]
    capsys.readouterr()
    assert main([*command, "--from", *map(str, runs), "--keep-every", "2"]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    expected = to_json(DarkKeyToDoorConfig(size=4, horizon=30, attempt_length=10))
    task = json.loads((store / TASK).read_text())
    assert task == {name: value for name, value in expected.items() if name != "room_seed"}
    stored = list(iter_valid_trajectories(store, None))
    assert report["histories"] == len(stored) == 2 and report["steps"] == sum(map(len, stored)) > 60
    for history in stored:  # all attempts in one room
        assert len(np.unique(history.observation["observation"][history.episode_start][:, :2], axis=0)) == 1
    flags = ["--algorithm", "distillation", "--offline.data", str(store), "--offline.total-updates", "3"]
    flags += [*ROOM_FLAGS, "--size", "tiny", "--eval.final-trials", "4", "--run-dir", str(output), "--quiet"]
    assert main(["train", "dark-key-to-door", *flags]) == 0
    assert yamame.open(output).evaluate(trials=4)["trials"] == 4


def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["data", "histories", "dark-key-to-door", "--output", str(tmp_path / "store")]
    for flags, message in (
        (["--count", "0"], "the number of histories is 0"),
        (["--seed", "-1"], "the seed is -1"),
        (["--keep-every", "0"], "keep_every"),
        (["--final-eps", "2"], "final_eps"),
        (["--from", str(tmp_path), "--seed", "1"], "--seed is for a scripted learner"),
        (["--env-steps", "3"], "unknown flag"),
    ):
        assert main([*command, *flags]) == 2
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
    assert main(["data", "histories", *command[3:]]) == 2
    assert "RECIPE is missing" in capsys.readouterr().err
    assert not (tmp_path / "store").exists()
    with pytest.raises(UserError, match="no script solves wind"):
        next(scripted_histories(WindConfig(), ScriptedLearner(), count=1, seed=0))
    with pytest.raises(UserError, match="nowhere"):
        list(run_histories([tmp_path / "nowhere"], keep_every=1))
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").write_text("", encoding="utf-8")
    with pytest.raises(UserError, match="already exists"):
        write_histories(tmp_path / "used", [], WindConfig())
