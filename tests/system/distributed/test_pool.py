"""Real collectors in a real cluster of several nodes, all on this machine: they die, hang, wait for room, and end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pool_config import pool_config
from processes import are_gone, is_gone
from troubled import Troubled

from yamame.algorithms.amago.agent import Agent
from yamame.algorithms.base import build_model
from yamame.collect.exploration import BilevelEpsilonGreedy
from yamame.data.trajectory import Trajectory
from yamame.distributed.ray.connection import RayConnection, connect
from yamame.distributed.ray.experience import RayExperience
from yamame.distributed.ray.pool import CollectorHandle, CollectorPool
from yamame.envs.env_fn import EnvFnConfig
from yamame.errors import UserError
from yamame.run_config import RunConfig

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Ray's own warnings

ray = pytest.importorskip("ray")
LONG = 1_000_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without room for collectors, and a node with room for two."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        here = Path(__file__).parents[2] / "helpers"
        patch.setenv("PYTHONPATH", os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")]))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        cluster.add_node(num_cpus=2)
        yield cluster
        cluster.shutdown()


@pytest.fixture(scope="module")
def joined(cluster: Any) -> Iterator[RayConnection]:
    connection = connect(cluster.address, cpus=2.0)
    yield connection
    connection.close()


@pytest.fixture
def start(joined: RayConnection) -> Iterator[Callable[..., RayExperience]]:
    """Starts fleets, and ends them with the test."""
    started: list[RayExperience] = []

    def start(config: RunConfig) -> RayExperience:
        fleet = CollectorPool(config, replace(joined, owns_cluster=False), rank=0, restarts=0)
        collectors = RayExperience(fleet, config.env.build(1, 0), config)
        collectors.load_weights(agent_of(config), version=0)
        started.append(collectors)
        return collectors

    yield start
    for collectors in started:
        collectors.close()


def agent_of(config: RunConfig) -> Agent:
    trials = config.env.build(1, 0)
    return build_model(
        config.algorithm, config.env.task_spec(trials), context_length=config.resolved_context_length, seed=0
    )


def config_with(**changes: Any) -> RunConfig:
    config = pool_config(**{"env_steps": LONG, "env_steps_per_iteration": 80})
    ray = replace(config.ray, address="a Cluster", collect_timeout_seconds=5.0, **changes)
    return replace(config, ray=ray, exploration=BilevelEpsilonGreedy())


def collect_until(collectors: RayExperience, over: Callable[[], bool], seconds: float = 250.0) -> list[Trajectory]:
    """As a run does, in iterations of 10 vector steps."""
    trajectories: list[Trajectory] = []
    began, made = time.monotonic(), 0
    while not over():
        assert time.monotonic() - began < seconds
        ended = collectors.step()
        trajectories += ended or []
        made += ended is not None
        if made % 10 == 9:
            collectors.load_weights(agent_of(collectors.config), version=made)
    return trajectories


def has_made(collectors: RayExperience, env_steps: int) -> Callable[[], bool]:
    goal = collectors.env_steps + env_steps
    return lambda: collectors.env_steps >= goal


def all_ready(collectors: RayExperience) -> Callable[[], bool]:
    return lambda: len(collectors.pool.ready) == collectors.config.ray.num_collectors


def process_of(member: CollectorHandle) -> int:
    return int(member.location.split()[1])


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds
        time.sleep(0.1)


@pytest.mark.thorough
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_collector_that_dies_or_hangs_is_replaced_and_nothing_comes_twice(
    start: Callable[..., RayExperience], how: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    collectors = start(config_with(max_policy_lag=LONG))  # so that no result is dropped
    trajectories = collect_until(collectors, all_ready(collectors))
    trajectories += collect_until(collectors, has_made(collectors, 160))
    victim = collectors.pool.handles[0]
    process = process_of(victim)
    os.kill(process, how)
    trajectories += collect_until(collectors, lambda: collectors.pool.num_replaced == 1)
    trajectories += collect_until(collectors, all_ready(collectors))
    trajectories += collect_until(collectors, has_made(collectors, 400))
    wait_for(lambda: is_gone(process))
    assert process_of(victim) != process
    assert "collector 0 (process" in capsys.readouterr().err
    assert collectors.counts()["collectors/num_replaced"] == 1.0
    lengths = sum(len(trajectory) for trajectory in trajectories)
    in_flight = 3 * 4 * 3  # of three collectors, 4 environments each, less than a trial of 4 steps
    assert collectors.env_steps - in_flight <= lengths <= collectors.env_steps
    noise = [trajectory.noise_scale for trajectory in trajectories]  # each trial's own
    assert len(set(noise)) == len(noise)


@pytest.mark.thorough
def test_a_slow_collector_holds_up_no_other(start: Callable[..., RayExperience], tmp_path: Path) -> None:
    env = EnvFnConfig(env_fn=Troubled(sleeps=0.5, marks=tmp_path), horizon=4)
    collectors = start(replace(config_with(), env=env, context_length=0))
    collect_until(collectors, all_ready(collectors))
    collect_until(collectors, has_made(collectors, 2_000))
    assert (tmp_path / "slow").exists()
    assert collectors.pool.num_replaced == 0
    assert collectors.counts()["collectors/num_ready"] == 2.0


@pytest.mark.thorough
def test_environments_that_cannot_be_made_end_the_run_in_a_line(start: Callable[..., RayExperience]) -> None:
    good = config_with()
    collectors = start(good)
    env = EnvFnConfig(env_fn=Troubled(cannot_be_made=True), horizon=4)
    collectors.pool._config_ref = ray.put(replace(good, env=env, context_length=0))
    collectors.pool._replace(collectors.pool.handles[0], "for the test")
    with pytest.raises(UserError, match="no licence"):
        collect_until(collectors, lambda: False)


@pytest.mark.thorough
def test_work_that_raises_is_a_fault_and_the_collector_is_replaced(
    start: Callable[..., RayExperience], capsys: pytest.CaptureFixture[str]
) -> None:
    collectors = start(config_with())
    collect_until(collectors, has_made(collectors, 80))
    collectors.pool._weights_ref = ray.put("no weights")
    collect_until(collectors, lambda: collectors.pool.num_replaced > 0)
    collectors._version = -1
    collectors.load_weights(agent_of(collectors.config), version=1)
    collect_until(collectors, has_made(collectors, 400))
    assert collectors.counts()["faults/exception"] >= 1.0
    assert "AttributeError: 'str' object has no attribute 'version'" in capsys.readouterr().err


@pytest.mark.thorough
def test_collectors_join_when_nodes_do_and_a_lost_node_is_survived(
    cluster: Any, start: Callable[..., RayExperience], capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setattr("yamame.distributed.ray.pool._SCHEDULING_WARNING_SECONDS", 1.0)
    collectors = start(replace(config := config_with(), ray=replace(config.ray, num_collectors=4), num_envs=16))
    collect_until(collectors, lambda: len(collectors.pool.ready) == 2)
    later = time.monotonic() + 2.0
    collect_until(collectors, lambda: time.monotonic() > later)
    said = capsys.readouterr().err
    assert "of 4 collectors wait for room in the cluster (1 cores each)" in said
    node = cluster.add_node(num_cpus=2)
    collect_until(collectors, all_ready(collectors))
    assert collectors.pool.num_replaced == 0
    cluster.remove_node(node, allow_graceful=False)
    collect_until(collectors, lambda: collectors.pool.num_replaced == 2)
    collect_until(collectors, has_made(collectors, 400))
    cluster.add_node(num_cpus=2)
    collect_until(collectors, all_ready(collectors))


LEARNER = """
import sys, time
from test_pool import agent_of, all_ready, collect_until, config_with, process_of
from yamame.distributed.ray.experience import RayExperience
from yamame.distributed.ray.connection import connect
from yamame.distributed.ray.pool import CollectorPool

