"""Data of the *Runs* view: of real runs, and of folders as they should not be."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from command_runs import interrupt_in_iteration, snapshot
from runs_to_view import client, ids, line, row, train, write_run

from yamame.runs.directory import lock_run_dir
from yamame.tools.viewer.run_index import MAX_DEPTH
from yamame.tools.viewer.runs import KILLED_REASON
from yamame.training.trainer import Trainer

pytestmark = pytest.mark.slow

HOSTILE = "<script>alert(1)</script>"


def test_the_states_of_real_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = tmp_path / "runs"
    finished = train(runs / "done")
    with monkeypatch.context() as patch:
        interrupt_in_iteration(patch, 3)
        train(runs / "nested" / "stopped")
    with monkeypatch.context() as patch:
        passes = iter([None, None])
        original = Trainer._run_iteration

        def failing(self: Trainer, *args: object) -> float:
            if next(passes, "end") == "end":
                raise ValueError("the environment <b>fell</b> over")
            return original(self, *args)  # type: ignore[arg-type]

        patch.setattr(Trainer, "_run_iteration", failing)
        with pytest.raises(ValueError, match="fell"):
            train(runs / "broken")
    before = snapshot(runs)
    with client(runs) as asking:
        done, stopped, broken = (row(asking, name) for name in ("done", "nested/stopped", "broken"))
        with lock_run_dir(runs / "broken"):
            assert (row(asking, "broken")["state"], row(asking, "broken")["reason"]) == ("running", "")
    assert snapshot(runs) == before
    result = json.loads((finished / "result.json").read_text())
    assert (done["state"], done["recipe"], done["task"], done["seed"]) == (
        "finished",
        "passive-tmaze",
        "PassiveTMaze",
        0,
    )
    assert (done["env_steps"], done["planned_env_steps"], done["updates"]) == (256, 256, result["updates"])
    assert (done["return_mean"], done["return_from"]) == (result["return_mean"], "final evaluation")
    assert (done["success_rate"], done["seconds_left"]) == (result["success_rate"], None)
    assert done["env_steps_per_second"] == pytest.approx(result["env_steps_per_second"])
    assert (stopped["state"], stopped["reason"]) == ("stopped", "by SIGINT")
    assert 0 < stopped["env_steps"] < stopped["planned_env_steps"]
    assert (broken["state"], broken["reason"]) == ("failed", "ValueError: the environment <b>fell</b> over")
    assert done["group"] == stopped["group"] and not done["warnings"]


def test_what_is_left_of_a_running_run_and_what_a_killed_one_says(tmp_path: Path) -> None:
    steps = [line(step, rollout__return_mean=step / 10, rollout__success_rate=0.5) for step in (100, 200, 400)]
    run = write_run(tmp_path / "one", steps)
    with client(tmp_path) as asking:
        with lock_run_dir(run):
            running = row(asking, "one")
        killed = row(asking, "one")
    assert (running["state"], running["env_steps_per_second"], running["seconds_left"]) == ("running", 10.0, 60.0)
    assert (running["return_mean"], running["return_from"], running["success_rate"]) == (40.0, "training", 0.5)
    assert (killed["state"], killed["reason"], killed["seconds_left"]) == ("stopped", KILLED_REASON, None)


def test_a_running_run_without_steps_has_no_remaining_time(tmp_path: Path) -> None:
    run = write_run(tmp_path / "one")
    with client(tmp_path) as asking, lock_run_dir(run):
        assert (row(asking, "one")["state"], row(asking, "one")["seconds_left"]) == ("running", None)


def test_runs_come_and_go(tmp_path: Path) -> None:
    with client(tmp_path) as asking:
        assert asking.get("/api/runs").json() == {"runs": [], "warnings": []}
        run = write_run(tmp_path / "a" / "b", [line(10)])
        (run_id,) = ids(asking).values()
        assert run_id.isalnum() and ids(asking) == {"a/b": run_id}
        run.rename(tmp_path / "away")
        assert list(ids(asking)) == ["away"] and ids(asking)["away"] != run_id
        gone = asking.get("/api/curves/panels", params={"runs": run_id}).json()
        assert gone["lines"] == [] and "no such run" in gone["warnings"][0]
        (tmp_path / "away").rename(run)
        assert ids(asking) == {"a/b": run_id}


def test_a_run_that_is_deleted_while_it_is_shown(tmp_path: Path) -> None:
    from yamame.tools.viewer.run_index import RunIndex, UnknownRunError

    run = write_run(tmp_path / "runs" / "one")
    index = RunIndex([tmp_path / "runs"], clock=lambda: 0.0)  # never refreshes
    (run_id,) = index.found().entries
    assert index.entry(run_id).path == run.resolve()
    run.rename(tmp_path / "away")
    with pytest.raises(UnknownRunError, match="one does not exist any more"):
        index.entry(run_id)
    run.symlink_to(tmp_path / "away")
    with pytest.raises(UnknownRunError, match="one does not exist any more"):
        index.entry(run_id)


def test_all_views_share_one_summary_of_a_run(tmp_path: Path) -> None:
    run = write_run(tmp_path / "one", [line(10)])
    (run / "status.json").write_text(json.dumps({"status": "stopped", "reason": "SIGINT"}))
    opened: list[str] = []
    is_watching = True

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if is_watching and event == "open":
            opened.append(str(arguments[0]))

    sys.addaudithook(note)  # cannot be removed
    try:
        with client(tmp_path) as asking:
            (run_id,) = ids(asking).values()
            for url in (f"/api/curves/panels?runs={run_id}", f"/api/runs/{run_id}", "/api/runs"):
                assert asking.get(url).status_code == 200
            assert opened.count(str(run / "status.json")) == 1
            (run / "status.json").write_text(json.dumps({"status": "failed", "reason": "disk full"}))
            opened.clear()
            assert asking.get(f"/api/runs/{run_id}").json()["summary"]["reason"] == "disk full"
            assert row(asking, "one")["state"] == "failed"
            assert opened.count(str(run / "status.json")) == 1
    finally:
        is_watching = False


def test_names_are_only_ever_text(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for name in (HOSTILE.replace("/", "∕"), '"><img src=x onerror=alert(1)>', "new\nline", os.fsdecode(b"byte\xff")):
        write_run(runs / name)
    with client(runs) as asking:
        answer = asking.get("/api/runs")
        names = {run["name"] for run in answer.json()["runs"]}
        assert answer.headers["content-type"] == "application/json"
    assert names == {HOSTILE.replace("/", "∕"), '"><img src=x onerror=alert(1)>', "new\ufffdline", "byte?"}


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    outside, runs = write_run(tmp_path / "outside" / "one", [line(7)]), tmp_path / "runs"
    inside = write_run(runs / "two")
    (runs / "link").symlink_to(outside)
    (runs / "loop").symlink_to(runs)
    for name in ("result.json", "status.json"):
        (inside / name).symlink_to(outside / "config.json")
    (inside / "metrics.jsonl").unlink()
    (inside / "metrics.jsonl").symlink_to(outside / "metrics.jsonl")
    with client(runs) as asking:
        answer = asking.get("/api/runs").json()
        (found,) = answer["runs"]
        assert (found["name"], found["env_steps"]) == ("two", None)
        assert sorted(found["warnings"]) == [
            f"{name} is a link and was not followed" for name in ("metrics.jsonl", "result.json", "status.json")
        ]
        (problem,) = answer["warnings"]
        assert problem.startswith("link is a link out of runs and was not followed")
        curves = asking.get("/api/curves", params={"runs": found["id"], "key": "loss/td"}).json()
        assert curves["curves"] == {"loss/td": []}
    with client(runs / "link") as asking:  # named on the command line it is no secret
        assert row(asking, "one")["env_steps"] == 7


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\x00\xff\xfe junk", "is not valid JSON"),
        (b"[1, 2]", "is not a JSON object"),
        (b'{"a": ' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "is not valid JSON"),
        (b'{"a": "' + b"x" * (5 << 20) + b'"}', "larger than 4 MiB"),
        (b"", "is not valid JSON"),
    ],
)
def test_unreadable_files_are_reported(tmp_path: Path, content: bytes, problem: str) -> None:
    write_run(tmp_path / "good", [line(10)])
    run = write_run(tmp_path / "bad", [line(20)])
    for name in ("config.json", "metadata.json", "result.json", "status.json"):
        (run / name).write_bytes(content)
    with client(tmp_path) as asking:
        bad = row(asking, "bad")
        assert (bad["state"], bad["env_steps"], len(bad["warnings"])) == ("corrupted", 20, 4)
        assert all(problem in message for message in bad["warnings"])
        assert row(asking, "good")["warnings"] == []
        both = ",".join(ids(asking).values())
        answer = asking.get("/api/differences", params={"runs": both})
        assert answer.status_code == 422 and problem in answer.json()["error"]


ENV_FN = "yamame.envs.env_fn:EnvFnConfig"


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ({"type": ENV_FN, "env_fn": {"callable": "my_tasks:Beacon"}}, "Beacon"),
        ({"type": ENV_FN, "env_fn": {"callable": None, "name": "<lambda>", "why": "so"}}, "made-up"),
        ({"type": "yamame.envs.gymnasium:GymnasiumConfig", "id": "my_tasks:Beacon-v0"}, "Beacon-v0"),
        ({"type": "yamame.envs.gymnasium:GymnasiumConfig", "id": "CartPole-v1"}, "CartPole-v1"),
        ({"type": "yamame.envs.popgym:PopgymConfig", "name": "AutoencodeEasy"}, "AutoencodeEasy"),
        ({"type": "yamame.envs.tmaze:PassiveTMazeConfig", "horizon": 3}, "PassiveTMaze"),
        ({"type": ENV_FN, "env_fn": {"callable": ["odd"]}}, "made-up"),
        ({"type": ENV_FN, "env_fn": 3, "id": 7}, "EnvFn"),
    ],
)
def test_a_task_has_the_name_of_its_environment(env: dict[str, Any], name: str, tmp_path: Path) -> None:
    write_run(tmp_path / "one", [line(10)], env=env)
    with client(tmp_path) as asking:
        assert row(asking, "one")["task"] == name


def test_values_of_wrong_types_are_left_out(tmp_path: Path) -> None:
    run = write_run(tmp_path / "odd", [line(10)], env_steps="many", seed=[1], env={"type": ["x"]})
    (run / "metadata.json").write_text('{"recipe": {"a": 1}}')
    (run / "result.json").write_text('{"return_mean": "1e9", "success_rate": NaN, "env_steps": true, "updates": 1e999}')
    with client(tmp_path) as asking:
        odd = row(asking, "odd")
    assert (odd["recipe"], odd["task"], odd["seed"], odd["planned_env_steps"]) == ("", "", None, None)
    assert (odd["return_mean"], odd["success_rate"], odd["env_steps"], odd["updates"]) == (None, None, 10, 5)


def test_a_pipe_keeps_nobody_waiting(tmp_path: Path) -> None:
    run = write_run(tmp_path / "one")
    (run / "metrics.jsonl").unlink()
    os.mkfifo(run / "metrics.jsonl")
    os.mkfifo(run / "lock")
    with client(tmp_path) as asking:
        assert row(asking, "one")["warnings"] == ["metrics.jsonl is not a regular file"]


def test_no_deeper_than_runs_lie(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*(str(level) for level in range(MAX_DEPTH)))
    write_run(deep)
    write_run(deep.parent / "x" / "too-deep")
    write_run(tmp_path / ".hidden" / "one")
    with client(tmp_path) as asking:
        assert list(ids(asking)) == ["0/1/2/3"]


def test_differences_of_configs(tmp_path: Path) -> None:
    write_run(tmp_path / "a", agent={"width": 8, "layers": [1, 2]}, name="same")
    write_run(tmp_path / "b", agent={"width": 16, "layers": [1]}, name="same", seed=3, extra="<b>")
    with client(tmp_path) as asking:
        names = ids(asking)
        found = asking.get("/api/differences", params={"runs": f"{names['a']},{names['b']}"}).json()
        for runs in ("", names["a"], ",".join(["x"] * 9)):
            answer = asking.get("/api/differences", params={"runs": runs})
            assert answer.status_code == 422 and answer.json()["error"] == "choose from 2 to 8 runs to compare"
    assert [run["name"] for run in found["runs"]] == ["a", "b"]
    assert {part["field"]: part["values"] for part in found["differences"]} == {
        "seed": ["0", "3"],
        "agent.width": ["8", "16"],
        "agent.layers": ["[1, 2]", "[1]"],
        "extra": ["–", '"<b>"'],
    }
    assert found["same"] == 3
