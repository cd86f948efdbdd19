"""benchmarks/unaided.py: the default agent on tasks that nobody tuned it for."""

import json
from pathlib import Path

import pytest
from scripts import script
from unaided import make_config, require_same_flags

from yamame.config.serialization import to_json

SMALL = ("--env-steps", "300", "--eval.final-trials", "8", "--eval.interval-env-steps", "0", "--num-envs", "4")


@pytest.mark.slow
@pytest.mark.thorough
def test_runs_are_made_once_and_make_a_table(tmp_path: Path) -> None:
    command = ("--output-dir", str(tmp_path), "--tasks", "catch", "memory-size-10", "--seeds", "0", "1", *SMALL)
    first = script("unaided", *command)
    assert first.returncode == 0, first.stderr
    results = {path: path.read_text() for path in tmp_path.glob("*/result.json")}
    assert {path.parent.name for path in results} == {
        f"{task}-seed{seed}" for task in ("catch", "memory-size-10") for seed in (0, 1)
    }
    summary = json.loads((tmp_path / "unaided.json").read_text())
    scores = [run["score"] for runs in summary["tasks"].values() for run in runs]
    assert len(scores) == 4 and all(0.0 <= score <= 1.0 for score in scores)
    assert summary["score"] == pytest.approx(sum(scores) / 4) and summary["flags"] == list(SMALL)
    assert " catch |" in first.stdout and "over 2 tasks" in first.stdout
    again = script("unaided", *command)
    assert again.stdout == first.stdout and {path: path.read_text() for path in results} == results


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [(("--learner.tua", "0.1"), "did you mean --learner.tau"), (("--report",), "no run in")],
)
def test_what_cannot_be_run_is_one_line(flags: tuple[str, ...], complaint: str, tmp_path: Path) -> None:
    failed = script("unaided", "--output-dir", str(tmp_path), "--tasks", "catch", *flags)
    assert failed.returncode == 2 and complaint in failed.stderr and failed.stderr.count("\n") == 1


def test_runs_with_other_flags_are_refused(tmp_path: Path) -> None:
    config = make_config("catch", 3, SMALL)
    run = tmp_path / "catch-seed3"
    run.mkdir()
    (run / "config.json").write_text(json.dumps(to_json(config)))
    require_same_flags(tmp_path, SMALL)
    command = ("--output-dir", str(tmp_path), "--tasks", "memory-size-10", "--seeds", "0")
    for flags, difference in (
        ((*SMALL, "--learner.tau", "0.5"), "learner.tau"),
        ((*SMALL, "--env-steps", "301"), "env_steps"),
    ):
        for report in ((), ("--report",)):
            failed = script("unaided", *command, *report, *flags)
            assert failed.returncode == 2 and "choose another --output-dir" in failed.stderr
            assert difference in failed.stderr and failed.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == [run]
