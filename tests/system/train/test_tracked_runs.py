"""Runs in real trackers, on this machine: what they store, also of a run that was killed and resumed."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from command_runs import SMALL, interrupt_in_iteration, output_json, refused
from tiny import TINY_NETWORK
from tracked_runs import TrackedRun, read_mlflow, read_trackio, read_wandb, trackers_in

import yamame
from yamame.cli import main
from yamame.metrics.registry import read_metrics
from yamame.training.run_files import read_tracking
from yamame.training.trained_run import load_trained_run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated"),  # MLflow's use of SQLAlchemy
]

TRAIN = ["train", "passive-tmaze", "--env.horizon", "3", "--env-steps", "320", *SMALL]


@pytest.fixture(autouse=True)
def _stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    with trackers_in(tmp_path):
        yield


def require(tracker: str) -> Callable[[], list[TrackedRun]]:
    """Skip the test if the tracker is not installed; return the function that reads its runs."""
    pytest.importorskip(tracker)
    if tracker == "wandb":
        return lambda: read_wandb(Path.cwd())
    return (lambda: read_trackio(Path.cwd() / "trackio")) if tracker == "trackio" else read_mlflow


def logged_values(run: Path) -> list[dict[str, float]]:
    """What trackers should have of each line."""
    lines = read_metrics(run)
    return [{key: value for key, value in line.items() if key != "env_steps" and value is not None} for line in lines]


KILLED = """
import os, signal, sys
import yamame

class Kill(yamame.Callback):
    def on_iteration(self, run):
        if run.env_steps == 192:
            os.kill(os.getpid(), signal.SIGKILL)

yamame.train("passive-tmaze", run_dir="mine", track=[sys.argv[1]], callbacks=[Kill()], horizon=3, env_steps=320,
             **eval(sys.argv[2]))
"""
SETTINGS: dict[str, Any] = {
    "num_envs": 4,
    "env_steps_per_iteration": 64,
    "updates_per_env_step": 0.02,
    "replay.batch_size": 2,
    **TINY_NETWORK,
    "eval": {"trials": 4, "final_trials": 4, "num_envs": 4},
}


@pytest.mark.parametrize(
    "tracker", ["wandb", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("trackio", "mlflow"))]
)
def test_a_killed_run_continues_its_tracked_run(tracker: str, tmp_path: Path) -> None:
    read = require(tracker)
    child = subprocess.run(
        [sys.executable, "-c", KILLED, tracker, repr(SETTINGS)],
        env={name: value for name, value in os.environ.items() if name != "WANDB_SERVICE"},  # of this process
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr
    assert [line["env_steps"] for line in read_metrics(tmp_path / "mine")] == [64, 128]
    result = yamame.resume("mine").result  # from the start, since no other checkpoint was due
    assert result is not None
    record = read_tracking(tmp_path / "mine")
    assert record is not None and record.trackers == (tracker,)
    (tracked,) = read()
    assert tracked.run_id in (record.run_id, f"mine-{record.run_id[:8]}")
    assert str(tracked.config["env.horizon"]) == "3" and "learner.td.n_step" in tracked.config
    steps = [step for step, _ in tracked.lines]
    assert steps[-3:] == [192, 256, 320], "what had not been logged"
    assert steps[:-3] in ([], [64], [64, 128]), "a tracker may lose what it had not written yet; none has it twice"
    for (_, values), expected in zip(tracked.lines[-3:], logged_values(tmp_path / "mine")[-3:], strict=True):
        assert values == pytest.approx(expected) and "rollout/return_mean" in values
    assert tracked.result["result/return_mean"] == pytest.approx(result["return_mean"])
    assert tracked.result["result/return_ci95_low"] == pytest.approx(result["return_ci95"][0])
    assert tracked.endings == {"wandb": [0], "trackio": [], "mlflow": ["FINISHED"]}[tracker]


@pytest.mark.parametrize(("tracker", "endings"), [("wandb", [255]), ("trackio", [])])
def test_a_stopped_run_is_no_finished_one(
    tracker: str, endings: list[int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read = require(tracker)
    with monkeypatch.context() as patch:
        interrupt_in_iteration(patch, 3)
        stopped, _ = output_json(capsys, *TRAIN, "--run-dir", "mine", "--track", tracker)
    assert stopped["stopped_by"] == "SIGINT"
    (tracked,) = read()
    assert (tracked.endings, tracked.result) == (endings, {})
    assert [step for step, _ in tracked.lines] == [64, 128]
    output_json(capsys, "resume", "mine")
    (tracked,) = read()
    assert tracked.endings == (endings and [*endings, 0])
    assert [step for step, _ in tracked.lines] == [64, 128, 192, 256, 320]


def test_the_main_learner_alone_tracks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read = require("trackio")
    result, _ = output_json(capsys, *TRAIN, "--num-learners", "2", "--run-dir", "mine", "--track", "trackio")
    (tracked,) = read()
    assert [step for step, _ in tracked.lines] == [line["env_steps"] for line in read_metrics(tmp_path / "mine")]
    assert tracked.result["result/env_steps"] == result["env_steps"]


def test_tracking_changes_nothing_in_a_run(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    runs = [yamame.train("passive-tmaze", run_dir=name, track=track, horizon=3, env_steps=128, **SETTINGS)
            for name, track in (("with", ["wandb"]), ("without", []))]  # fmt: skip
    weights, others = (load_trained_run(run.directory).model.state_dict() for run in runs)
    assert all(torch.equal(weights[name], others[name]) for name in others)


def test_a_failing_tracker_does_not_stop_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wandb = pytest.importorskip("wandb")

    def fail(*_: Any, **__: Any) -> None:
        raise wandb.errors.CommError("the network\nis unreachable")

    monkeypatch.setattr(wandb, "init", fail)
    result, err = output_json(capsys, *TRAIN, "--run-dir", "mine", "--track", "wandb")
    assert result["env_steps"] == 320 and result["return_mean"] is not None
    assert err == "tracking with wandb failed: CommError: the network is unreachable\n"


@pytest.mark.thorough
def test_projects_are_named_by_the_variables_of_the_trackers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mazes")
    yamame.train("passive-tmaze", run_dir="mine", track=["mlflow"], horizon=3, env_steps=64, **SETTINGS)
    experiment = mlflow.MlflowClient().get_experiment_by_name("mazes")
    assert len(mlflow.MlflowClient().search_runs([experiment.experiment_id])) == 1


def test_an_unknown_tracker_is_refused_before_training(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    known = "unknown tracker 'wanbd': choose among mlflow, trackio, wandb"
    assert known in refused(capsys, *TRAIN, "--run-dir", "mine", "--track", "wanbd")
    assert not (tmp_path / "mine").exists()
    assert main([*TRAIN, "--run-dir", "mine", "--quiet"]) == 0
    assert known in refused(capsys, "resume", "mine", "--track", "wanbd")


def test_a_run_can_be_resumed_without_its_trackers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "mine"
    assert main([*TRAIN, "--run-dir", str(run), "--quiet"]) == 0
    (run / "tracking.json").write_text(f'{{"run_id": "{"a" * 32}", "trackers": ["wandb"]}}')
    monkeypatch.setattr("yamame.metrics.trackers.base.find_spec", lambda name: None)
    assert "pip install 'yamame[wandb]'" in refused(capsys, "resume", str(run), "--env-steps", "384")
    assert main(["resume", str(run), "--env-steps", "384", "--no-track", "--quiet"]) == 0
    record = read_tracking(run)
    assert record is not None and record.trackers == ("wandb",)
