"""A cluster run as events: collectors that answer requests, learners that update and store, a network between them.

The protocol is that of yamame/distributed/ray: an iteration publishes weights once; collectors have two requests each,
and never more than `max_policy_lag` iterations of them in all; results are received as they arrive; an iteration ends
when its environment steps have arrived and the updates are made that those of the previous iteration allow. Not
simulated: contention of threads that share cores.

Every learner has a machine's network of its own if it is alone; several share that of one machine.
"""

import math
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

import simpy
from cluster_plan import Plan, Work

Events = Generator[simpy.Event, Any, Any]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Means over the iterations after the warm-up."""

    env_steps_per_second: float
    updates_per_second: float
    learner_busy: float
    """Fraction of a learner's time in which it updates, stores or publishes weights."""
    receiving_busy: float
    """Fraction of the time of its second thread, which sends requests and receives results."""
    network_busy: float
    """Fraction, of the busier direction of the learners' machine."""
    collector_idle: float
    """Fraction of a collector's time without a request, or waiting for weights."""
    policy_lag_updates: float
    """Updates made since the weights that acted, when a result is received."""


@dataclass
class CollectRequest:
    version: int
    vector_steps: int


@dataclass
class CollectResult:
    version: int
    vector_steps: int
    trajectories: float


class Node:
    """A machine: both directions of its network, and the weights in its object store."""

    def __init__(self, env: simpy.Environment) -> None:
        self.incoming, self.outgoing = simpy.Resource(env), simpy.Resource(env)
        self.weights: dict[tuple[int, int], simpy.Event] = {}


@dataclass
class Meter:
    """Seconds that something was busy, from some time on."""

    env: simpy.Environment
    since: float = 0.0
    busy: float = 0.0

    def work(self, seconds: float) -> Events:
        yield self.env.timeout(seconds)
        self.busy += seconds

    def fraction(self) -> float:
        return self.busy / (self.env.now - self.since)

    def restart(self) -> None:
        self.since, self.busy = self.env.now, 0.0


class Simulation:
    """One run."""

    def __init__(self, work: Work, plan: Plan) -> None:
        self.work, self.plan = work, plan
        self.env = simpy.Environment()
        self.hub = Node(self.env)
        self.traffic = {"in": Meter(self.env), "out": Meter(self.env)}
        self.collecting = Meter(self.env)
        count = math.ceil(plan.collectors / plan.collectors_per_node)
        self.nodes = [self.hub] if plan.near else [Node(self.env) for _ in range(count)]
        per_learner = plan.collectors // plan.learners
        self.ranks = [
            Rank(self, rank, range(rank * per_learner, (rank + 1) * per_learner)) for rank in range(plan.learners)
        ]
        self.barrier = Barrier(self.env, plan.learners)

    def run(self, *, iterations: int, warm_up: int) -> Outcome:
        """Run iterations; the first `warm_up` do not count."""
        done = [self.env.process(rank.run(warm_up)) for rank in self.ranks]
        self.env.run(self.env.all_of(done))
        for meter in self._meters():
            meter.restart()
        before, began = self._counts(), self.env.now
        done = [self.env.process(rank.run(iterations)) for rank in self.ranks]
        self.env.run(self.env.all_of(done))
        seconds = self.env.now - began
        env_steps, updates = (after - then for after, then in zip(self._counts(), before, strict=True))
        policy_lags = [lag for rank in self.ranks for lag in rank.policy_lags]
        return Outcome(
            env_steps_per_second=env_steps / seconds,
            updates_per_second=updates / seconds,
            learner_busy=mean(rank.learning.fraction() for rank in self.ranks),
            receiving_busy=mean(rank.receiving.fraction() for rank in self.ranks),
            network_busy=max(meter.fraction() for meter in self.traffic.values()),
            collector_idle=1.0 - self.collecting.fraction() / self.plan.collectors,
            policy_lag_updates=mean(policy_lags) if policy_lags else 0.0,
        )

    def send(self, sender: Node, receiver: Node, num_bytes: float) -> Events:
        """Take both ends of the way for as long as the bytes need."""
        if sender is receiver:
            return
        with receiver.incoming.request() as incoming:
            yield incoming
            with sender.outgoing.request() as outgoing:
                yield outgoing
                seconds = 8 * num_bytes / self.plan.bits_per_second
                yield self.env.timeout(seconds)
                self.traffic["in"].busy += seconds if receiver is self.hub else 0.0
                self.traffic["out"].busy += seconds if sender is self.hub else 0.0
        yield self.env.timeout(self.plan.latency_seconds)

    def weights_at(self, index: int, rank: int, version: int) -> simpy.Event:
        """When a rank's weights of a version are on a node, to which they are sent at the first call."""
        node = self.nodes[index]
        if (rank, version) not in node.weights:
            node.weights[rank, version] = self.env.process(self._bring(index, rank, version))
        return node.weights[rank, version]

    def _bring(self, index: int, rank: int, version: int) -> Events:
        sender = self.hub
        if self.plan.relayed and index:
            parent = (index - 1) // 2
            yield self.weights_at(parent, rank, version)
            sender = self.nodes[parent]
        yield from self.send(sender, self.nodes[index], self.work.weights_bytes)

    def _meters(self) -> Iterator[Meter]:
        yield from self.traffic.values()
        yield self.collecting
        for rank in self.ranks:
            rank.policy_lags.clear()
            yield from (rank.learning, rank.receiving)

    def _counts(self) -> tuple[float, float]:
        return sum(rank.env_steps for rank in self.ranks), self.ranks[0].updates


