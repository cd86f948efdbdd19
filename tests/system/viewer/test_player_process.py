"""Environments play in a process of their own: the server outlives whatever they do."""

import time
from collections.abc import Callable, Iterator

import pytest
from player_tasks import die, double, fail, hang, leave, refuse

from yamame.errors import UserError
from yamame.tools.viewer.player_process import PlayerProcess

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def process() -> Iterator[PlayerProcess]:
    player = PlayerProcess((), timeout_seconds=60.0)
    yield player
    player.close()


@pytest.mark.parametrize(
    ("task", "problem"),
    [
        (die, r"ended the process \(code 3\)"),
        (leave, "cannot be played: SystemExit: 0$"),
        (fail, "cannot be played: ValueError: no second line"),
        (refuse, "^there is no such instruction$"),
    ],
)
def test_the_next_call_works(task: Callable[[], None], problem: str, process: PlayerProcess) -> None:
    with pytest.raises(UserError, match=problem):
        process.call(task)
    assert process.call(double, 21) == 42


def test_a_call_that_hangs_is_killed() -> None:
    process = PlayerProcess((), timeout_seconds=60.0)
    assert process.call(double, 1) == 2
    process._timeout = 0.5
    began = time.monotonic()
    with pytest.raises(UserError, match=r"takes more than 0\.5 s"):
        process.call(hang)
    assert time.monotonic() - began < 30
    process._timeout = 60.0
    assert process.call(double, 2) == 4
    assert process.close() is not None and process.close() is None
