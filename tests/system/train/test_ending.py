"""What a run's folder says of how its last process ended."""

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from command_runs import SMALL, interrupt_in_iteration
from typing_extensions import override

from yamame.cli import main
from yamame.runs.directory import LOCK, STATUS, RunLockedError, is_locked, lock_run_dir
from yamame.tools.study.execute import PlannedRun, RunStatus, train_or_resume
from yamame.training.callbacks import Callback, RunProgress
from yamame.training.run_files import RunMetadata, read_config
from yamame.training.start import train_run
from yamame.training.trainer import Trainer

pytestmark = pytest.mark.slow

TRAIN = ["train", "passive-tmaze", "--env.horizon", "3", "--env-steps", "256", *SMALL, "--quiet"]


def status_of(run: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((run / STATUS).read_text())
    return found


def test_a_stopped_run_has_a_status_until_it_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        interrupt_in_iteration(patch, 2)
        assert main([*TRAIN, "--run-dir", str(run)]) == 0
    assert status_of(run) == {"status": "stopped", "reason": "SIGINT"}
    assert main(["resume", str(run), "--quiet"]) == 0
    assert not (run / STATUS).exists() and (run / "result.json").exists()


def test_a_solved_run_trains_on_if_it_gets_more_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    solved_at_once = ["--eval.interval-env-steps", "32", "--eval.stop-return", "-9", "--env-steps-per-iteration", "32"]
    assert main([*TRAIN, *solved_at_once, "--run-dir", str(run)]) == 0
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.suffix == ".json"}
    result = json.loads((run / "result.json").read_text())
    assert result["env_steps"] == 64, "two evaluations"
    assert main(["resume", str(run), "--quiet"]) == 0
    assert main(["resume", str(run), "--quiet", "--env-steps", "64"]) == 0
    config = run / "config.json"
    assert config.read_bytes() == before[config], "a call that trains nothing changes no config"
    capsys.readouterr()
    assert main(["resume", str(run), "--quiet", "--env-steps", "32"]) == 2
    assert f"cannot resume {run} for 32 environment steps: it has made 64" in capsys.readouterr().err
    assert json.loads((run / "result.json").read_text())["env_steps"] == 64 and not (run / STATUS).exists()
    (run / "result.json").unlink()  # as if a signal had stopped the final evaluation
    planned = PlannedRun(recipe="passive-tmaze", series="full", config=read_config(run), directory=run)
    assert planned.status() is RunStatus.STARTED
    assert train_or_resume(planned, True)["env_steps"] == 64, "a sweep does not train on what is solved"
    assert config.read_bytes() == before[config]
    assert main(["resume", str(run), "--quiet", "--env-steps", "192"]) == 0
    assert json.loads((run / "result.json").read_text())["env_steps"] == 192
    assert json.loads(config.read_text())["eval"]["stop_return"] is None


def test_a_run_that_trains_past_its_end_and_is_killed_at_once_has_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    solved, ended = tmp_path / "solved", tmp_path / "ended"
    solved_at_once = ["--eval.interval-env-steps", "32", "--eval.stop-return", "-9", "--env-steps-per-iteration", "32"]
    assert main([*TRAIN, *solved_at_once, "--run-dir", str(solved)]) == 0
    config = read_config(solved)
    train_run(
        replace(config, eval=replace(config.eval, stop_return=None)),
        RunMetadata(recipe="passive-tmaze"),
        run_dir=ended,
        quiet=True,
        callbacks=[StopAtOnce()],
    )
    for run in (solved, ended):
        with monkeypatch.context() as patch:
            patch.setattr(Trainer, "train", raise_killed)
            with pytest.raises(KilledError):
                main(["resume", str(run), "--quiet", "--env-steps", "256"])
        assert main(["resume", str(run), "--quiet"]) == 0
        assert json.loads((run / "result.json").read_text())["env_steps"] == 256


class StopAtOnce(Callback):
    @override
    def on_iteration(self, run: RunProgress) -> None:
        run.stop("enough")


class KilledError(Exception):
    pass


def raise_killed(*_: object) -> str:
    raise KilledError


@pytest.mark.parametrize(
    ("problem", "why"), [(ValueError("wrong\nnumber"), "ValueError: wrong number"), (MemoryError(), "MemoryError")]
)
def test_a_failed_run_says_why(problem: Exception, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> float:
        raise problem

    monkeypatch.setattr(Trainer, "_run_iteration", fail)
    if isinstance(problem, MemoryError):  # an error of the user: the network does not fit
        assert main([*TRAIN, "--run-dir", str(tmp_path / "run")]) == 2
    else:
        with pytest.raises(type(problem)):
            main([*TRAIN, "--run-dir", str(tmp_path / "run")])
    assert status_of(tmp_path / "run") == {"status": "failed", "reason": why}


def test_is_locked(tmp_path: Path) -> None:
    assert not is_locked(tmp_path) and not (tmp_path / LOCK).exists()
    with lock_run_dir(tmp_path):
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path)


def test_is_locked_keeps_no_process_from_training(tmp_path: Path) -> None:
    """Another process checks all the time; training can always start."""
    (tmp_path / LOCK).touch()
    imports = "import sys; from pathlib import Path; from yamame.runs.directory import is_locked\nprint(flush=True)\n"
    looking = subprocess.Popen(
        [sys.executable, "-c", imports + "while True: is_locked(Path(sys.argv[1]))", str(tmp_path)],
        stdout=subprocess.PIPE,
    )
    try:
        assert looking.stdout is not None
        looking.stdout.readline()
        for _ in range(500):
            with lock_run_dir(tmp_path):
                pass
    finally:
        looking.send_signal(signal.SIGKILL)
        looking.communicate()


def test_a_killed_process_releases_the_lock(tmp_path: Path) -> None:
    hold = "import sys, time; from pathlib import Path; from yamame.runs.directory import lock_run_dir\n"
    hold += "with lock_run_dir(Path(sys.argv[1])):\n    print(flush=True)\n    time.sleep(60)\n"
    holding = subprocess.Popen([sys.executable, "-c", hold, str(tmp_path)], stdout=subprocess.PIPE)
    assert holding.stdout is not None
    holding.stdout.readline()
    assert is_locked(tmp_path)
    with pytest.raises(RunLockedError), lock_run_dir(tmp_path):
        pass
    holding.send_signal(signal.SIGKILL)
    holding.communicate()
    assert not is_locked(tmp_path)
    with lock_run_dir(tmp_path):
        pass
