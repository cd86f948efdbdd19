"""What is no list of callbacks is refused, before a run directory is made."""

from pathlib import Path
from typing import Any

import pytest

from yamame.envs.tmaze import PassiveTMazeConfig
from yamame.errors import UserError
from yamame.run_config import RunConfig
from yamame.training.callbacks import METHODS, Callback, RunProgress, call_back, check_callbacks


class Good(Callback):
    def on_iteration(self, run: Any, *, printed: bool = False) -> None: ...


class WithoutRun(Callback):
    def on_evaluation(self) -> None:  # type: ignore[override]
        ...


class WithMore(Callback):
    def on_end(self, run: Any, result: Any) -> None:  # type: ignore[override]
        ...


class NoMethod(Callback):
    on_start = 3  # type: ignore[assignment]


class Misspelled(Callback):
    def on_iteraton(self, run: Any) -> None: ...


class StopsByFalse(Callback):
    def on_iteration(self, run: Any) -> Any:
        return False


class OfAnotherLibrary:
    def on_step(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("callbacks", "message"),
    [
        (Good(), "put it into a list"),
        (None, "got NoneType"),
        ({Good()}, "got set"),
        ([Good], r"Good is a class: pass an object, Good\(\)"),
        ([Good(), OfAnotherLibrary()], "OfAnotherLibrary is no yamame.Callback"),
        ([print], "builtin_function_or_method is no yamame.Callback"),
        ([WithoutRun()], r"WithoutRun.on_evaluation cannot be called .*define on_evaluation\(self, run\)"),
        ([WithMore()], r"WithMore.on_end cannot be called .*'result'"),
        ([NoMethod()], "NoMethod.on_start cannot be called"),
        ([Misspelled()], r"Misspelled.on_iteraton is never called: the methods are on_start, on_iteration"),
    ],
)
def test_what_is_no_list_of_callbacks_is_named(callbacks: Any, message: str) -> None:
    with pytest.raises(UserError, match=message) as raised:
        check_callbacks(callbacks)
    assert "\n" not in str(raised.value)


def test_callbacks_pass() -> None:
    for callbacks in ([], (), [Good(), Callback()], (Good(),)):
        check_callbacks(callbacks)
    assert all(callable(getattr(Callback, method)) for method in METHODS)


def test_false_does_not_end_a_run_without_a_word() -> None:
    with pytest.raises(UserError, match=r"StopsByFalse.on_iteration returned False: .*run.stop\(reason\)"):
        call_back([StopsByFalse()], "on_iteration", RunProgress(Path(), RunConfig(env=PassiveTMazeConfig(horizon=3))))


class Logs(Callback):
    def __init__(self, name: Any) -> None:
        self.name = name

    def on_start(self, run: RunProgress) -> None:
        run.log({self.name: 1.0})

    def on_end(self, run: RunProgress) -> None:
        run.log({self.name: 1.0})


def new_run() -> RunProgress:
    return RunProgress(Path(), RunConfig(env=PassiveTMazeConfig(horizon=3)))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rollout/return_mean", r"'rollout/return_mean' is a metric of every run.*such as mine/return_mean"),
        ("rollout/return_mean_attempt_3", "is a metric of every run"),
        ("env_steps", "'env_steps' is no name of a metric: make it GROUP/NAME"),
        ("mine/two words", "is no name of a metric"),
    ],
)
def test_names_that_a_callback_cannot_log_are_refused(name: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        call_back([Logs(name)], "on_start", new_run())


def test_names_of_a_callback_may_share_a_group_with_those_of_the_run() -> None:
    assert call_back([Logs("rollout/distance"), Logs("mine/return_mean")], "on_start", new_run()) == {
        "rollout/distance": 1.0,
        "mine/return_mean": 1.0,
    }


def test_two_callbacks_that_log_one_name_are_refused() -> None:
    with pytest.raises(UserError, match=r"Logs.on_start logs 'mine/x', as another callback does"):
        call_back([Logs("mine/x"), Logs("mine/x")], "on_start", new_run())


def test_what_the_end_logs_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert call_back([Logs("mine/x")], "on_end", new_run()) == {}
    assert capsys.readouterr().err == ("callbacks: what on_end logs is not written (mine/x): log it in on_iteration\n")


def test_a_stop_without_a_reason_is_a_stop() -> None:
    run = new_run()
    run.stop("")
    assert run.stop_reason == "ended by a callback"
