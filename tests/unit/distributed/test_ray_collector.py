"""What is ordered, what is taken and what is counted, with collectors that are scripted."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pool_config import pool_config

from yamame.algorithms.amago.agent import Agent
from yamame.algorithms.base import build_model
from yamame.data.trajectory import Trajectory
from yamame.distributed.ray.experience import RayExperience
from yamame.distributed.ray.pool import Call, CollectorHandle, CollectorPool, Results
from yamame.distributed.ray.worker import CollectRequest, CollectResult, PolicyWeights
from yamame.distributed.sharding import shard_config
from yamame.errors import UserError
from yamame.run_config import RunConfig
from yamame.types import Fault

FAULT = Fault(kind="exception", message="environment 3: raised", traceback="Traceback")


class ScriptedFleet(CollectorPool):
    """Collectors that are ready; `do` chooses the collector that answers its next request, and the result."""

    def __init__(self, collectors: int) -> None:
        self.handles = [CollectorHandle(index) for index in range(collectors)]
        for collector in self.handles:
            collector.phase = "ready"
        self.num_replaced = 0
        self.published: list[PolicyWeights] = []
        self.starts = 0
        self._answers: Results = []
        self.polls = 0

    def start(self) -> None:
        self.starts += 1

    def publish_weights(self, weights: PolicyWeights) -> None:
        self.published.append(weights)

    @property
    def ready(self) -> list[CollectorHandle]:
        return sorted(self.handles, key=lambda collector: len(collector.calls))

    @property
    def pending_requests(self) -> Iterator[CollectRequest]:
        return (request for collector in self.handles for request in collector.pending_requests)

    def submit(self, collector: CollectorHandle, request: CollectRequest) -> None:
        collector.push_call(Call(None, request))

    def poll(self, seconds: float) -> Results:
        self.polls += 1
        answers, self._answers = self._answers, []
        return answers

    def do(self, index: int, *, trials: int = 0, vector_steps: int | None = None, **changes: Any) -> CollectRequest:
        """Let a collector of 4 environments answer its first request."""
        request = self.handles[index].pop_call().request
        assert request is not None
        made = request.vector_steps if vector_steps is None else vector_steps
        result = CollectResult(
            vector_steps=made,
            env_steps=4 * made,
            trajectories=[trajectory(index) for _ in range(trials)],
            num_finished=trials,
            faults=(),
            seconds=3.0,
            idle_seconds=1.0,
        )
        self._answers.append((request, replace(result, **changes)))
        return request

    def lose(self, index: int) -> None:
        self.handles[index].calls.clear()


def trajectory(index: int) -> Trajectory:
    return Trajectory(
        reward=np.full(1, index, np.float32),
        action=np.zeros(1, np.int64),
        terminated=np.ones(1, np.bool_),
        truncated=np.zeros(1, np.bool_),
        episode_start=np.array([True, False]),
        observation={"observation": np.zeros((2, 2), np.float32)},
        horizon=4,
        policy_version=10,
    )


@pytest.fixture(scope="module")
def config() -> RunConfig:
    """2 collectors of 4 environments, iterations of 10 vector steps, a run of 25 iterations."""
    return pool_config(**{"env_steps": 2_000, "env_steps_per_iteration": 80})


@pytest.fixture(scope="module")
def agent(config: RunConfig) -> Agent:
    trials = config.env.build(1, 0)
    return build_model(
        config.algorithm, config.env.task_spec(trials), context_length=config.resolved_context_length, seed=0
    )


def started(config: RunConfig, agent: Agent) -> tuple[RayExperience, ScriptedFleet]:
    fleet = ScriptedFleet(config.ray.num_collectors)
    collectors = RayExperience(fleet, config.env.build(1, 0), config)
    collectors.load_weights(agent, version=0)
    return collectors, fleet


def step(collectors: RayExperience) -> list[Trajectory] | None:
    return collectors.step()


def ordered(fleet: ScriptedFleet) -> list[list[int]]:
    return [[request.vector_steps for request in collector.pending_requests] for collector in fleet.handles]


def test_every_collector_has_a_request_and_one_more_an_iteration_in_all(config: RunConfig, agent: Agent) -> None:
    collectors, fleet = started(config, agent)
    assert step(collectors) is None
    assert ordered(fleet) == [[5, 5], [5, 5]]
    assert all(request.deterministic for request in fleet.pending_requests)
    assert collectors.env_steps == 0


def test_one_of_several_learners_is_no_more_iterations_ahead_than_a_single_one(agent: Agent) -> None:
    config = pool_config(6, **{"env_steps": 6_000, "env_steps_per_iteration": 240, "num_envs": 24})
    collectors, fleet = started(shard_config(replace(config, num_learners=3)), agent)
    assert step(collectors) is None
    assert ordered(fleet) == [[5, 5], [5, 5]]


def test_a_vector_step_is_over_when_as_much_has_come_in(config: RunConfig, agent: Agent) -> None:
    collectors, fleet = started(config, agent)
    step(collectors)
    fleet.do(0, trials=3)
    assert step(collectors) is not None  # 20 environment steps: two vector steps, and half of one
    assert collectors.env_steps == 20
    polls = fleet.polls
    assert step(collectors) == []
    assert fleet.polls == polls
    assert step(collectors) is None
    fleet.do(1, vector_steps=1)
    assert step(collectors) == []
    assert (collectors.env_steps, step(collectors)) == (24, None)


def test_what_came_in_is_not_counted_before_it_is_taken(config: RunConfig, agent: Agent) -> None:
    collectors, fleet = started(config, agent)
    step(collectors)
    fleet.do(0, vector_steps=1, trials=1)
    assert step(collectors) is None
    assert collectors.env_steps == 0
    fleet.do(1, vector_steps=2, trials=1)
    assert [float(trial.reward[0]) for trial in step(collectors) or []] == [0.0, 1.0]
    assert collectors.env_steps == 12


def test_a_fast_collector_makes_up_for_a_slow_one(config: RunConfig, agent: Agent) -> None:
    collectors, fleet = started(config, agent)
    made = 0
    while made < 50:
        made += step(collectors) is not None
        if fleet.handles[0].calls:
            fleet.do(0)
    assert ordered(fleet)[1] == [5, 5]
    assert collectors.env_steps >= 400


def test_requests_never_exceed_the_maximum_of_iterations(agent: Agent) -> None:
    config = replace(pool_config(**{"env_steps_per_iteration": 8}), env_steps=2_000)  # iterations of one vector step
    for max_policy_lag, expected in ((1, [[1], [1]]), (2, [[1, 1], [1, 1]]), (9, [[1, 1], [1, 1]])):
        collectors, fleet = started(replace(config, ray=replace(config.ray, max_policy_lag=max_policy_lag)), agent)
        step(collectors)
        assert ordered(fleet) == expected


def test_nothing_is_ordered_beyond_the_end(config: RunConfig, agent: Agent) -> None:
    collectors, fleet = started(replace(config, env_steps=42), agent)
    made = 0
    while made < 10:
        made += step(collectors) is not None
        for index in range(2):
            while fleet.handles[index].calls:
                fleet.do(index)
    assert collectors.env_steps == 44  # the least multiple of 4 that is not below the end
    assert ordered(fleet) == [[], []]


def test_requests_of_a_lost_collector_are_made_again(config: RunConfig, agent: Agent) -> None:
    collectors, fleet = started(replace(config, env_steps=40), agent)
    step(collectors)
    assert ordered(fleet) == [[5], [5]]
    fleet.lose(1)
    step(collectors)
    assert ordered(fleet) == [[5], [5]]


def test_work_for_a_policy_of_long_ago_is_lost(config: RunConfig, agent: Agent) -> None:
    collectors, fleet = started(config, agent)  # at most two iterations old
    step(collectors)
    for version in (10, 20):
        collectors.load_weights(agent, version=version)
    fleet.do(0, trials=1)
    assert len(step(collectors) or []) == 1
    collectors.load_weights(agent, version=30)
    late = fleet.do(0, trials=1), fleet.do(1, trials=1)
    taken_before = collectors.env_steps
    while (trials := step(collectors)) is not None:
        assert trials == []
    made = sum(request.vector_steps for request in late) * 4
    assert collectors.env_steps == taken_before + made  # their next trials continue there, and are not dropped
    metrics = collectors.counts() | collectors.metrics()
    assert metrics["collectors/num_stale_dropped"] == 2.0
    assert metrics["collectors/policy_lag_updates_mean"] == 10.0  # 20 updates were made, the trial began after 10
    assert {request.weight_sync for request in fleet.pending_requests} == {1, 3, 4}


def test_waiting_results_grow_stale_too(config: RunConfig, agent: Agent) -> None:
    collectors, fleet = started(config, agent)
    step(collectors)
    fleet.do(0, vector_steps=1, trials=1)
    assert step(collectors) is None
    for _ in range(3):
        collectors.load_weights(agent, version=0)
    fleet.do(1, vector_steps=1, trials=1)
    assert step(collectors) == []
    assert collectors.env_steps == 8
    assert collectors.counts()["collectors/num_stale_dropped"] == 2.0


def test_weights_are_handed_out_when_they_have_changed(config: RunConfig, agent: Agent) -> None:
    collectors, fleet = started(config, agent)
    for version in (0, 0, 7, 7):
        collectors.load_weights(agent, version=version)
    assert [weights.version for weights in fleet.published] == [0, 7]
    assert fleet.starts == 1
    expected = sum(array.nbytes for array in fleet.published[-1].tensors.values())
    assert collectors.metrics()["collectors/weight_sync_bytes"] == expected


def test_the_clock_is_of_all_learners(config: RunConfig, agent: Agent) -> None:
    collectors, fleet = started(replace(config, num_learners=3, env_steps=600), agent)
    collectors.env_steps, collectors.remote_env_steps = 100, 200
    step(collectors)
    assert {request.env_steps for request in fleet.pending_requests} == {300}
    assert sum(request.vector_steps for request in fleet.pending_requests) * 4 == 80
    collectors.env_steps = 200  # a third of the run
    assert step(collectors) == []


def test_too_many_faults_of_all_collectors_together_end_the_run(
    config: RunConfig, agent: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    collectors, fleet = started(replace(config, fault_tolerance=replace(config.fault_tolerance, max_restarts=3)), agent)
    step(collectors)
    fleet.do(0, faults=(FAULT, FAULT))
    fleet.do(1, faults=(FAULT,))
    step(collectors)
    step(collectors)
    assert collectors.counts()["faults/restarts"] == 2.0
    assert "environment 3: raised" in capsys.readouterr().err
    step(collectors)
    assert collectors.counts()["faults/restarts"] == 3.0
    fleet.do(0, faults=(FAULT,))
    with pytest.raises(UserError, match="max_restarts"):
        for _ in range(9):
            step(collectors)
    assert "Traceback" in capsys.readouterr().err


def test_it_continues_from_its_saved_state(config: RunConfig, agent: Agent) -> None:
    collectors, fleet = started(config, agent)
    step(collectors)
    fleet.do(0)
    step(collectors)
    state = collectors.state_dict()
    other, _ = started(config, agent)
    assert other.load_state_dict(state)
    assert other.env_steps == 20
    assert (step(other), step(other)) == ([], None)  # one vector step and a half were still to be made of the 20
    assert other.state_dict() == collectors.state_dict() | {"credit": 4}


def test_idle_time_of_collectors_is_reported(config: RunConfig, agent: Agent) -> None:
    collectors, fleet = started(config, agent)
    step(collectors)
    fleet.do(0)
    step(collectors)
    metrics = collectors.counts() | collectors.metrics()
    assert metrics["collectors/idle_fraction"] == 0.25
    assert metrics["collectors/num_ready"] == 2.0
    assert "collectors/idle_fraction" not in collectors.metrics()
