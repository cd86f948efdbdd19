"""The page about serving: its client and its commands get what it shows."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from documents import ROOT, blocks
from solved_tmaze import solved_tmaze

pytest.importorskip("uvicorn")
pytest.importorskip("websockets")
from served_runs import serving

pytestmark = pytest.mark.slow
PAGE = ROOT / "docs" / "serving.md"


def test_the_client_and_the_commands(tmp_path: Path) -> None:
    (client,) = blocks(PAGE, "python")
    with serving(solved_tmaze(tmp_path)) as (_, address):
        server = address.removeprefix("http://").rstrip("/")
        names: dict[str, object] = {}
        exec(compile(client.replace("127.0.0.1:8000", server), "client.py", "exec"), names)
        assert names["reward"] == 1.0, "the agent has solved this maze"
        if shutil.which("curl"):
            _follow_curl(server)


def _follow_curl(server: str) -> None:
    session = ""
    for command, shown in re.findall(r"^\$ (curl .*)\n(.*)$", "\n".join(blocks(PAGE, "console")), re.MULTILINE):
        command = command.replace("127.0.0.1:8000", server)
        command = re.sub("sessions/[^/]+/", f"sessions/{session}/", command)
        found = json.loads(subprocess.run(command, shell=True, check=True, capture_output=True, timeout=60).stdout)
        expected = json.loads(shown)
        assert found.keys() == expected.keys() and found.get("time") == expected.get("time")
        session = found.get("session", session)
    assert session