config = config_with()
pool = CollectorPool(config, connect(sys.argv[1], cpus=2.0), rank=0, restarts=0)
collectors = RayExperience(pool, config.env.build(1, 0), config)
collectors.load_weights(agent_of(config), version=0)
collect_until(collectors, all_ready(collectors))
print(*[process_of(member) for member in pool.handles], flush=True)
time.sleep(600)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_collectors_end_with_their_learner(cluster: Any, how: signal.Signals) -> None:
    path = os.pathsep.join([str(Path(__file__).parent), os.environ["PYTHONPATH"]])
    with subprocess.Popen(
        [sys.executable, "-c", LEARNER, cluster.address],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    ) as learner:
        assert learner.stdout is not None
        processes = [int(word) for word in learner.stdout.readline().split()]
        assert len(processes) == 2 and not any(map(is_gone, processes))
        learner.send_signal(how)
        learner.wait(30)
        wait_for(lambda: are_gone(processes))


@pytest.mark.thorough
def test_close_ends_all_collectors(start: Callable[..., RayExperience]) -> None:
    collectors = start(config_with())
    collect_until(collectors, all_ready(collectors))
    processes = [process_of(member) for member in collectors.pool.handles]
    collectors.close()
    wait_for(lambda: are_gone(processes))


@pytest.mark.thorough
def test_a_run_without_any_collector_ends(start: Callable[..., RayExperience], monkeypatch: Any) -> None:
    monkeypatch.setattr("yamame.distributed.ray.pool.NO_RESPONSE_TIMEOUT_SECONDS", 2.0)
    collectors = start(config_with(num_cpus_per_collector=99.0))
    with pytest.raises(UserError, match="99 cores each"):
        collect_until(collectors, lambda: False)
