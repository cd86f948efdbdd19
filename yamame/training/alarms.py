"""Alarms of `signal.alarm` and `signal.setitimer`, which an environment may set and leave behind."""

import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

from yamame.errors import UserError

_TIMERS: Mapping[str, int] = {
    name: getattr(signal, timer)
    for name, timer in (("SIGALRM", "ITIMER_REAL"), ("SIGVTALRM", "ITIMER_VIRTUAL"), ("SIGPROF", "ITIMER_PROF"))
    if hasattr(signal, name)  # not on Windows
}
"""Signals -> their timers."""


@contextmanager
def named_alarms() -> Iterator[None]:
    """Raise `UserError` for an alarm without a handler, which would end the process silently.

    Timers that were started meanwhile are stopped at the end: their environments are closed. Also as a decorator. Does
    nothing on Windows, which has no timers, and outside of the main thread, which alone can handle signals.
    """
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield
        return
    names = [name for name in _TIMERS if signal.getsignal(signal.Signals[name]) is signal.SIG_DFL]
    stopped = [timer for timer in _TIMERS.values() if not any(signal.getitimer(timer))]
    for name in names:
        signal.signal(signal.Signals[name], _raise)
    try:
        yield
    finally:
        for timer in stopped:
            signal.setitimer(timer, 0.0)
        for name in names:
            if signal.getsignal(signal.Signals[name]) is _raise:
                signal.signal(signal.Signals[name], signal.SIG_DFL)


def _raise(number: int, frame: FrameType | None) -> None:
    name = signal.Signals(number).name
    if sys.platform != "win32":
        signal.setitimer(_TIMERS[name], 0.0)
    raise UserError(
        f"an alarm fired ({name}) that the environment or the program has set, and for which it has no handler: "
        "stop the timer where the guarded code ends"
    )
