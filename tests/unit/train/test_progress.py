import io
import re
from contextlib import redirect_stderr

import pytest

from yamame.metrics.progress import SPEED_WINDOW_SECONDS, ProgressBar, TrialCounter


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


def run(stream, seconds, *, quiet=False):
    clock = Clock()
    with redirect_stderr(stream), ProgressBar(10_000, quiet=quiet, plain_every_seconds=5.0, clock=clock) as progress:
        for second in range(seconds):
            values = {"rollout/return_mean": 1.25, "rollout/success_rate": 0.5} if second == 2 else None
            progress.update(env_steps=second * 50, updates=second * 2, values=values)
            clock.now += 1
    return stream.getvalue()


def test_plain_lines_come_every_few_seconds(capsys):
    assert run(io.StringIO(), 12).splitlines() == [
        "  0 %  0 / 10,000 env steps  0 updates",
        "  2 %  250 / 10,000 env steps  10 updates  return 1.25  success 50 %  2.0 updates/s  50 steps/s  4 min left",
        "  5 %  500 / 10,000 env steps  20 updates  return 1.25  success 50 %  2.0 updates/s  50 steps/s  4 min left",
        "  6 %  550 / 10,000 env steps  22 updates  return 1.25  success 50 %  2.0 updates/s  50 steps/s  4 min left",
    ]
    assert capsys.readouterr().out == ""


def test_evaluations_are_shown_with_the_best_one():
    stream = io.StringIO()
    with redirect_stderr(stream), ProgressBar(100, plain_every_seconds=0.0, clock=Clock()) as progress:
        for step, value in ((96, 0.5), (96, 0.25), (103, None)):
            values = {} if value is None else {"eval/return_mean": value}
            progress.update(env_steps=step, updates=0, values=values)
    assert stream.getvalue().splitlines() == [
        " 96 %  96 / 100 env steps  0 updates  evaluation 0.5 (best 0.5)",
        " 96 %  96 / 100 env steps  0 updates  evaluation 0.25 (best 0.5)",
        "100 %  103 / 100 env steps  0 updates  evaluation 0.25 (best 0.5)",
    ]


def test_no_speed_is_shown_as_zero():
    stream, clock = io.StringIO(), Clock()
    with redirect_stderr(stream), ProgressBar(100, plain_every_seconds=0.0, clock=clock) as progress:
        for updates in (0, 10):
            progress.update(env_steps=50, updates=updates)
            clock.now += 5
    assert stream.getvalue().splitlines()[-1] == " 50 %  50 / 100 env steps  10 updates  2.0 updates/s"


def test_speeds_are_those_of_this_session_and_of_late():
    stream, clock = io.StringIO(), Clock()
    with redirect_stderr(stream), ProgressBar(1_000_000, plain_every_seconds=0.0, clock=clock) as progress:
        steps = 500_000  # a resumed run
        for second in range(100):
            progress.update(env_steps=steps, updates=second)
            clock.now += 1
            steps += 1000 if second < 50 else 10
    assert SPEED_WINDOW_SECONDS < 45
    lines = stream.getvalue().splitlines()
    assert " 1,000 steps/s" in lines[40] and " 10 steps/s" in lines[-1]
    assert lines[-1].endswith(" 12 h 30 min left")


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_quiet_says_nothing(stream):
    assert run(stream, 20, quiet=True) == ""


@pytest.mark.parametrize("update", [False, True])
@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_a_run_that_ends_at_once(kind, update):
    stream = kind()
    with redirect_stderr(stream), ProgressBar(0) as progress:
        if update:
            progress.update(env_steps=0, updates=0)
    assert ("updates" in stream.getvalue()) == update


def test_a_terminal_gets_a_bar_and_stdout_nothing(capsys):
    shown = run(Terminal(), 10)
    assert "━" in shown and "return 1.25" in shown
    assert capsys.readouterr().out == ""


def test_what_is_printed_inside_stays_on_stdout(capsys):
    with redirect_stderr(Terminal()), ProgressBar(10) as progress:
        progress.update(env_steps=1, updates=1)
        print('{"json": 1}')
    assert capsys.readouterr().out == '{"json": 1}\n'


def test_an_error_inside_passes_through():
    stream = Terminal()
    with pytest.raises(RuntimeError, match="boom"), redirect_stderr(stream), ProgressBar(10):
        raise RuntimeError("boom")
    assert stream.getvalue().count("\x1b[?25h") == stream.getvalue().count("\x1b[?25l")  # the cursor is back


def test_the_time_left_of_a_run_that_may_be_solved_is_an_upper_bound():
    stream, clock = io.StringIO(), Clock()
    with (
        redirect_stderr(stream),
        ProgressBar(100, may_end_early=True, plain_every_seconds=0.0, clock=clock) as progress,
    ):
        for env_steps in (0, 10):
            progress.update(env_steps=env_steps, updates=0)
            clock.now += 5
    assert stream.getvalue().splitlines()[-1].endswith("2 steps/s  45 s left at most")


def test_trials_are_counted_every_few_seconds(capsys):
    clock = Clock()
    counter = TrialCounter(2000, every_seconds=5.0, clock=clock)
    for finished in range(0, 1600, 100):
        counter.update(finished)
        clock.now += 1
    assert capsys.readouterr() == ("", "500 / 2,000 trials\n1,000 / 2,000 trials\n1,500 / 2,000 trials\n")


def test_the_bar_leaves_room_for_the_echo_of_ctrl_c(monkeypatch):
    """A terminal writes ^C after the last line; if that breaks the line, the bar is drawn twice."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", run(Terminal(), 12))
    lines = [line for line in re.split("[\r\n]+", text) if line]
    assert any("env steps" in line for line in lines) and max(map(len, lines)) <= 54
