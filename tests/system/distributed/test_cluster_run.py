"""Whole runs from the command line with collectors in a cluster that is started for them."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import are_gone, descendants, named

from yamame.metrics.registry import read_metrics
from yamame.runs.checkpoint import load_latest_checkpoint
from yamame.training.run_files import read_config

pytestmark = pytest.mark.slow
pytest.importorskip("ray")

SMALL = {
    "env.horizon": 3,
    "num-envs": 8,
    "replay.batch-size": 4,
    "size": "tiny",
    "eval.final-trials": 8,
    "eval.num-envs": 8,
    "eval.interval-env-steps": 0,
    "env-steps-per-iteration": 80,
    "updates-per-env-step": 0.25,
    "learning-starts": 100,
}
MAIN = "import sys; from yamame.cli import main; sys.exit(main())"


began: "list[subprocess.Popen[str]]" = []


@pytest.fixture(autouse=True)
def none_goes_on() -> Iterator[None]:
    yield
    while began:
        run = began.pop()
        run.kill()
        run.communicate()


def yamame(*words: str, **environment: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", MAIN, *words]
    env = {**os.environ, **environment}
    began.append(subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    return began[-1]


def small_words() -> list[str]:
    return [word for name, value in SMALL.items() for word in (f"--{name}", str(value))]


def train(directory: Path, *words: str) -> "subprocess.Popen[str]":
    of_cluster = ["--ray.address", "local", "--ray.num-collectors", "2", "--run-dir", str(directory), "--json"]
    return yamame("train", "passive-tmaze", *small_words(), *of_cluster, *words)


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    since = time.monotonic()
    while not condition():
        assert time.monotonic() - since < seconds
        time.sleep(0.1)


def working(directory: Path) -> "tuple[subprocess.Popen[str], list[int]]":
    """A long run that has made some iterations, and all processes below it."""
    run = train(directory, "--env-steps", "1000000")
    wait_for(lambda: (directory / "metrics.jsonl").exists() and len(read_metrics(directory)) > 5, 120)
    return run, descendants(run.pid)


@pytest.mark.parametrize("learners", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_updates_follow_the_env_steps(tmp_path: Path, learners: int) -> None:
    """Several learners share the cluster that the first starts."""
    run = train(tmp_path / "run", "--env-steps", "1000", "--num-learners", str(learners))
    out, err = run.communicate(timeout=250)
    assert run.returncode == 0, err
    summary = json.loads(out.splitlines()[-1])
    config = read_config(tmp_path / "run")
    assert 1000 <= summary["env_steps"] < 1000 + 4
    assert summary["updates"] == config.updates_due(env_steps=summary["env_steps"], updates=0) > 100
    lines = read_metrics(tmp_path / "run")
    for line in lines:
        assert line["updates"] <= config.updates_due(env_steps=int(line["env_steps"]), updates=0)
    assert 1.0 <= max(line["collectors/num_ready"] for line in lines) <= 2.0  # one may be late on a busy machine
    assert {line["collectors/num_replaced"] for line in lines} == {0.0}
    assert any(line.get("collectors/policy_lag_updates_max", 0.0) > 0 for line in lines)
    assert "Traceback" not in err
    assert "lost" not in err
    assert "listen on all interfaces and require a token" in err


@pytest.mark.thorough
def test_a_signal_stops_it_at_once_and_resume_continues(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    run, family = working(directory)
    assert len(family) > 3
    requested = time.monotonic()
    run.send_signal(signal.SIGTERM)
    _, err = run.communicate(timeout=60)
    assert (run.returncode, time.monotonic() - requested < 10.0) == (0, True), err
    assert "stopped by SIGTERM" in err
    wait_for(lambda: are_gone(family), 30)
    saved = int(load_latest_checkpoint(directory / "checkpoints").state["env_steps"])
    assert saved >= read_metrics(directory)[-1]["env_steps"] > 0

    resumed = yamame("resume", str(directory), "--env-steps", str(saved + 100), "--json")
    out, err = resumed.communicate(timeout=250)
    assert resumed.returncode == 0, err
    assert saved + 100 <= json.loads(out.splitlines()[-1])["env_steps"] < saved + 104


@pytest.mark.thorough
def test_stdout_has_one_json_object_although_a_collector_was_killed(tmp_path: Path) -> None:
    """Ray prints a report of the death on the learner's stdout."""
    directory = tmp_path / "run"
    run, family = working(directory)
    os.kill(named(family, "Collector")[0], signal.SIGKILL)
    wait_for(lambda: read_metrics(directory)[-1]["collectors/num_replaced"] == 1.0, 60)
    time.sleep(10.0)  # Ray reports later
    run.send_signal(signal.SIGTERM)
    out, err = run.communicate(timeout=60)
    assert "A worker died" in err
    assert [json.loads(line)["stopped_by"] for line in out.splitlines()] == ["SIGTERM"]


@pytest.mark.thorough
def test_a_killed_learner_takes_its_cluster_with_it(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    run, family = working(directory)
    assert len(named(family, "Collector")) == 2
    run.kill()
    run.communicate(timeout=60)
    wait_for(lambda: not named(family, "Collector"), 30)
    wait_for(lambda: are_gone(family), 150)  # Ray's agents try for a minute to report their end to the dead head
    assert len(family) > 3


def refused(*words: str, **environment: str) -> str:
    since = time.monotonic()
    run = yamame("train", "passive-tmaze", *small_words(), "--ray.num-collectors", "2", *words, **environment)
    _, err = run.communicate(timeout=200)
    assert run.returncode == 2
    assert time.monotonic() - since < 100
    lines = err.strip().splitlines()
    assert len(lines) == 1, err
    return lines[0]


def test_without_ray_a_line_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "ray.py").write_text("raise ImportError('not here')")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    said = refused("--ray.address", "local", "--run-dir", str(tmp_path / "run"), PYTHONPATH=path)
    assert said == "yamame: --ray.address local needs Ray: pip install 'yamame[ray]'"
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:{port}",
        *(
            pytest.param(address, marks=pytest.mark.thorough)
            for address in (
                "ray://127.0.0.1:{port}",
                "nowhere.invalid:6379",
                "a b:c",
            )
        ),
    ],
)
def test_where_no_cluster_answers_a_line_says_so(tmp_path: Path, address: str) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = address.format(port=nobody.getsockname()[1])
        said = refused("--ray.address", address, "--run-dir", str(tmp_path / "run"))
    assert said.startswith(f"yamame: --ray.address {address} ")


def test_a_run_of_one_process_never_imports_ray() -> None:
    script = "import sys, yamame.cli, yamame.api, yamame.training.trainer; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
