"""The return of random actions is read from small JSON files, whatever state a run is in."""

import json
from pathlib import Path
from typing import Any

from results import evaluation_of, result_of

from yamame.runs.checkpoint import TENSORS, save_checkpoint
from yamame.training.run_files import random_baseline, random_baseline_return


def run_with(directory: Path, *, of_checkpoints: list[float | None], result: dict[str, Any] | None = None) -> Path:
    directory.mkdir()
    (directory / "config.json").write_text("{}")
    for step, mean in enumerate(of_checkpoints):
        baseline = None if mean is None else evaluation_of([mean])
        state = {"train_state": {"random_baseline": baseline}}
        save_checkpoint(directory / "checkpoints", step=step, tensors={}, state=state)
    if result is not None:
        (directory / "result.json").write_text(json.dumps(result))
    return directory


def test_a_finished_run_has_it_in_its_result(tmp_path: Path) -> None:
    run = run_with(
        tmp_path / "run", of_checkpoints=[0.1], result=result_of([1.0], random_baseline=evaluation_of([0.5]))
    )
    assert random_baseline(run) == evaluation_of([0.5]) and random_baseline_return(run) == 0.5


def test_an_unfinished_run_has_it_in_its_latest_checkpoint_whose_tensors_are_not_read(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", of_checkpoints=[None, 0.25])
    for tensors in run.rglob(TENSORS):
        tensors.unlink()
    assert random_baseline_return(run) == 0.25


def test_runs_that_lack_it_show_nothing(tmp_path: Path) -> None:
    assert random_baseline_return(run_with(tmp_path / "old", of_checkpoints=[0.1], result=result_of([1.0]))) is None
    assert random_baseline_return(run_with(tmp_path / "new", of_checkpoints=[None])) is None
    assert random_baseline_return(run_with(tmp_path / "empty", of_checkpoints=[])) is None
    corrupted = run_with(tmp_path / "corrupted", of_checkpoints=[0.1])
    for state in (
        '{"train_st',
        "[]",
        '{"train_state": 3}',
        '{"train_state": {"random_baseline": {"return_mean": "x"}}}',
    ):
        next(corrupted.rglob("state.json")).write_text(state)
        assert random_baseline_return(corrupted) is None
