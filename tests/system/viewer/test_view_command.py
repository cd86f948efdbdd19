"""`yamame view` as a contract: what it prints, how it ends, one line for every error."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from command_runs import refused, snapshot
from runs_to_view import line, write_run
from solved_tmaze import solved_tmaze

COMMAND = "import sys; from yamame.cli import main; sys.exit(main(sys.argv[1:]))"


HANGING = """
import sys
from player_tasks import record_and_hang
from yamame.cli import main
from yamame.tools.viewer import rollouts
rollouts._record = record_and_hang
if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""
"""The command, with an environment that hangs."""


@contextmanager
def viewing(folder: Path, *flags: str, code: str = COMMAND) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command in a process of its own, and the address that it prints."""
    arguments = [sys.executable, "-c", code, "view", *flags, "--no-browser"]
    path = os.pathsep.join([str(Path(__file__).parents[3]), *sys.path])
    process = subprocess.Popen(
        arguments,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        words = process.stdout.readline().split()
        yield process, next(word for word in words if word.startswith("http"))
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def answer(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as response:
        return str(response.read().decode())


def ask(url: str) -> None:
    """A question that may never be answered."""
    with suppress(OSError):
        answer(url)


def until(condition: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_shows_the_runs_folder_writes_nothing_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "one", [line(10)])
    write_run(tmp_path / "sweeps" / "popgym" / "two", [line(10)])
    before = snapshot(tmp_path)
    with viewing(tmp_path) as (process, address):
        assert address.startswith("http://127.0.0.1:") and "token" not in address
        runs = answer(f"{address}api/runs")
        assert '"one"' in runs and '"popgym/two"' in runs
        assert "Yamame" in answer(address) and answer(f"{address}static/app.js")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
        assert (process.returncode, err) == (0, "")
    assert snapshot(tmp_path) == before


def test_ctrl_c_ends_it_while_an_environment_hangs(tmp_path: Path) -> None:
    solved_tmaze(tmp_path)
    with viewing(tmp_path, str(tmp_path), code=HANGING) as (process, address):
        (run,) = json.loads(answer(f"{address}api/runs"))["runs"]
        url = f"{address}api/rollouts/{run['id']}/recording?seed=1"
        threading.Thread(target=ask, args=(url,), daemon=True).start()
        mark = tmp_path / "hangs"
        until(lambda: mark.exists() and mark.read_text() != "", 60)
        assert '"runs"' in answer(f"{address}api/runs")  # the list does not wait for it
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.wait(timeout=20)
        assert process.returncode == 0 and time.monotonic() - began < 10
        until(lambda: not is_alive(int(mark.read_text())), 10)


def test_on_this_machine_the_token_is_a_choice(tmp_path: Path) -> None:
    write_run(tmp_path / "one", [line(10)])
    with viewing(tmp_path, str(tmp_path), "--token") as (_, address):
        url, _, token = address.partition("?token=")
        assert url.startswith("http://127.0.0.1:") and len(token) >= 24
        with pytest.raises(urllib.error.HTTPError, match="403"):
            answer(f"{url}api/runs")


def test_notes_are_all_that_it_writes_and_read_only_not_even_those(tmp_path: Path) -> None:
    write_run(tmp_path / "one", [line(10)])
    for flags, status in (((), 200), (("--read-only",), 403)):
        with viewing(tmp_path, str(tmp_path), *flags) as (_, address):
            (run,) = json.loads(answer(f"{address}api/runs"))["runs"]
            url = f"{address}api/runs/{run['id']}/notes"
            body = json.dumps({"text": "x", "tags": [], "version": json.loads(answer(url))["version"]}).encode()
            headers = {"origin": address.rstrip("/"), "x-yamame-view": "1"}
            request = urllib.request.Request(url, body, headers, method="PUT")
            if status == 200:
                assert urllib.request.urlopen(request, timeout=20).status == 200
            else:
                with pytest.raises(urllib.error.HTTPError, match="403"):
                    urllib.request.urlopen(request, timeout=20)
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == [
        "config.json",
        "metadata.json",
        "metrics.jsonl",
        "notes.json",
    ]


def test_other_addresses_require_the_token(tmp_path: Path) -> None:
    write_run(tmp_path / "one", [line(10)])
    with viewing(tmp_path, str(tmp_path), "--host", "0.0.0.0") as (_, address):
        url, _, token = address.partition("?token=")
        assert len(token) >= 24
        with pytest.raises(urllib.error.HTTPError, match="403"):
            answer(f"{url}api/runs".replace("0.0.0.0", "127.0.0.1"))
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        here = address.replace("0.0.0.0", "127.0.0.1")
        assert "Yamame" in opener.open(here, timeout=20).read().decode()
        assert '"one"' in opener.open(here.partition("?")[0] + "api/runs", timeout=20).read().decode()


def test_mistakes_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert "there is no directory runs here" in refused(capsys, "view")
    assert "missing does not exist" in refused(capsys, "view", "missing")
    assert "file is not a directory" in refused(capsys, "view", "file")
    assert "70000 is not a port" in refused(capsys, "view", ".", "--port", "70000")
    assert "unknown flag --color" in refused(capsys, "view", ".", "--color")
    assert "cannot listen on 203.0.113.1" in refused(capsys, "view", ".", "--host", "203.0.113.1")
    assert "cannot listen on no-such-host.invalid" in refused(capsys, "view", ".", "--host", "no-such-host.invalid")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert f"cannot listen on 127.0.0.1 port {port}" in refused(capsys, "view", ".", "--port", port)


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_without_its_libraries_it_says_how_to_get_them(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = ("yamame.tools.viewer.", "yamame.tools.web.")
    for module in [name for name in sys.modules if name.startswith(ours) and not name.endswith(("command", "options"))]:
        monkeypatch.delitem(sys.modules, module)
    for module in [name for name in sys.modules if name.partition(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, module)

    class Missing:
        """An importer that says that it is not installed."""

        def find_spec(self, name: str, *_: object) -> None:
            if name.partition(".")[0] == missing:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])
    assert "pip install 'yamame[view]'" in refused(capsys, "view", str(tmp_path))


def test_the_page_s_files_are_in_the_package() -> None:
    """A built package has what `package-data` names."""
    import tomllib

    from yamame.tools.viewer.app import STATIC

    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    assert "tools/viewer/static/*" in project["tool"]["setuptools"]["package-data"]["yamame"]
    assert not [path for path in STATIC.iterdir() if path.is_dir()]
    text = "".join(path.read_text() for path in STATIC.iterdir())
    assert "innerHTML" not in text and "eval(" not in text
    assert not [word for word in text.split('"') if word.startswith(("http://", "https://")) and "w3.org" not in word]
