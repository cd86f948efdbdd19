"""Data of the page of one run, and the files that it serves."""

import json
import os
from pathlib import Path

import pytest
from runs_to_view import client, ids, line, train, write_run

from yamame.tools.viewer.run_page import MAX_FILE_BYTES

PICTURE = b"\x89PNG\r\n\x1a\n"


@pytest.mark.slow
def test_the_page_of_a_real_run(tmp_path: Path) -> None:
    run = train(tmp_path / "one", "--learner.learning-rate", "0.003")
    with client(tmp_path) as asking:
        page = asking.get(f"/api/runs/{ids(asking)['one']}").json()
    assert page["summary"]["state"] == "finished" and page["read_only"] is False
    assert page["command"].startswith("yamame train passive-tmaze") or "train passive-tmaze" in page["command"]
    fields = {row["field"]: row for row in page["config"]}
    rate = fields["algorithm.learner.learning_rate"]
    assert (rate["value"], rate["changed"], rate["default"]) == ("0.003", True, "0.001")
    horizon = fields["env.horizon"]
    assert (horizon["value"], horizon["changed"], horizon["default"]) == ("3", True, "30")
    assert not fields["algorithm.learner.td.num_critics_in_target"]["changed"]
    overrides = json.loads((run / "metadata.json").read_text())["overrides"]
    assert sum(row["changed"] for row in page["config"]) >= len(overrides)
    assert page["results"]["env_steps"] == "256"
    assert {"config.json", "result.json"} <= {file["name"] for file in page["files"]}


def test_files_are_served_as_what_cannot_run(tmp_path: Path) -> None:
    run = write_run(tmp_path / "one", [line(1)])
    script = "<script>alert(1)</script>"
    for name in ("report.md", "report.html", "evil.svg", "evil.js", "evil", "x.png.html", ".hidden.md", "note.txt"):
        (run / name).write_text(script)
    (run / "curve.PNG").write_bytes(PICTURE)
    (run / "folder.png").mkdir()
    os.mkfifo(run / "pipe.txt")
    with client(tmp_path) as asking:
        one = ids(asking)["one"]
        listed = {file["name"]: file["type"] for file in asking.get(f"/api/runs/{one}").json()["files"]}
        answers = {path.name: asking.get(f"/api/runs/{one}/files/{path.name}") for path in run.iterdir()}
    assert listed == {
        "config.json": "text",
        "metadata.json": "text",
        "report.md": "text",
        "note.txt": "text",
        "curve.PNG": "image",
        ".hidden.md": "text",
    }
    served = {name: answer.headers["content-type"] for name, answer in answers.items() if answer.status_code == 200}
    assert served == {
        name: "image/png" if kind == "image" else "text/plain; charset=utf-8" for name, kind in listed.items()
    }
    for name in served:
        assert answers[name].headers["content-security-policy"].startswith("default-src 'none'; sandbox")
        assert answers[name].headers["x-content-type-options"] == "nosniff"
    assert answers["report.md"].text == script and answers["curve.PNG"].content == PICTURE
    assert {answer.status_code for name, answer in answers.items() if name not in served} == {404}


@pytest.mark.parametrize(
    "name",
    ["../secret.md", "..%2fsecret.md", "%2e%2e%2fsecret.md", "%2e%2e", "", "....//secret.md", "/etc/passwd",
     "%2fetc%2fpasswd", "..%5csecret.md", "link.md", "checkpoints%2fx.md", "report.md%00.png", "report.md/"],
)  # fmt: skip
def test_no_name_leads_out_of_the_run(tmp_path: Path, name: str) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "secret.md").write_text("treasure")
    run = write_run(tmp_path / "runs" / "one")
    (run / "report.md").write_text("report")
    (run / "checkpoints").mkdir()
    (run / "checkpoints" / "x.md").write_text("treasure")
    (run / "link.md").symlink_to(tmp_path / "runs" / "secret.md")
    with client(tmp_path / "runs") as asking:
        answer = asking.get(f"/api/runs/{ids(asking)['one']}/files/{name}")
    assert answer.status_code in (404, 307)
    assert "treasure" not in answer.text and "root:" not in answer.text


def test_large_files_and_corrupted_ones_are_reported(tmp_path: Path) -> None:
    run = write_run(tmp_path / "one")
    with (run / "large.txt").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    (run / "metadata.json").write_text(
        '{"command": ["x"], "expected": 3, "overrides": {"a": 1, "b": [1], "c": [1, 2]}}'
    )
    (run / "result.json").write_text("[" * 100_000)
    with client(tmp_path) as asking:
        one = ids(asking)["one"]
        large = asking.get(f"/api/runs/{one}/files/large.txt")
        page = asking.get(f"/api/runs/{one}").json()
        assert asking.get("/api/runs/nothing").status_code == 404
    assert large.status_code == 422 and "larger than 32 MiB" in large.json()["error"]
    assert (page["command"], page["expected"], page["results"]) == ("", "", {})
    assert any("result.json" in problem for problem in page["summary"]["warnings"])
    assert not any(row["changed"] for row in page["config"])
