"""What a run that is resumed makes up for: copies of its checkpoint, and shorter intervals."""

from pathlib import Path
from typing import Any

import pytest
from tiny import tiny_config

from yamame.metrics.progress import ProgressBar
from yamame.runs.directory import BEST, MILESTONES
from yamame.training import checkpointing
from yamame.training.trainer import Trainer

pytestmark = pytest.mark.slow

MANIFEST = "manifest.json"


class KilledError(Exception):
    """Stands for the end of the process."""


def train(run: Trainer) -> None:
    try:
        with ProgressBar(run.config.env_steps, quiet=True) as progress:
            run.train(progress)
    finally:
        run.close()


def resumed(run: Trainer, **changes: Any) -> Trainer:
    """The run as it begins when it is resumed, closed."""
    again = Trainer(tiny_config(**changes), run.directory, resume=True)
    again.close()
    return again


@pytest.mark.parametrize("killed_at", [1, 2])
def test_copies_that_a_kill_prevented_are_made_by_the_resumed_run(
    killed_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"checkpoint": {"milestone_interval_env_steps": 100}}
    run = Trainer(tiny_config(**changes), tmp_path)
    copy, calls = checkpointing.copy_checkpoint, []

    def killed(path: Path, directory: Path, **options: int) -> Path:
        calls.append(path)
        if len(calls) == killed_at:
            raise KilledError
        return copy(path, directory, **options)

    with monkeypatch.context() as patch:
        patch.setattr(checkpointing, "copy_checkpoint", killed)
        with pytest.raises(KilledError):
            train(run)
    saved = calls[-1] / MANIFEST
    copies = [tmp_path / name / calls[-1].name / MANIFEST for name in (BEST, MILESTONES)]
    assert [path.exists() for path in copies] == [killed_at == 2, False]
    resumed(run, **changes)
    assert [path.read_bytes() for path in copies] == [saved.read_bytes()] * 2
    copies[0].unlink()
    copies[0].write_text("{}")  # a copy of an older checkpoint of the same name
    resumed(run, **changes)
    assert copies[0].read_bytes() == saved.read_bytes()


def test_a_checkpoint_of_an_earlier_version_has_no_copies_to_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = checkpointing.save_checkpoint

    def earlier(directory: Path, *, state: dict[str, Any], **options: Any) -> Path:
        state = {key: value for key, value in state.items() if key not in ("is_best", "is_milestone")}
        return save(directory, state=state, **options)

    monkeypatch.setattr(checkpointing, "save_checkpoint", earlier)
    run = Trainer(tiny_config(eval={"interval_env_steps": 0}), tmp_path)
    run.save_checkpoint()
    run.close()
    resumed(run, eval={"interval_env_steps": 0})
    assert not (tmp_path / BEST).exists()


def test_shorter_intervals_hold_from_the_resume_on(tmp_path: Path) -> None:
    def settings(interval: int) -> dict[str, Any]:
        return {
            "env_steps": 64,
            "eval": {"interval_env_steps": interval},
            "checkpoint": {"milestone_interval_env_steps": interval},
        }

    run = Trainer(tiny_config(**settings(10_000)), tmp_path)
    train(run)
    saved = run.state.next_eval_step, run.state.next_milestone_step
    assert min(saved) >= 10_000
    for interval, expected in ((10_000, saved), (20_000, saved), (0, saved), (50, (run.env_steps + 50,) * 2)):
        again = resumed(run, **settings(interval))
        assert (again.state.next_eval_step, again.state.next_milestone_step) == expected
