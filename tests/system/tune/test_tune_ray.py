"""`yamame tune --ray`: the local search, with trials in a real cluster whose processes and nodes die."""

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_runs import SMALL, output_json, refused
from processes import descendants, named

from yamame.distributed.ray.connection import RayConnection
from yamame.metrics.registry import read_metrics
from yamame.runs.directory import RESULT
from yamame.tools.tune import trial
from yamame.tools.tune.ray_executor import THREAD_NAME

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Ray's own warnings
pytest.importorskip("optuna")
pytest.importorskip("ray")

SEARCH = ["--search", "learner.learning_rate=log:1e-4..1e-2", "--search", "replay.batch_size=2,4"]
TINY = ["--env.horizon", "3", "--eval.interval-env-steps", "64", *SMALL]
SHORT, LONG = ["--env-steps", "192", *TINY], ["--env-steps", "2560", *TINY]
_TIMES = re.compile("time/|wall_seconds")
ACTOR = "ray::TrialActor"

Tune = Callable[..., tuple[dict[str, Any], str]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A node with room for two trials."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
        yield cluster
        cluster.shutdown()


@pytest.fixture
def tune(cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Tune:
    """Runs a search, in the cluster unless `locally`; returns its results and stderr."""

    def run(name: str, *flags: str, locally: bool = False, code: int = 0) -> tuple[dict[str, Any], str]:
        where = [] if locally else ["--ray", cluster.address]
        directory = str(tmp_path / name)
        return output_json(
            capsys, "tune", "passive-tmaze", *SEARCH, "--output-dir", directory, *where, *flags, code=code
        )

    return run


def during_training(act: Callable[[int], None], *, times: int = 1) -> threading.Thread:
    """Call `act` with the process of the next trial as soon as it trains; for each of `times` processes."""

    def watch() -> None:
        met: set[int] = set()
        while len(met) < times:
            for process in named(descendants(os.getpid()), f"{ACTOR}.train"):
                if process not in met:
                    met.add(process)
                    act(process)
            time.sleep(0.05)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def kill(process: int) -> None:
    os.kill(process, signal.SIGKILL)


def same_metrics(one: Path, other: Path) -> bool:
    """Whether two runs logged the same but for durations."""
    first, second = (
        [{key: value for key, value in line.items() if not _TIMES.match(key)} for line in read_metrics(run)]
        for run in (one, other)
    )
    return first == second


@pytest.mark.thorough
def test_a_search_in_a_cluster_is_the_local_one(tune: Tune, tmp_path: Path) -> None:
    in_cluster, _ = tune("cluster", "--trials", "2", *SHORT)
    local, _ = tune("local", "--trials", "2", *SHORT, locally=True)
    assert [found["state"] for found in local["trials"]] == ["complete"] * 2
    assert in_cluster | {"output_dir": ""} == local | {"output_dir": ""}
    directories = tmp_path / "cluster", tmp_path / "local"
    texts = [(directory / "results.md").read_text() for directory in directories]
    assert texts[0] == texts[1]
    for name in ("trial-0000", "trial-0001"):
        runs = [directory / name for directory in directories]
        assert same_metrics(*runs)
        files = [{path.relative_to(run).parts[0] for path in run.rglob("*") if path.is_file()} for run in runs]
        assert files[0] | {"lock"} == files[1] > {"replay", "checkpoints", "report.md"}
    assert not named(descendants(os.getpid()), ACTOR)


@pytest.mark.thorough
def test_a_worse_trial_is_pruned_there(tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trials before it are local ones."""
    from test_tune import FakeTune

    with monkeypatch.context() as patch:
        patch.setattr(trial, "train_or_resume", FakeTune())
        tune("search", "--trials", "5", *LONG, locally=True)
    found, _ = tune("search", "--trials", "6", *LONG)
    assert [each["state"] for each in found["trials"]] == ["complete"] * 5 + ["pruned"]
    result = json.loads((tmp_path / "search" / "trial-0005" / RESULT).read_text())
    assert result["end_reason"] == "pruned" and result["env_steps"] < 128
    assert found["trials"][5]["return_mean"] <= 1.0


@pytest.mark.thorough
def test_a_trial_whose_process_dies_is_made_again(tune: Tune) -> None:
    watching = during_training(kill)
    found, err = tune("search", "--trials", "1", *SHORT)
    watching.join()
    assert [each["state"] for each in found["trials"]] == ["complete"]
    assert "trial-0000: its process was lost 1 of at most 3 times (ActorDiedError" in err


@pytest.mark.thorough
def test_a_signal_brings_the_trials_back_and_the_same_command_resumes_them(tune: Tune, tmp_path: Path) -> None:
    journal = tmp_path / "search" / "study.journal"

    def interrupt(_: int) -> None:
        while journal.read_text().count("intermediate_value") < 2:  # the first one's iteration is in the metrics then
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    watching = during_training(interrupt)
    stopped, _ = tune("search", "--trials", "1", *LONG)
    watching.join()
    assert stopped["stopped_by"] == "SIGINT" and [each["state"] for each in stopped["trials"]] == ["running"]
    run = tmp_path / "search" / "trial-0000"
    made = read_metrics(run)
    assert 0 < made[-1]["env_steps"] < 2560 and not (run / RESULT).exists()
    deadline = time.monotonic() + 10.0  # Ray kills processes in the background
    while left := named(descendants(os.getpid()), ACTOR):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)

    resumed, _ = tune("search", "--trials", "1", *LONG)
    assert [each["state"] for each in resumed["trials"]] == ["complete"] and "stopped_by" not in resumed
    assert read_metrics(run)[: len(made)] == made  # with their times: it was not made again
    alone, _ = tune("local", "--trials", "1", *LONG, locally=True)
    assert resumed["trials"] == alone["trials"]
    assert same_metrics(run, tmp_path / "local" / "trial-0000")


@pytest.mark.thorough
def test_no_thread_waits_for_the_cluster_when_the_search_disconnects(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray crashes the process otherwise, if rarely."""
    disconnect, alive = RayConnection.close, []

    def count(connection: RayConnection) -> None:
        alive.append(sum(thread.name == THREAD_NAME for thread in threading.enumerate()))
        disconnect(connection)

    monkeypatch.setattr(RayConnection, "close", count)
    tune("search", "--trials", "1", *SHORT)
    assert alive == [0]


@pytest.mark.thorough
def test_a_trial_that_loses_every_process_fails_and_the_search_goes_on(tune: Tune) -> None:
    watching = during_training(kill, times=3)
    found, _ = tune("search", "--trials", "2", "--workers", "1", *SHORT, code=1)
    watching.join()
    assert [each["state"] for each in found["trials"]] == ["fail", "complete"]
    assert "its process was lost 3 times" in found["trials"][0]["error"]


@pytest.mark.thorough
def test_trials_of_a_node_that_dies_move_to_another(cluster: Any, tune: Tune) -> None:
    node = cluster.add_node(num_cpus=2, resources={"extra": 1})

    def remove(_: int) -> None:
        cluster.remove_node(node, allow_graceful=False)

    watching = during_training(remove)
    found, err = tune("search", "--trials", "4", *SHORT)
    watching.join()
    assert [each["state"] for each in found["trials"]] == ["complete"] * 4
    assert "was lost 1 of at most 3" in err


@pytest.mark.thorough
def test_no_node_has_room(cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "search"
    for flags, expected in ((["--cpus-per-trial", "3"], "(3 cores)"), (["--gpus-per-trial", "0.5"], "0.5 GPUs")):
        where = ["--ray", cluster.address, "--output-dir", str(directory), *flags]
        line = refused(capsys, "tune", "passive-tmaze", *SEARCH, *where)
        assert "no node of the cluster has room for a trial" in line and expected in line
    assert not directory.exists()
