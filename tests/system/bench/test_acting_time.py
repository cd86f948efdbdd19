"""The time of a call of a loaded policy."""

import json

import pytest
from documents import ROOT
from scripts import script

pytestmark = pytest.mark.slow


def test_a_line_for_each_number_of_environments() -> None:
    done = script(
        "acting", str(ROOT / "tests" / "golden" / "solved-tmaze"), "--steps", "5", "--num-envs", "1", "3", "--json"
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0 and [row["num_envs"] for row in rows] == [1, 3]
    assert all(0.0 < row["min_ms"] <= row["median_ms"] <= row["percentile_99_ms"] for row in rows)
