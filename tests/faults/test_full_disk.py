"""A disk that fills up under each writer of a run: one clear line, nothing saved is harmed, and space is enough."""

import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from killable import small_config
from left_behind import fingerprint, measured, replay_of

import yamame
from yamame.cli import main
from yamame.data.store import ReplayStore
from yamame.distributed.signals import StopSignal
from yamame.errors import UserError
from yamame.metrics.registry import read_metrics
from yamame.runs.checkpoint import load_latest_checkpoint
from yamame.training.evaluate import EvalReport
from yamame.training.run_evaluations import RunEvaluations
from yamame.training.run_files import RunMetadata, RunResult
from yamame.training.start import resume_run, train_run
from yamame.training.state import TrainState

DISK_BYTES = 4 << 20
HALF, WHOLE = 1_200, 2_400


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of four megabytes."""
    mounted = tmp_path / "disk"
    mounted.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(mounted)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    yield mounted
    subprocess.run(["umount", "--lazy", str(mounted)], check=True)


def fill(disk: Path, *, leave: int = 0) -> Path:
    """A file that takes all space but a little."""
    filler = disk / "filler"
    filler.write_bytes(bytes(shutil.disk_usage(disk).free - leave))
    return filler


def start(directory: Path, env_steps: int) -> RunResult:
    return train_run(small_config(env_steps=env_steps), RunMetadata(recipe="small"), run_dir=directory, quiet=True)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("undisturbed") / "run"
    start(directory, HALF)
    resume_run(directory, env_steps=WHOLE, quiet=True)
    return directory


@pytest.mark.faults
@pytest.mark.parametrize("part", ["checkpoints", "replay", "metrics.jsonl", "tensorboard"])
def test_a_writer_whose_disk_is_full(part: str, tmp_path: Path, disk: Path, undisturbed: Path) -> None:
    directory = tmp_path / "run"
    start(directory, HALF)
    shutil.move(directory / part, disk / part)
    (directory / part).symlink_to(disk / part)
    filler = fill(disk)
    before = load_latest_checkpoint(directory / "checkpoints")
    lines = read_metrics(directory)

    with pytest.raises(UserError, match=r"cannot write to .*: free disk space and resume") as caught:
        resume_run(directory, env_steps=WHOLE, quiet=True)
    assert "\n" not in str(caught.value)
    assert part in str(caught.value)

    after = load_latest_checkpoint(directory / "checkpoints")
    assert after.step >= before.step and after.skipped_corrupted == ()
    assert read_metrics(directory)[: len(lines)] == lines
    filler.unlink()
    resume_run(directory, env_steps=WHOLE, quiet=True)
    assert fingerprint(directory) == fingerprint(undisturbed)
    assert replay_of(directory) == replay_of(undisturbed)
    assert measured(directory) == measured(undisturbed)


@pytest.mark.faults
def test_a_run_that_does_not_fit_at_all_leaves_nothing(disk: Path) -> None:
    fill(disk, leave=20_000)
    with pytest.raises(UserError, match="free disk space"):
        start(disk / "run", HALF)
    assert not (disk / "run").exists()


@pytest.mark.faults
def test_a_report_that_does_not_fit_can_be_written_later(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled: list[Path] = []
    original = RunEvaluations.evaluate

    def fill_and_evaluate(
        self: RunEvaluations, state: TrainState, stop: StopSignal, *, trials: int, **seed: int
    ) -> EvalReport | None:
        if not filled and not seed:  # after training
            filled.append(fill(disk))
        return original(self, state, stop, trials=trials, **seed)

    monkeypatch.setattr(RunEvaluations, "evaluate", fill_and_evaluate)
    with pytest.raises(UserError, match="free disk space"):
        start(disk / "run", HALF)
    assert filled
    filled[0].unlink()
    assert yamame.resume(disk / "run").result["env_steps"] == HALF
    assert (disk / "run" / "report.md").exists()


@pytest.mark.faults
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_disk_that_can_only_be_read(is_killed: bool, disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = disk / "run"
    start(run, HALF)
    if is_killed:  # its log is left, and the shared memory that belongs to it
        with closing(sqlite3.connect(run / "replay" / "replay.sqlite")) as connection:
            connection.execute("INSERT INTO counters VALUES ('unused', 0)")
            connection.commit()
            shutil.copytree(run / "replay", disk / "copy")
        shutil.rmtree(run / "replay")
        (disk / "copy").rename(run / "replay")
        assert (run / "replay" / "replay.sqlite-wal").stat().st_size
    before = {path.name: path.read_bytes() for path in (run / "replay").iterdir()}
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)

    for command in ("info", "verify"):
        assert main(["data", command, str(run)]) == 0, capsys.readouterr().err
    for command in (["resume", str(run), "--env-steps", str(WHOLE)], ["data", "repair", str(run)]):
        capsys.readouterr()
        assert main(command) == 2
        err = capsys.readouterr().err
        assert err.startswith("yamame: cannot") and err.count("\n") == 1
    with pytest.raises(UserError, match=r"cannot open .*writable"):
        ReplayStore(run / "replay", capacity_trajectories=5, cache_bytes=0)
    assert {path.name: path.read_bytes() for path in (run / "replay").iterdir()} == before
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    resume_run(run, env_steps=WHOLE, quiet=True)
