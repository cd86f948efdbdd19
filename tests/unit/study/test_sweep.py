"""`yamame sweep`: trains what is missing, loses nothing, and reports what failed."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command_runs import SMALL, interrupt_in_iteration, output_json, refused, snapshot
from sweep_runs import FakeTrain

import yamame
from yamame.errors import UserError
from yamame.metrics.registry import EVAL_RETURN, read_metrics
from yamame.runs.checkpoint import load_latest_checkpoint
from yamame.runs.directory import lock_run_dir
from yamame.tools.study.sweep import SweepReport, run_sweep

TASK = ["sweep", "passive-tmaze", "--env.horizon", "3", "--env-steps", "128", "--eval.interval-env-steps", "60", *SMALL]
RUNS = Path("sweeps/passive-tmaze")
WRITTEN = {"lock", "metadata.json", "config.json", "metrics.jsonl", "result.json", "report.html"}
"""Files of a run of `FakeTrain`, and the lock of the start that was killed."""


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def train() -> FakeTrain:
    return FakeTrain()


def sweep(train: FakeTrain, variants: str | None = None, *flags: str, **options: Any) -> SweepReport:
    return run_sweep("passive-tmaze", variants=variants, flags=flags, quiet=True, train=train, **options)


def rows(report: SweepReport) -> list[tuple[str, list[int]]]:
    return [(row["arm"], row["seeds"]) for row in report.results["arms"]]


def test_trains_what_is_missing_and_reports_all_there_is(train: FakeTrain, capsys: pytest.CaptureFixture[str]) -> None:
    report = sweep(train, "gru+no-popart")
    assert capsys.readouterr().err.splitlines() == ["[1/2] full seed 0", "[2/2] gru+no-popart seed 0"]
    assert rows(report) == [("full", [0]), ("gru+no-popart", [0])] and report.exit_code == 0
    before = {run: snapshot(RUNS / run) for run in ("full-seed-0", "gru+no-popart-seed-0")}
    report = sweep(train, "no-memory", seeds="0,1")
    assert train.titles[2:] == ["no-memory seed 0", "full seed 1", "no-memory seed 1"]
    assert "[2/4] no-memory seed 0" in capsys.readouterr().err
    assert rows(report) == [("full", [0, 1]), ("no-memory", [0, 1]), ("gru+no-popart", [0])]
    assert all(snapshot(RUNS / run) == times for run, times in before.items())
    again = sweep(train, "no-memory", seeds="0,1")
    assert again.results == report.results and len(train.titles) == 5
    assert sweep(train, report_only=True).results == report.results


def test_a_longer_sweep_resumes_and_another_config_is_refused(train: FakeTrain) -> None:
    sweep(train, "no-memory", "--env-steps", "100", no_full=True)
    before = snapshot(Path())
    # the arm that is there is not planned now, but its curve would stand in the same figure
    with pytest.raises(UserError, match=r"no-memory-seed-0 was trained with another config \(env.horizon 30, not 4\)"):
        sweep(train, "gru", "--env-steps", "100", "--env.horizon", "4")
    with pytest.raises(UserError, match=r"another config \(learner.learning_rate .*choose another --output-dir"):
        sweep(train, "gru", "--env-steps", "100", "--learner.learning-rate", "0.5")
    with pytest.raises(UserError, match="env_steps 100, not 64"):
        sweep(train, "no-memory", "--env-steps", "64")
    with pytest.raises(UserError, match="no-memory-seed-0 of passive-tmaze"):
        run_sweep("wind", output_dir=RUNS, train=train)
    assert snapshot(Path()) == before and len(train.titles) == 1
    report = sweep(train, "no-memory", "--env-steps", "150", no_full=True)
    assert report.results["arms"][0]["env_steps"] == 150
    own = ["no-memory --learner.learning-rate 0.5"]
    with pytest.raises(UserError, match=r"another config \(learner.learning_rate .*choose another --output-dir"):
        sweep(train, "no-memory", "--env-steps", "200", no_full=True, arm_flags=own)
    for _ in range(2):
        report = sweep(train, "no-memory", no_full=True, arm_flags=own, output_dir=Path("own"))
        assert rows(report) == [("no-memory", [0])]


def test_seeds_of_different_lengths_are_named(train: FakeTrain) -> None:
    report = sweep(train, "gru", "--env-steps", "100", seeds="0,1")
    assert report.results["lengths_differ"] == [] and "different numbers" not in report.text
    report = sweep(train, None, "--env-steps", "500", seeds="0")
    assert report.results["lengths_differ"] == ["full (100 to 500)"]
    assert "Seeds of different numbers of environment steps: full (100 to 500)." in report.text


def test_a_failing_run_does_not_stop_the_others(train: FakeTrain, capsys: pytest.CaptureFixture[str]) -> None:
    train.errors = {"full seed 0": ZeroDivisionError("by zero"), "gru seed 0": UserError("no\nspace")}
    report = sweep(train, "gru,no-memory")
    assert report.results["failed"] == {"full seed 0": "ZeroDivisionError: by zero", "gru seed 0": "no space"}
    assert report.exit_code == 1 and rows(report) == [("no-memory", [0])]
    assert "Failed: gru seed 0: no space" in report.text and "ZeroDivisionError" in capsys.readouterr().err
    train.errors = {}
    report = sweep(train, "gru,no-memory")
    assert train.titles[3:] == ["full seed 0", "gru seed 0"] and report.exit_code == 0


def test_a_run_of_another_process_is_passed_over(train: FakeTrain) -> None:
    run = RUNS / "full-seed-0"
    run.mkdir(parents=True)
    with lock_run_dir(run):
        report = sweep(train, "gru")
    assert report.results["in_progress"] == ["full seed 0"] and report.results["failed"] == {}
    assert train.titles == ["gru seed 0"] and rows(report) == [("gru", [0])] and report.exit_code == 0


def test_remains_of_a_killed_start_are_removed_and_nothing_else(train: FakeTrain) -> None:
    torn, other = RUNS / "full-seed-0", RUNS / "gru-seed-0"
    (torn / "replay").mkdir(parents=True)
    (torn / "lock").touch()
    for name in (".partial-spaces.json", "metrics.jsonl", "status.json", "metadata.json"):
        (torn / name).write_text("{")
    (torn / "tensorboard").mkdir()
    other.mkdir()
    (other / "thesis.tex").write_text("precious")
    report = sweep(train, "gru")
    assert rows(report) == [("full", [0])] and {path.name for path in torn.iterdir()} == WRITTEN
    assert "something else" in report.results["failed"]["gru seed 0"]
    assert (other / "thesis.tex").read_text() == "precious"


def test_a_signal_stops_the_sweep(train: FakeTrain) -> None:
    train.stop_at = "full seed 0"
    report = sweep(train, "gru")
    assert train.titles == ["full seed 0"] and report.exit_code == 0
    assert report.results["stopped_by"] == "SIGINT" and report.results["num_unfinished"] == 1
    assert "Stopped by SIGINT" in report.text and "Unfinished runs, not counted: 1." in report.text
    train.stop_at = ""
    report = sweep(train, "gru")
    assert rows(report) == [("full", [0]), ("gru", [0])] and "stopped_by" not in report.results


@pytest.mark.slow
def test_ctrl_c_stops_and_the_same_command_resumes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        interrupt_in_iteration(patch, 2)
        results, err = output_json(capsys, *TASK, "--variants", "no-memory")
    assert results["stopped_by"] == "SIGINT" and results["num_unfinished"] == 1 and results["arms"] == []
    assert "no-memory" not in err
    reached = read_metrics(RUNS / "full-seed-0")
    assert 0 < reached[-1]["env_steps"] < 128
    results, _ = output_json(capsys, *TASK, "--variants", "no-memory")
    assert results["num_unfinished"] == 0 and len(results["arms"]) == 2
    assert read_metrics(RUNS / "full-seed-0")[: len(reached)] == reached  # resumed, not restarted
    state = load_latest_checkpoint(RUNS / "full-seed-0/checkpoints").state["train_state"]
    assert results["arms"][0]["random_return"] == state["random_baseline"]["return_mean"]
    longer, _ = output_json(capsys, *TASK, "--no-full", "--variants", "no-memory", "--env-steps", "192")
    assert [row["env_steps"] for row in longer["arms"]] == [128, 192]


@pytest.mark.slow
def test_after_kill_9_the_same_command_resumes(capsys: pytest.CaptureFixture[str]) -> None:
    command = [*TASK, "--env-steps", "960", "--checkpoint.interval-seconds", "0", "--variants", "gru"]
    run = RUNS / "gru-seed-0"
    with subprocess.Popen(
        [sys.executable, "-m", "yamame", *command, "--quiet"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(yamame.__file__).parents[1])},
    ) as process:
        deadline = time.monotonic() + 120
        while len(read_metrics(run)) < 4:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        process.kill()
    first = RUNS / "full-seed-0"
    finished, torn = snapshot(first), read_metrics(run)
    assert (first / "result.json").exists() and not (run / "result.json").exists()
    results, err = output_json(capsys, *command)
    assert snapshot(first) == finished and "full" not in err
    assert [row["env_steps"] for row in results["arms"]] == [960, 960]
    assert read_metrics(run)[: len(torn) - 2] == torn[:-2]  # resumed, not restarted
    steps = [line["env_steps"] for line in read_metrics(run)]
    assert steps == sorted(set(steps)) and steps[-1] == 960


@pytest.mark.slow
def test_a_benchmark_trains_its_environments(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from popgym import envs

    command = ["sweep", "popgym", "--envs", "MineSweeperEasy,HigherLowerEasy", "--env-steps", "256", *SMALL]
    command += ["--env.num-workers", "0", "--eval.interval-env-steps", "100", "--context-length", "8"]
    with monkeypatch.context() as patch:
        patch.setattr(envs.MineSweeperEasy, "step", lambda *_: 1 / 0)
        results, err = output_json(capsys, *command, code=1)
    assert list(results["failed"]) == ["MineSweeperEasy-full seed 0"] and "ZeroDivisionError" in err
    (row,) = results["arms"]
    run = Path("sweeps/popgym/HigherLowerEasy-full-seed-0")
    returns = [line[EVAL_RETURN] for line in read_metrics(run) if EVAL_RETURN in line]
    final = json.loads((run / "result.json").read_text())["return_mean"]
    assert row["env"] == "HigherLowerEasy" and returns and row["score_per_seed"] == [max([*returns, final])]
    error = refused(capsys, *command, "--env-steps", "64")
    assert "another config" in error and "env_steps 256, not 64" in error
