"""Ctrl-C stops a run whose environment installs handlers of its own, as nodes of ROS do."""

import signal

from yamame.distributed.signals import StopSignal


def test_handlers_of_environments_are_replaced() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopSignal() as stop:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        assert not stop.is_requested()
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_requested() and stop.requested == "SIGTERM"
    assert signal.getsignal(signal.SIGTERM) == before
