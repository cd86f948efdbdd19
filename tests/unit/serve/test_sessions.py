"""Sessions of the service: slots, expiry, one request at a time."""

import pytest

from yamame.tools.serve.protocol import RequestError
from yamame.tools.serve.sessions import Sessions


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_each_session_has_a_slot_of_its_own_until_it_is_closed() -> None:
    sessions = Sessions(max_sessions=2, idle_seconds=10.0)
    one, two = sessions.open(), sessions.open()
    assert {one.slot, two.slot} == {0, 1} and one.id != two.id and len(one.id) >= 16
    with pytest.raises(RequestError, match="all 2 sessions are in use") as refused:
        sessions.open()
    assert refused.value.status == 429
    sessions.close(one)
    assert sessions.open().slot == one.slot and len(sessions) == 2


def test_unused_sessions_expire_and_busy_ones_do_not() -> None:
    clock = Clock()
    sessions = Sessions(max_sessions=2, idle_seconds=10.0, clock=clock)
    unused, busy = sessions.open(), sessions.open()
    with sessions.use(busy.id):
        clock.now = 9.0
        assert len(sessions) == 2
        clock.now = 30.0
        assert len(sessions) == 1
        with pytest.raises(RequestError, match="no such session") as gone, sessions.use(unused.id):
            pass
        assert gone.value.status == 404
    clock.now = 39.0
    with sessions.use(busy.id):  # unused since its last request, not since it was opened
        pass
    clock.now = 49.5
    assert len(sessions) == 0


def test_one_request_at_a_time() -> None:
    sessions = Sessions(max_sessions=1, idle_seconds=10.0)
    session = sessions.open()
    with sessions.use(session.id):
        with pytest.raises(RequestError, match="another request") as refused, sessions.use(session.id):
            pass
        assert refused.value.status == 409
    with sessions.use(session.id):
        pass


def test_a_closed_session_is_unknown() -> None:
    sessions = Sessions(max_sessions=1, idle_seconds=10.0)
    session = sessions.open()
    with sessions.use(session.id):
        sessions.close(session)
    with pytest.raises(RequestError, match="no such session"), sessions.use(session.id):
        pass
