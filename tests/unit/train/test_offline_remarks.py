"""Offline data of a task with other settings is used, and a line says so."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from yamame.config.serialization import to_json
from yamame.data.store import ReplayStore
from yamame.envs.dark_key_to_door import DarkKeyToDoorConfig
from yamame.envs.popgym import PopgymConfig
from yamame.envs.tmaze import PassiveTMazeConfig
from yamame.tools.histories import ScriptedLearner, scripted_histories, write_histories
from yamame.training.offline_remarks import offline_remarks

ROOM = DarkKeyToDoorConfig(size=3, horizon=12, attempt_length=6)
LARGER = replace(ROOM, size=4)


@pytest.fixture
def histories(tmp_path: Path) -> str:
    histories = scripted_histories(ROOM, ScriptedLearner(), count=2, seed=0)
    write_histories(tmp_path / "histories", histories, ROOM)
    return str(tmp_path / "histories")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory, as far as it matters here."""
    directory = tmp_path / "run"
    ReplayStore(directory / "replay", capacity_trajectories=9, cache_bytes=0).close()
    (directory / "config.json").write_text(json.dumps({"env": to_json(ROOM)}), encoding="utf-8")
    return directory


def test_of_histories(histories: str) -> None:
    assert offline_remarks([histories], ROOM) == []
    expected = f"the data in {histories} is of another task: env.size 3, not 4"
    assert offline_remarks([histories, histories], LARGER) == [expected, expected]


def test_of_a_run_and_of_its_store(run: Path) -> None:
    for source in (str(run), str(run / "replay")):
        assert offline_remarks([source], ROOM) == []
        assert offline_remarks([source], LARGER) == [f"the data in {source} is of another task: env.size 3, not 4"]


def test_where_the_task_is_simulated_makes_no_other_task(run: Path) -> None:
    own = PopgymConfig(name="AutoencodeEasy")
    (run / "config.json").write_text(json.dumps({"env": to_json(own)}), encoding="utf-8")
    assert offline_remarks([str(run)], replace(own, num_workers=2)) == []


def test_of_another_environment(run: Path) -> None:
    (line,) = offline_remarks([str(run)], PassiveTMazeConfig(horizon=12))
    assert "env.type" in line and "PassiveTMazeConfig" in line


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"env": 3}', "no JSON"])
def test_what_stores_no_task_has_no_line(run: Path, content: str) -> None:
    (run / "config.json").write_text(content, encoding="utf-8")
    assert offline_remarks([str(run), "a/dataset-v0"], ROOM) == []
