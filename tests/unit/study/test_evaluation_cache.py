"""Evaluations of finished runs: made once, with seeds that chose nothing."""

from pathlib import Path
from typing import Any

import pytest
from sweep_runs import FakeTrain

from yamame.errors import UserError
from yamame.runs.checkpoint import MANIFEST
from yamame.runs.directory import BEST, CHECKPOINTS
from yamame.tools.study import evaluations
from yamame.tools.study.evaluations import EVALUATIONS, EvaluationCache
from yamame.tools.study.sweep import run_sweep


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The arguments of each evaluation; it returns their number."""
    made: list[dict[str, Any]] = []

    class LoadedRun:
        def __init__(self, run: Path, checkpoint: str) -> None:
            self.of = {"run": run.name, "checkpoint": checkpoint}

        def evaluate(self, **arguments: Any) -> dict[str, Any]:
            made.append({**self.of, **arguments})
            return {"return_mean": len(made), "success_rate": None, "trials": 8, "env_steps": 5, "seed": 3}

    monkeypatch.setattr(evaluations, "load_trained_run", LoadedRun)
    return made


def test_each_evaluation_is_made_once_and_kept_in_the_file(tmp_path: Path, calls: list[dict[str, Any]]) -> None:
    path, run = tmp_path / EVALUATIONS, tmp_path / "run"
    assert EvaluationCache(path).evaluate(run, 10, instruction="a")["return_mean"] == 1
    again = EvaluationCache(path)
    assert again.evaluate(run, 10, instruction="a")["return_mean"] == 1
    assert again.evaluate(run, 10, instruction="b")["return_mean"] == 2
    assert again.evaluate(run, 20, instruction="a")["return_mean"] == 3  # the run was resumed
    assert again.evaluate(run, 20, checkpoint="best")["return_mean"] == 4
    assert [call["checkpoint"] for call in calls] == ["latest", "latest", "latest", "best"]
    assert all(call["seed"] is None and call["trials"] is None for call in calls)


def test_a_run_that_was_made_again_is_evaluated_again(tmp_path: Path, calls: list[dict[str, Any]]) -> None:
    cache, run = EvaluationCache(tmp_path / EVALUATIONS), tmp_path / "run"
    for folder, checkpoint in ((CHECKPOINTS, "latest"), (BEST, "best")):
        manifest = run / folder / "update-000000001" / MANIFEST
        manifest.parent.mkdir(parents=True)
        seen = []
        for content in ("{}", "{}", '{"sha256": {}}'):
            manifest.write_text(content)
            seen.append(cache.evaluate(run, 10, checkpoint=checkpoint)["return_mean"])
        assert seen[0] == seen[1] != seen[2]
    assert len(calls) == 4


@pytest.mark.parametrize("text", ["{", "3", "[1]"])
def test_a_corrupted_file_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / EVALUATIONS).write_text(text)
    with pytest.raises(UserError, match=r"cannot be read .*: remove it"):
        EvaluationCache(tmp_path / EVALUATIONS)


def test_a_run_without_a_best_checkpoint_has_no_best_return(tmp_path: Path, calls: list[dict[str, Any]]) -> None:
    cache, run = EvaluationCache(tmp_path / EVALUATIONS), tmp_path / "run"
    assert cache.best_return(run, 10) is None
    (run / BEST).mkdir(parents=True)
    assert cache.best_return(run, 10) == 1.0
    assert calls == [{"run": "run", "trials": None, "seed": None, "instruction": "", "checkpoint": "best"}]


def test_a_benchmark_reports_the_best_checkpoint_anew_beside_its_maximum(
    tmp_path: Path, calls: list[dict[str, Any]]
) -> None:
    def train(run: Any, quiet: bool) -> Any:
        result = FakeTrain()(run, quiet)
        (run.directory / BEST).mkdir(parents=True)
        return result

    report = run_sweep("popgym", envs="RepeatFirstEasy", output_dir=tmp_path, seeds="0,1", quiet=True, train=train)
    (arm,) = report.results["arms"]
    assert len(calls) == 2
    assert arm["best_return_anew"] == pytest.approx(1.5)
    assert arm["score_mean"] != arm["best_return_anew"]
    assert " best, re-evaluated |" in report.text
    again = run_sweep("popgym", output_dir=tmp_path, report_only=True)
    assert len(calls) == 2
    assert again.results == report.results
