"""The exported T-maze agent plays in a page, by onnxruntime-web and without network."""

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("selenium")
from browser import chromium, complaints, texts, wait_for
from documents import ROOT
from solved_tmaze import JUNCTION, solved_tmaze

import yamame

pytestmark = pytest.mark.browser

RUNTIME = ROOT / ".venv" / "onnxruntime-web"
UP, DOWN = 1, 3


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_agent_plays_in_a_page(tmp_path: Path) -> None:
    assert RUNTIME.exists(), "there is no onnxruntime-web to test the page with: make .venv/onnxruntime-web"
    run, site = yamame.open(solved_tmaze(tmp_path)), tmp_path / "site"
    shutil.copytree(ROOT / "examples" / "browser", site, ignore=shutil.ignore_patterns("node_modules", "policy.onnx*"))
    shutil.copytree(RUNTIME, site / "node_modules" / "onnxruntime-web")
    run.export(site / "policy.onnx")
    play = """
        const [goal, done] = arguments;
        Promise.all([import("/play.js"), import("/policy.js")])
            .then(async ([play, { Policy }]) => play.playTrial(await Policy.load("policy.onnx"), goal))
            .then(done, (error) => done(String(error)));
    """
    with served(site) as address, chromium(tmp_path / "profile") as driver:
        driver.get(address)
        ended = ("of 20 trials", "cannot be loaded")
        wait_for(lambda: any(words in texts(driver, "#result")[0] for words in ended), "twenty trials", seconds=120)
        assert texts(driver, "#result") == ["Solved 20 of 20 trials"]
        for goal in (-1, 1):
            trial = driver.execute_async_script(play, goal)
            assert trial == {"actions": actions_in_python(run, goal), "solved": True}
            assert trial["actions"][JUNCTION] == (UP if goal > 0 else DOWN)
        assert complaints(driver) == []
        events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
        urls = [each["params"]["request"]["url"] for each in events if each["method"] == "Network.requestWillBeSent"]
        assert {url for url in urls if url.startswith(("http", "ws")) and not url.startswith(f"{address}/")} == set()
        assert any(url.endswith(".wasm") for url in urls)


def actions_in_python(run: yamame.Run, goal: int) -> list[int]:
    """What the policy does by PyTorch on the way of an agent that goes right."""
    policy = run.load()
    observations = [np.array([float(time == JUNCTION), goal * (time == 0)], np.float32) for time in range(JUNCTION + 1)]
    return [int(policy.act(observation, deterministic=True)) for observation in observations]
