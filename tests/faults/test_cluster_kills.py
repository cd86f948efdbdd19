"""`kill -9` of collectors, of nodes and of the learner at random moments: nothing hangs, nothing comes twice."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster_child import config_of
from processes import descendants, named

from yamame.cli import main
from yamame.learning.checkpoint import load_checkpoint
from yamame.replay.store import LMDBStore
from yamame.run.metrics import read_metrics

ray = pytest.importorskip("ray")

KILLS_EACH = int(os.environ.get("YAMAME_CLUSTER_KILLS", "20"))
LONGEST_PAUSE = 60.0
HERE = Path(__file__).parent
pytestmark = [pytest.mark.faults, pytest.mark.timeout(3600), pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head without room for collectors, and two nodes with room for one each."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    yield cluster
    cluster.shutdown()


class Trainer:
    """The learner's process."""

    def __init__(self, directory: Path, cluster: str) -> None:
        self.directory, self.cluster = directory, cluster
        self.begin()

    def begin(self, *env_steps: int) -> None:
        command = [sys.executable, HERE / "cluster_child.py", self.directory, self.cluster, *env_steps]
        self.process = subprocess.Popen([str(part) for part in command])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def env_steps(self) -> int:
        """Of the last round that was measured; one that is being written is not counted."""
        with suppress(OSError, ValueError, IndexError):
            return int(read_metrics(self.directory)[-1]["env_steps"])
        return 0

    def goes_on(self) -> float:
        """The seconds until rounds have been made anew; fails where that takes too long."""
        began, before = time.monotonic(), self.env_steps
        while self.env_steps <= before + 2 * 56:
            assert self.process.poll() is None, "the run has ended"
            assert time.monotonic() - began < LONGEST_PAUSE, "the run hangs"
            time.sleep(0.1)
        return time.monotonic() - began


def saved_env_steps(directory: Path) -> int:
    checkpoint = load_checkpoint(directory / "checkpoints")
    assert checkpoint.fallback_from == ()
    return int(checkpoint.state["env_steps"])


def assert_sound(directory: Path) -> None:
    """No record is damaged, no trial is there twice, and all that was counted is there but for trials in flight."""
    assert main(["data", "verify", str(directory)]) == 0
    capacity = config_of("").replay.capacity_trajectories
    with LMDBStore(directory / "replay", capacity_trajectories=capacity, cache_bytes=0) as store:
        stored = [store.read(number) for number in store.ids()]
        assert store.damaged == 0
    once = {(t.exploration, t.reward.tobytes(), t.action.tobytes()) for t in stored}
    assert len(once) == len(stored) > 100
    assert sum(len(trajectory) for trajectory in stored) <= saved_env_steps(directory)


def test_a_run_survives_whatever_is_killed(cluster: Any, tmp_path: Path) -> None:
    directory, rng = tmp_path / "run", np.random.default_rng(0)
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    trainer = Trainer(directory, cluster.address)
    pauses: dict[str, list[float]] = {"collector": [], "node": [], "learner": []}
    trainer.goes_on()
    for victim in rng.permutation([name for name in pauses for _ in range(KILLS_EACH)]).tolist():
        time.sleep(float(rng.uniform(0.0, 3.0)))
        if victim == "collector":
            while not (collectors := named(descendants(os.getpid()), "ray::CollectorActor")):
                time.sleep(0.1)
            os.kill(int(rng.choice(collectors)), signal.SIGKILL)
        elif victim == "node":
            cluster.remove_node(nodes.pop(int(rng.integers(2))), allow_graceful=False)
            nodes.append(cluster.add_node(num_cpus=1))
        else:
            before = saved_env_steps(directory)
            trainer.kill()
            assert saved_env_steps(directory) >= before
            trainer.begin()
        pauses[victim].append(trainer.goes_on())
    trainer.kill()
    trainer.begin(saved_env_steps(directory) + 200)
    assert trainer.process.wait(timeout=LONGEST_PAUSE) == 0
    assert_sound(directory)
    longest = {name: max(seconds) for name, seconds in pauses.items()}
    print(json.dumps({"kills": KILLS_EACH, "longest_pause_seconds": longest, "env_steps": trainer.env_steps}))
