"""Hyperparameters that differ between runs."""

import json
from pathlib import Path
from typing import Any

from runs_to_view import client, ids, write_run
from starlette.testclient import TestClient

from yamame.tools.viewer import configs


def asked(asking: TestClient, *fields: str) -> dict[str, Any]:
    found: dict[str, Any] = asking.get("/api/hyperparameters", params={"field": fields}).json()
    return found


def test_fields_that_differ_and_their_values(tmp_path: Path) -> None:
    maze, key = {"type": "m:Maze", "size": 3}, {"type": "m:Key", "size": 4}
    write_run(tmp_path / "a", env=maze, learner={"rate": 0.1, "same": 1})
    write_run(tmp_path / "b", env=maze, learner={"rate": 0.2, "same": 1}, seed=1)
    write_run(tmp_path / "c", env=key, learner={"rate": 0.1, "same": 1, "more": "x"})
    with client(tmp_path) as asking:
        runs, found = ids(asking), asked(asking, "learner.rate", "learner.more", "nothing")
    assert {part["field"]: (part["within_task"], part["num_values"]) for part in found["fields"]} == {
        "seed": (True, 2),
        "env.type": (False, 2),
        "env.size": (False, 2),
        "learner.rate": (True, 2),
    }
    assert found["values"] == {
        "learner.rate": {runs["a"]: "0.1", runs["b"]: "0.2", runs["c"]: "0.1"},
        "learner.more": {runs["c"]: '"x"'},
        "nothing": {},
    }


def test_a_config_is_read_once(tmp_path: Path, monkeypatch: Any) -> None:
    run = write_run(tmp_path / "a", rate=1)
    write_run(tmp_path / "b", rate=2)
    reads: list[Path] = []
    original = configs.read_json
    monkeypatch.setattr(configs, "read_json", lambda path: reads.append(path) or original(path))
    with client(tmp_path) as asking:
        asked(asking)
        asked(asking, "rate")
        assert len(reads) == 2
        (run / "config.json").write_text(json.dumps({"rate": 30}))
        assert asked(asking, "rate")["values"]["rate"][ids(asking)["a"]] == "30" and len(reads) == 3


def test_unreadable_and_huge_configs_have_no_hyperparameters(tmp_path: Path) -> None:
    write_run(tmp_path / "a", rate=1)
    write_run(tmp_path / "b", rate=2)
    (write_run(tmp_path / "deep") / "config.json").write_text("[" * 100_000)
    write_run(tmp_path / "huge", **{f"field_{number}": number for number in range(configs.MAX_FIELDS)})
    write_run(tmp_path / "long", rate="x" * 1000)
    with client(tmp_path) as asking:
        found = asked(asking, "rate")
        assert [part["field"] for part in found["fields"]] == ["rate"] and len(found["values"]["rate"]) == 3
        assert len(found["values"]["rate"][ids(asking)["long"]]) == configs.MAX_VALUE_LENGTH


def test_long_values_are_compared_whole_and_the_difference_is_shown(tmp_path: Path) -> None:
    same = "x" * 1000
    write_run(tmp_path / "a", text=f"{same} one", other=same)
    write_run(tmp_path / "b", text=f"{same} two", other=same)
    write_run(tmp_path / "c", other=same)
    defaults = {"text": [f"{same} three", f"{same} one"]}
    (tmp_path / "a" / "metadata.json").write_text(json.dumps({"recipe": "made-up", "overrides": defaults}))
    with client(tmp_path) as asking:
        runs, found = ids(asking), asked(asking, "text")
        differences = asking.get("/api/differences", params={"runs": ",".join(runs.values())}).json()["differences"]
        page = asking.get(f"/api/runs/{runs['a']}").json()["config"]
    assert [(part["field"], part["num_values"]) for part in found["fields"]] == [("text", 2)]
    assert all(len(value) == configs.MAX_VALUE_LENGTH for value in found["values"]["text"].values())
    shown = [f'…{"x" * 19} {end}"' for end in ("one", "two")]
    assert differences == [{"field": "text", "values": [*shown, "–"]}]
    (row,) = (row for row in page if row["field"] == "text")
    assert row["changed"] and row["value"] == shown[0] and row["default"] == f'…{"x" * 19} three"'