class Barrier:
    """Barrier of the learners."""

    def __init__(self, env: simpy.Environment, parties: int) -> None:
        self._env, self._parties = env, parties
        self._here, self._all = 0, env.event()

    def wait(self) -> simpy.Event:
        self._here += 1
        everybody = self._all
        if self._here == self._parties:
            self._here, self._all = 0, self._env.event()
            everybody.succeed()
        return everybody


@dataclass
class CollectorHandle:
    """A collector, at its learner."""

    inbox: simpy.Store
    requests: deque[CollectRequest] = field(default_factory=deque)


class Rank:
    """A learner and its collectors."""

    def __init__(self, simulation: Simulation, index: int, collectors: range) -> None:
        self.simulation, self.index, self.env = simulation, index, simulation.env
        self.work, self.plan = simulation.work, simulation.plan
        self.learning, self.receiving = Meter(self.env), Meter(self.env)
        self.handles = [CollectorHandle(simpy.Store(self.env)) for _ in collectors]
        self.free = deque(self.handles * self.plan.requests_per_collector)
        """Collectors that accept another request, those with the fewest first."""
        self.coming = 0
        """Vector steps of one collector each that are requested and have not arrived."""
        self.arrived: simpy.Store = simpy.Store(self.env)
        self.iteration_steps = self.plan.iteration_steps or self.work.trial_steps
        self.num_envs = self.work.environments * len(collectors)
        self.env_steps, self.updates, self.version, self.credit = 0, 0, -1, 0
        self.stored, self.trajectories = 0, 0.0
        self.policy_lags: list[int] = []
        for handle, number in zip(self.handles, collectors, strict=True):
            self.env.process(self.collect(handle, number // self.plan.collectors_per_node))

    def run(self, count: int) -> Events:
        """The main thread."""
        for _ in range(count):
            if self.updates != self.version:
                yield from self.learning.work(self.work.publish_seconds)
                self.version = self.updates
            receiving = self.env.process(self.receive(self.iteration_steps * self.num_envs))
            due = max(0, int(self.stored * self.plan.learners * self.work.updates_per_env_step) - self.updates)
            yield from self.learning.work(due * self.plan.update_seconds(self.work))
            self.updates += due
            yield receiving
            yield from self.learning.work(self.trajectories * self.work.append_seconds)
            self.stored, self.trajectories = self.env_steps, 0.0
            yield self.simulation.barrier.wait()

    def receive(self, env_steps: int) -> Events:
        """The second thread, for one iteration."""
        while self.credit < env_steps:
            yield from self.send_requests()
            handle, result = yield self.arrived.get()
            self.coming -= handle.requests.popleft().vector_steps
            self.free.append(handle)
            seconds = self.work.request_seconds + self.work.poll_seconds * len(self.handles)
            yield from self.receiving.work(seconds + result.trajectories * self.work.get_seconds)
            made = result.vector_steps * self.work.environments
            self.credit, self.env_steps = self.credit + made, self.env_steps + made
            self.trajectories += result.trajectories
            self.policy_lags.append(self.version - result.version)
        self.credit -= env_steps
        yield from self.send_requests()

    def send_requests(self) -> Events:
        """Send as many requests as `max_policy_lag` allows."""
        each, most = self.work.environments, math.ceil(self.iteration_steps / self.plan.requests_per_collector)
        ahead = self.plan.max_policy_lag * self.iteration_steps * self.num_envs - self.credit
        while self.free and self.coming * each < ahead:
            handle = self.free.popleft()
            request = CollectRequest(self.version, min(most, math.ceil(ahead / each) - self.coming))
            handle.requests.append(request)
            self.coming += request.vector_steps
            yield handle.inbox.put(request)

    def collect(self, handle: CollectorHandle, node: int) -> Events:
        """Answer the requests of one collector."""
        work, simulation, version = self.work, self.simulation, -2
        node = 0 if self.plan.near else node
        max_steps = max(1, math.ceil(self.plan.max_request_seconds / work.vector_step_seconds))
        while True:
            request: CollectRequest = yield handle.inbox.get()
            if request.version != version:
                version = request.version
                yield simulation.weights_at(node, self.index, version)
                yield from simulation.collecting.work(work.load_seconds)
            steps = min(request.vector_steps, max_steps)
            trajectories = steps * work.environments / work.trial_steps
            seconds = steps * work.vector_step_seconds + trajectories * work.put_seconds
            yield from simulation.collecting.work(seconds)
            result = CollectResult(request.version, steps, trajectories)
            self.env.process(self._deliver(handle, result, simulation.nodes[node]))

    def _deliver(self, handle: CollectorHandle, result: CollectResult, node: Node) -> Events:
        yield from self.simulation.send(node, self.simulation.hub, result.trajectories * self.work.trajectory_bytes)
        yield self.arrived.put((handle, result))


def simulate(work: Work, plan: Plan, *, iterations: int = 12, warm_up: int = 4) -> Outcome:
    """Deterministic: nothing is sampled."""
    return Simulation(work, plan).run(iterations=iterations, warm_up=warm_up)
