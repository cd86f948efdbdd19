"""benchmarks/gpu.py, whose parts run at tiny size on a CPU."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gpu import Part, run_parts
from scripts import BENCHMARKS, script

PROGRAM = str(BENCHMARKS / "gpu.py")


@pytest.mark.slow
@pytest.mark.thorough  # minutes
def test_parts_are_written_as_they_end(tmp_path: Path) -> None:
    names = ["machine", "tests", "learner-popgym-128", "train-tmaze-30"]
    answer = script("gpu", "--device", "cpu", "--output-dir", str(tmp_path), "--parts", *names)
    assert answer.returncode == 0, answer.stdout
    found = {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in names}
    assert "tests collected" in found.pop("tests")["text"]
    machine, learner, maze = (part["result"] for part in found.values())
    assert machine["torch"] and machine["copy_gb_per_second"] > 0
    assert learner["updates_per_second"] > 0
    assert maze["env_steps"] >= 600 and (tmp_path / "run-tmaze-30" / "result.json").exists()
    rows = (tmp_path / "summary.md").read_text().splitlines()[2:]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == names


def test_a_part_that_exceeds_its_time_is_stopped_and_after_the_deadline_none_begins(tmp_path: Path) -> None:
    endless = Part(name="endless", command=["-c", "import time; time.sleep(600)"], seconds=1)
    assert run_parts([endless], tmp_path, time.monotonic() + 300) == 1
    stopped = json.loads((tmp_path / "endless.json").read_text())
    assert stopped["stopped_after_seconds"] == 1.0 and stopped["exit_code"] != 0
    assert "stopped: its time was over" in (tmp_path / "summary.md").read_text()
    assert run_parts([endless], tmp_path, time.monotonic()) == 0
    assert json.loads((tmp_path / "endless.json").read_text())["skipped"] == "no time left"


def test_a_part_without_its_packages_is_left_out(tmp_path: Path) -> None:
    part = Part(name="exotic", command=["-c", "pass"], seconds=1, packages=["no_such_package"])
    assert run_parts([part], tmp_path, time.monotonic() + 300) == 0
    assert "no_such_package" in (tmp_path / "summary.md").read_text()


def test_parts_are_listed_without_any_package(tmp_path: Path) -> None:
    """Not even PyTorch: without site-packages."""
    listed = subprocess.run(
        [sys.executable, "-I", "-S", PROGRAM, "--list"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    parts = listed.stdout.splitlines()
    assert parts[0].startswith("machine") and len(parts) > 12
    (tests,) = (part for part in parts if part.startswith("tests "))
    assert "test_gpu.py" in tests and "test_spaces.py" not in tests
    unknown = subprocess.run([sys.executable, PROGRAM, "--parts", "all"], capture_output=True, text=True, check=False)
    assert unknown.returncode == 2 and "no part all" in unknown.stderr
