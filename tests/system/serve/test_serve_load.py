"""The program that measures the load."""

import json

import pytest
from documents import ROOT
from scripts import script

pytest.importorskip("uvicorn")
pytest.importorskip("websockets")
pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "flags", [[], pytest.param(["--websocket"], marks=pytest.mark.thorough)], ids=["http", "websocket"]
)
def test_a_line_for_each_number_of_sessions(flags: list[str]) -> None:
    run = str(ROOT / "tests" / "golden" / "solved-tmaze")
    done = script("serve_load", run, "--seconds", "0.3", "--sessions", "1", "3", "--json", *flags)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0 and [row["sessions"] for row in rows] == [1, 3]
    assert all(row["requests_per_second"] > 0 and 0.0 < row["p50_ms"] <= row["p99_ms"] for row in rows)
