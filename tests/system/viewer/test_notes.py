"""Notes and tags of runs: what is written, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from runs_to_view import client, ids, line, row, write_run
from starlette.testclient import TestClient

from yamame.runs.directory import create_run_dir
from yamame.tools.viewer.notes import MAX_TAG_LENGTH, MAX_TAGS, MAX_TEXT

OWN = {"origin": "http://127.0.0.1:8000", "x-yamame-view": "1"}
HOSTILE = "</script><script>alert(1)</script>"


def put(asking: TestClient, name: str, text: Any, tags: Any, version: str | None = None) -> Any:
    """Write the notes of a run as the page does; its version is the present one if none is given."""
    url = f"/api/runs/{ids(asking)[name]}/notes"
    known = asking.get(url).json().get("version", "") if version is None else version
    return asking.put(url, json={"text": text, "tags": tags, "version": known}, headers=OWN)


def test_notes_are_kept_in_the_run_directory_and_listed(tmp_path: Path) -> None:
    run = write_run(tmp_path / "one", [line(10)])
    with client(tmp_path) as asking:
        before = row(asking, "one")
        assert (before["tags"], before["note"]) == ([], "")
        answer = put(asking, "one", f"first line\n\tsecond {HOSTILE}", ["baseline", "paper", "baseline", " wide "])
        assert answer.status_code == 200 and answer.json()["tags"] == ["baseline", "paper", "wide"]
        after = row(asking, "one")
        found = asking.get(f"/api/runs/{ids(asking)['one']}/notes").json()
    assert (after["tags"], after["note"]) == (["baseline", "paper", "wide"], f"first line\n    second {HOSTILE}")
    assert after["modified_time"] == before["modified_time"]  # the run itself has not changed
    assert found == answer.json()
    assert json.loads((run / "notes.json").read_text()) == {"text": found["text"], "tags": found["tags"]}
    assert not list(run.glob(".partial*"))


def test_two_pages_do_not_overwrite_each_other(tmp_path: Path) -> None:
    write_run(tmp_path / "one")
    with client(tmp_path) as asking:
        version = asking.get(f"/api/runs/{ids(asking)['one']}/notes").json()["version"]
        assert put(asking, "one", "mine", [], version).status_code == 200
        answer = put(asking, "one", "theirs", [], version)
        assert answer.status_code == 422 and "changed elsewhere" in answer.json()["error"]
        assert row(asking, "one")["note"] == "mine"


@pytest.mark.parametrize(
    ("text", "tags", "problem"),
    [
        ("x" * (MAX_TEXT + 1), [], "at most 10,000 characters"),
        ("x" * (MAX_TEXT - 10) + "\t" * 10, [], "at most 10,000 characters"),  # tabs become spaces
        (["x"], [], "at most 10,000 characters"),
        ("x", ["t"] * (MAX_TAGS + 1), "at most 20 tags"),
        ("x", "tag", "at most 20 tags"),
        ("x", ["t" * (MAX_TAG_LENGTH + 1)], "a tag has 1 to 40"),
        ("x", [" "], "a tag has 1 to 40"),
        ("x", ["a\nb"], "a tag has 1 to 40"),
        ("x", [{"a": 1}], "a tag has 1 to 40"),
    ],
)
def test_what_is_too_long_is_refused(tmp_path: Path, text: Any, tags: Any, problem: str) -> None:
    run = write_run(tmp_path / "one")
    with client(tmp_path) as asking:
        answer = put(asking, "one", text, tags)
    assert answer.status_code == 422 and problem in answer.json()["error"] and not (run / "notes.json").exists()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"[" * 60_000, "not valid JSON"),
        (b"\xff{", "not valid JSON"),
        (b"[]", "not a JSON object"),
        (b" " * (65 << 10), "larger than 64 KiB"),
    ],
)
def test_other_requests_are_refused(tmp_path: Path, content: bytes, problem: str) -> None:
    run = write_run(tmp_path / "one")
    with client(tmp_path) as asking:
        answer = asking.put(f"/api/runs/{ids(asking)['one']}/notes", content=content, headers=OWN)
        assert asking.put("/api/runs/nothing/notes", content=b"{}", headers=OWN).status_code == 422
        missing = asking.put("/api/runs/nothing/notes", json={"text": "", "tags": [], "version": ""}, headers=OWN)
    assert answer.status_code == 422 and problem in answer.json()["error"] and not (run / "notes.json").exists()
    assert missing.status_code == 404


def test_links_in_a_run_directory_are_not_written_through(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("treasure")
    run = write_run(tmp_path / "runs" / "one")
    for name in ("notes.json", ".partial-notes.json"):
        (run / name).symlink_to(outside)
    with client(tmp_path / "runs") as asking:
        found = asking.get(f"/api/runs/{ids(asking)['one']}/notes")
        assert found.status_code == 422 and "is a link" in found.json()["error"]
        assert "notes.json is a link and was not followed" in row(asking, "one")["warnings"]
        assert put(asking, "one", "mine", []).status_code == 422  # with the version of other notes
    assert outside.read_text() == "treasure"
    (run / "notes.json").unlink()
    with client(tmp_path / "runs") as asking:
        assert put(asking, "one", "mine", []).status_code == 200
    assert outside.read_text() == "treasure" and (run / "notes.json").is_file()


def test_a_folder_that_cannot_be_written_to_is_one_line(tmp_path: Path) -> None:
    run = write_run(tmp_path / "one")
    (run / ".partial-notes.json").mkdir()  # as root, tests may write everywhere else
    with client(tmp_path) as asking:
        answer = put(asking, "one", "mine", [])
    assert answer.status_code == 422 and answer.json()["error"].startswith("the notes of one cannot be saved (")
    assert str(tmp_path) not in answer.text


def test_hostile_notes_are_cut_and_printable(tmp_path: Path) -> None:
    run = write_run(tmp_path / "one")
    content = {"text": "x" * 20_000 + "end", "tags": ["a\x1bb", 3, None, "t" * 100] + ["u"] * 50}
    (run / "notes.json").write_text(json.dumps(content))
    with client(tmp_path) as asking:
        found = row(asking, "one")
        assert found["tags"] == ["a\ufffdb", "t" * MAX_TAG_LENGTH, "u"] and len(found["note"]) == 500
        (run / "notes.json").write_text('{"text": 3, "tags": "x"}')
        assert row(asking, "one")["tags"] == []


def test_a_note_does_not_keep_a_run_from_starting_again(tmp_path: Path) -> None:
    run = tmp_path / "one"
    run.mkdir()
    for name in ("lock", "metrics.jsonl", "notes.json"):
        (run / name).touch()
    assert create_run_dir(run, "passive-tmaze") == run and [entry.name for entry in run.iterdir()] == ["lock"]
