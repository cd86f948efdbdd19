"""`kill -9` of collectors, nodes, learners and the command at random moments: nothing hangs, nothing comes twice."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster_child import config_of
from processes import descendants, named

from yamame.cli import main
from yamame.data.store import ReplayStore
from yamame.metrics.registry import read_metrics
from yamame.runs.checkpoint import load_latest_checkpoint

ray = pytest.importorskip("ray")

KILLS_EACH = int(os.environ.get("YAMAME_CLUSTER_KILLS", "20"))
MAX_PAUSE = 180.0
"""Seconds; on a busy machine PyTorch and Ray alone take 45 to start."""
HERE = Path(__file__).parent
pytestmark = [pytest.mark.faults, pytest.mark.timeout(3600), pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head without room for collectors, and two nodes with room for one each."""
    from ray.cluster_utils import Cluster

    paths = [str(HERE), str(HERE.parent / "helpers"), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    yield cluster
    cluster.shutdown()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


class Trainer:
    """The command that trains, with the processes of its learners if there are several."""

    def __init__(self, directory: Path, cluster: str, *, learners: int) -> None:
        self.directory, self.words = directory, [str(directory), cluster, str(learners)]
        self.start()

    def start(self, *env_steps: int) -> None:
        command = [sys.executable, str(HERE / "cluster_child.py"), *self.words, *map(str, env_steps)]
        self.process = subprocess.Popen(command)

    @property
    def learners(self) -> list[int]:
        return named(descendants(self.process.pid), "spawn_main")

    def kill(self) -> None:
        """The command; the learners that it launched save and end by themselves."""
        learners = self.learners
        self.process.kill()
        self.process.wait()
        wait_until(lambda: not any(Path(f"/proc/{learner}").exists() for learner in learners))

    def kill_learner(self, rng: np.random.Generator) -> None:
        """One of several; the command ends by itself."""
        wait_until(lambda: len(self.learners) == 2)
        os.kill(int(rng.choice(self.learners)), signal.SIGKILL)
        assert self.process.wait(timeout=MAX_PAUSE) == 1

    @property
    def env_steps(self) -> int:
        """Of the last iteration that was logged; one that is being written is not counted."""
        with suppress(OSError, ValueError, IndexError):
            return int(read_metrics(self.directory)[-1]["env_steps"])
        return 0

    def close(self) -> None:
        """End what a failed test has left."""
        for process in [*descendants(self.process.pid), self.process.pid]:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.process.wait()

    def goes_on(self) -> None:
        """Wait until further iterations have been logged; fails where that takes too long."""
        before = self.env_steps
        wait_until(lambda: self.process.poll() is not None or self.env_steps > before + 2 * 56)
        assert self.process.poll() is None, "the run has ended"


def wait_until(condition: Callable[[], object]) -> None:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < MAX_PAUSE, "the run hangs"
        time.sleep(0.1)


def saved_env_steps(directory: Path) -> int:
    checkpoint = load_latest_checkpoint(directory / "checkpoints")
    assert checkpoint.skipped_corrupted == ()
    return int(checkpoint.state["env_steps"])


def assert_sound(directory: Path, *, learners: int) -> None:
    """No record is corrupted, no trial is there twice, and all that was counted is there but for trials in flight."""
    stored = []
    for store in sorted(directory.glob("replay*")):
        assert main(["data", "verify", str(store)]) == 0
        capacity = config_of("", learners=learners).replay.capacity_trajectories
        with ReplayStore(store, capacity_trajectories=capacity, cache_bytes=0) as opened:
            stored += [opened.get(number) for number in opened.ids()]
            assert opened.num_corrupted == 0
    once = {(t.noise_scale, t.reward.tobytes(), t.action.tobytes()) for t in stored}
    assert len(once) == len(stored) > 100
    assert sum(len(trajectory) for trajectory in stored) <= saved_env_steps(directory)


def finish(trainer: Trainer, pauses: dict[str, list[float]], *, learners: int) -> None:
    """End the run, check what it leaves and print the longest pauses."""
    trainer.kill()
    trainer.start(saved_env_steps(trainer.directory) + 200)
    assert trainer.process.wait(timeout=MAX_PAUSE) == 0
    assert_sound(trainer.directory, learners=learners)
    longest = {name: max(seconds) for name, seconds in pauses.items()}
    print(json.dumps({"kills": KILLS_EACH, "longest_pause_seconds": longest, "env_steps": trainer.env_steps}))


def test_a_run_survives_whatever_is_killed(cluster: Any, tmp_path: Path, stack: ExitStack) -> None:
    rng = np.random.default_rng(0)
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    trainer = stack.enter_context(closing(Trainer(tmp_path / "run", cluster.address, learners=1)))
    pauses: dict[str, list[float]] = {"collector": [], "node": [], "command": []}
    trainer.goes_on()
    for victim in rng.permutation([name for name in pauses for _ in range(KILLS_EACH)]).tolist():
        time.sleep(float(rng.uniform(0.0, 3.0)))
        began = time.monotonic()
        if victim == "collector":
            wait_until(lambda: named(descendants(os.getpid()), "ray::CollectorActor"))
            collectors = named(descendants(os.getpid()), "ray::CollectorActor")
            with suppress(ProcessLookupError):
                os.kill(int(rng.choice(collectors)), signal.SIGKILL)
        elif victim == "node":
            cluster.remove_node(nodes.pop(int(rng.integers(2))), allow_graceful=False)
            nodes.append(cluster.add_node(num_cpus=1))
        else:
            before = saved_env_steps(trainer.directory)
            trainer.kill()
            assert saved_env_steps(trainer.directory) >= before
            trainer.start()
        trainer.goes_on()
        pauses[victim].append(time.monotonic() - began)
    finish(trainer, pauses, learners=1)


def test_two_learners_survive_the_death_of_either_and_of_the_command(
    cluster: Any, tmp_path: Path, stack: ExitStack
) -> None:
    rng = np.random.default_rng(1)
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    trainer = stack.enter_context(closing(Trainer(tmp_path / "run", cluster.address, learners=2)))
    pauses: dict[str, list[float]] = {"learner": [], "command": []}
    trainer.goes_on()
    for victim in rng.permutation([name for name in pauses for _ in range(KILLS_EACH)]).tolist():
        time.sleep(float(rng.uniform(0.0, 3.0)))
        before, began = saved_env_steps(trainer.directory), time.monotonic()
        if victim == "learner":
            trainer.kill_learner(rng)
        else:
            trainer.kill()
        pauses[victim].append(time.monotonic() - began)
        assert saved_env_steps(trainer.directory) >= before
        trainer.start()
        trainer.goes_on()
    finish(trainer, pauses, learners=2)
