"""Objects of the user that a run calls."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import TINY_NETWORK

import yamame
from yamame.errors import UserError
from yamame.training.trained_run import load_trained_run

pytestmark = pytest.mark.slow

SETTINGS: dict[str, Any] = {
    "horizon": 3,
    "num_envs": 4,
    "env_steps": 64,
    "env_steps_per_iteration": 16,
    "replay.batch_size": 2,
    "eval": {"trials": 4, "final_trials": 4, "num_envs": 4, "interval_env_steps": 32},
    **TINY_NETWORK,
}


class Recorder(yamame.Callback):
    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def on_start(self, run: yamame.RunProgress) -> None:
        self.calls.append(("start", run.env_steps))
        run.log({"mine/first": 7.0})

    def on_iteration(self, run: yamame.RunProgress) -> None:
        self.calls.append(("iteration", run.env_steps))
        run.log({"mine/steps_squared": float(run.env_steps**2)})
        assert run.metrics["time/update_seconds"] > 0

    def on_evaluation(self, run: yamame.RunProgress) -> None:
        assert run.evaluation is not None and run.evaluation.trials == 4
        self.calls.append(("evaluation", run.env_steps))

    def on_end(self, run: yamame.RunProgress) -> None:
        self.calls.append(("end", run.env_steps))


class StopAfter(yamame.Callback):
    def __init__(self, env_steps: int) -> None:
        self.env_steps = env_steps

    def on_iteration(self, run: yamame.RunProgress) -> None:
        if run.env_steps >= self.env_steps:
            run.stop("it was enough")


def test_callbacks_see_a_run_and_change_nothing(tmp_path: Path) -> None:
    recorder = Recorder()
    run = yamame.train("passive-tmaze", run_dir=tmp_path / "with", callbacks=[recorder], **SETTINGS)
    first = [("start", 0), ("evaluation", 16), ("iteration", 16), ("iteration", 32)]
    assert recorder.calls == [*first, ("evaluation", 48), ("iteration", 48), ("iteration", 64), ("end", 64)]
    assert run.metrics()["mine/first"][0] == 7.0
    assert run.metrics()["mine/steps_squared"].tolist() == [256.0, 1024.0, 2304.0, 4096.0]
    assert run.result is not None and run.result["end_reason"] == "all environment steps made"
    plain = yamame.train("passive-tmaze", run_dir=tmp_path / "without", **SETTINGS)
    weights, others = (load_trained_run(each.directory).model.state_dict() for each in (run, plain))
    assert all(torch.equal(weights[name], others[name]) for name in others)


def test_a_callback_can_end_a_run_that_more_steps_continue(tmp_path: Path) -> None:
    recorder = Recorder()
    callbacks = [recorder, StopAfter(32)]
    run = yamame.train("passive-tmaze", run_dir=tmp_path / "run", callbacks=callbacks, **SETTINGS)
    assert run.result is not None
    assert (run.result["env_steps"], run.result["end_reason"], run.result["trials"]) == (32, "it was enough", 4)
    assert recorder.calls[-1] == ("end", 32)
    again = yamame.resume(run.directory).result
    assert again is not None and (again["env_steps"], again["end_reason"]) == (32, "it was enough")
    longer = yamame.resume(run.directory, env_steps=64, callbacks=[recorder])
    assert longer.result is not None
    assert (longer.result["env_steps"], longer.result["end_reason"]) == (64, "all environment steps made")
    assert recorder.calls[-5:] == [("start", 32), ("evaluation", 48), ("iteration", 48), ("iteration", 64), ("end", 64)]


def test_a_solved_run_says_so(tmp_path: Path) -> None:
    run = yamame.train("passive-tmaze", run_dir=tmp_path / "run", **{**SETTINGS, "eval.stop_return": -5.0})
    assert run.result is not None
    assert run.result["end_reason"] == "solved: two evaluations of at least -5"
    assert "| training ended | solved: two evaluations of at least -5 |" in (run.directory / "report.md").read_text()


class Failing(yamame.Callback):
    def on_iteration(self, run: yamame.RunProgress) -> None:
        if run.env_steps == 32:
            raise ValueError("no place for the log")


def test_an_error_of_a_callback_is_raised_and_the_run_can_be_resumed(tmp_path: Path) -> None:
    recorder = Recorder()
    with pytest.raises(ValueError, match="no place for the log"):
        yamame.train("passive-tmaze", run_dir=tmp_path / "run", callbacks=[recorder, Failing()], **SETTINGS)
    assert recorder.calls[-1] == ("end", 32)
    with pytest.raises(UserError, match="has a run"):
        yamame.train("passive-tmaze", run_dir=tmp_path / "run", **SETTINGS)
    resumed = yamame.resume(tmp_path / "run")
    assert resumed.result is not None and resumed.result["env_steps"] == 64
