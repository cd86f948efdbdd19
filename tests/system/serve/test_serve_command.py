"""`yamame serve` as a process: what it prints, garbage on the socket, how it drains, one line for every mistake."""

import json
import os
import signal
import socket
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from command_runs import refused, snapshot
from served_runs import serving
from solved_tmaze import solved_tmaze

pytest.importorskip("uvicorn")
pytest.importorskip("websockets")
from websockets.sync.client import connect

BODY = json.dumps({"observation": [0.0, 1.0], "deterministic": True}).encode()


def ask(url: str, body: bytes | None = None, method: str | None = None, **headers: str) -> Any:
    request = urllib.request.Request(url, body, headers, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read() or b"null")


def connection(address: str) -> socket.socket:
    url = urlsplit(address)
    assert url.hostname and url.port
    return socket.create_connection((url.hostname, url.port), timeout=30)


def read_all(open_connection: socket.socket) -> bytes:
    received = b""
    while part := open_connection.recv(65536):
        received += part
    return received


@pytest.mark.slow
def test_garbage_kills_nothing_and_sigterm_drains(tmp_path: Path) -> None:
    run = solved_tmaze(tmp_path)
    before = snapshot(run)
    with serving(run) as (process, address):
        session = ask(f"{address}sessions", b"")["session"]
        act = f"/sessions/{session}/act"
        for garbage in (b"\x00" * 100, b"GET\r\n\r\n", b"POST / HTTP/9.9\r\n\r\n", os.urandom(2000), b"\r\n" * 50):
            with connection(address) as open_connection:
                open_connection.sendall(garbage)
                open_connection.shutdown(socket.SHUT_WR)
                answer = read_all(open_connection)
                assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
        with connection(address) as open_connection:  # a body that never comes
            open_connection.sendall(f"POST {act} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{{".encode())
        first = ask(f"{address}{act[1:]}", BODY)
        with connect(f"ws{address.removeprefix('http')}websocket") as websocket:
            websocket.send(BODY.decode())
            assert json.loads(websocket.recv(timeout=30)) == first == {"action": first["action"], "time": 0}
            with connection(address) as begun:
                head = f"POST {act} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(BODY)}\r\n\r\n"
                begun.sendall(head.encode() + BODY[:5])
                assert ask(f"{address}health")["sessions"] == 2
                process.send_signal(signal.SIGTERM)
                with pytest.raises(OSError):
                    while True:  # until nobody listens any more
                        ask(f"{address}health")
                begun.sendall(BODY[5:])
                assert b'"time":1' in read_all(begun)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out, err) == (0, "", "")
    assert snapshot(run) == before


@pytest.mark.slow
@pytest.mark.thorough
def test_other_addresses_require_a_token(tmp_path: Path) -> None:
    run, token = solved_tmaze(tmp_path), "a-token-of-my-own"
    (tmp_path / "token").write_text(token + "\n")
    with serving(run, "--host", "0.0.0.0", "--token-file", str(tmp_path / "token")) as (process, address):
        here = address.replace("0.0.0.0", "127.0.0.1")
        assert ask(f"{here}health")["status"] == "ok"
        with pytest.raises(urllib.error.HTTPError, match="401"):
            ask(f"{here}policy")
        assert ask(f"{here}policy", Authorization=f"Bearer {token}")["horizon"] == 16
        assert process.stdout is not None and process.stdout.readline() == f"token: {tmp_path / 'token'}\n"


def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, short = solved_tmaze(tmp_path), tmp_path / "short"
    short.write_text("short")
    for flags, expected in (
        (["missing"], "missing"),
        ([str(run), "--checkpoint", "missing"], "missing"),
        (["policy.onnx", "--checkpoint", "best"], "--checkpoint best has no effect with an .onnx file"),
        ([str(run), "--port", "70000"], "70000 is not a port"),
        ([str(run), "--max-sessions", "0"], "max_sessions must be at least 1"),
        ([str(run), "--session-seconds", "nan"], "session_seconds must be a finite number"),
        ([str(run), "--max-body-bytes", "x"], "invalid int value"),
        ([str(run), "--token-file", "missing"], "cannot read the token in missing"),
        ([str(run), "--token-file", str(short)], "at least 16 characters"),
        ([str(run), "--host", "203.0.113.1"], "cannot listen on 203.0.113.1"),
        ([str(run), "--color"], "unknown flag --color"),
    ):
        assert expected in refused(capsys, "serve", *flags)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert f"cannot listen on 127.0.0.1 port {port}" in refused(capsys, "serve", str(run), "--port", port)


def test_without_its_libraries_it_says_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "websockets", None)
    assert "pip install 'yamame[serve]'" in refused(capsys, "serve", str(tmp_path))
