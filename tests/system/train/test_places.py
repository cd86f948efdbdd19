"""Directories in which a run cannot start, or cannot go on."""

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest
from tiny import tiny_config

from yamame.cli import main
from yamame.distributed.signals import StopSignal
from yamame.errors import RunFailedError, UserError
from yamame.runs.directory import LOCK, create_run_dir, lock_run_dir
from yamame.training.run_evaluations import RunEvaluations
from yamame.training.run_files import RunMetadata
from yamame.training.start import train_run
from yamame.training.state import TrainState
from yamame.training.trained_run import load_trained_run
from yamame.training.trainer import Trainer

METADATA = RunMetadata(recipe="x")


@pytest.mark.slow
def test_a_start_that_was_killed_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"

    class KilledError(BaseException):
        """The run ends here."""

    def killed(trainer: Trainer, _: RunMetadata) -> None:
        shutil.copytree(run, tmp_path / "left")
        trainer.close()
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr("yamame.training.start._write_run_files", killed)
        with pytest.raises(KilledError):
            train_run(tiny_config(), METADATA, run_dir=run, quiet=True)
    shutil.copytree(tmp_path / "left", run)  # as `kill -9` leaves it
    with pytest.raises(UserError, match=r"killed while it started: train it again with --run-dir"):
        load_trained_run(run).evaluate(trials=None, seed=None)
    train_run(tiny_config(), METADATA, run_dir=run, quiet=True)
    assert (run / "result.json").exists()


def test_other_files_are_never_removed(tmp_path: Path) -> None:
    (tmp_path / LOCK).touch()
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UserError, match="is not empty"):
        create_run_dir(tmp_path, "x")
    assert {path.name for path in tmp_path.iterdir()} == {LOCK, "thesis.tex"}


def test_a_start_in_progress_is_not_disturbed(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    with lock_run_dir(tmp_path), pytest.raises(UserError, match="another process is training in"):
        create_run_dir(tmp_path, "x")
    assert (tmp_path / "checkpoints").exists()


@pytest.mark.slow
@pytest.mark.parametrize("replaced", [False, True])
def test_a_run_whose_directory_is_deleted_ends(replaced: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, original = tmp_path / "run", RunEvaluations.random_policy

    def delete(evaluations: RunEvaluations, state: TrainState, stop: StopSignal) -> TrainState:
        state = original(evaluations, state, stop)
        shutil.rmtree(run)
        if replaced:
            run.mkdir()
            (run / "metrics.jsonl").touch()
        return state

    monkeypatch.setattr(RunEvaluations, "random_policy", delete)
    with pytest.raises(RunFailedError, match="was deleted or replaced while the run trained in it"):
        train_run(tiny_config(), METADATA, run_dir=run, quiet=True)
    assert not (run / "checkpoints").exists() and not (run / "result.json").exists()


def test_a_read_only_place_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def acquire(_: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("yamame.runs.directory.FileLock.acquire", acquire)
    with pytest.raises(UserError, match="Read-only file system"), lock_run_dir(tmp_path):
        pass


@pytest.mark.parametrize("seed", [-1, 1 << 63, 1 << 64])
def test_seeds_beyond_all_generators_are_one_line(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    golden = Path(__file__).parents[2] / "golden" / "solved-tmaze"
    for command in (["eval", str(golden)], ["play", str(golden), "--output", str(tmp_path / "video.gif")]):
        assert main([*command, "--seed", str(seed)]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1 and f"seed {seed}" in err
