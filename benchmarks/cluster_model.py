"""A cluster run as events: collectors that work off orders, learners that update and store, a network between them.

The protocol is that of yamame/run/cluster: a round hands out weights once, collectors have two orders each and never
more than `rounds_behind` rounds of them in all, harvests are taken as they arrive, and a round is over when its
environment steps are in and the updates are made that those of the round before allow. Not in it: what the operating
system and the interpreter do when threads share cores.

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
    """Means over the rounds behind the first ones."""

    env_steps_per_second: float
    updates_per_second: float
    learner_busy: float
    """Fraction of a learner's time in which it updates, stores or hands out weights."""
    taking_busy: float
    """Fraction of the time of its second thread, which gives orders and takes harvests."""
    network_busy: float
    """Fraction, of the busier direction of the learners' machine."""
    collector_idle: float
    """Fraction of a collector's time without an order, or waiting for weights."""
    age_updates: float
    """Updates made since the weights that acted, when a harvest is taken."""


@dataclass
class Order:
    version: int
    vector_steps: int


@dataclass
class Harvest:
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
        shares = plan.collectors // plan.learners
        self.ranks = [Rank(self, rank, range(rank * shares, (rank + 1) * shares)) for rank in range(plan.learners)]
        self.barrier = Barrier(self.env, plan.learners)

    def run(self, *, rounds: int, warm_up: int) -> Outcome:
        """Round after round; nothing of the first ones counts."""
        done = [self.env.process(rank.rounds(warm_up)) for rank in self.ranks]
        self.env.run(self.env.all_of(done))
        for meter in self._meters():
            meter.restart()
        before, began = self._counts(), self.env.now
        done = [self.env.process(rank.rounds(rounds)) for rank in self.ranks]
        self.env.run(self.env.all_of(done))
        seconds = self.env.now - began
        env_steps, updates = (after - then for after, then in zip(self._counts(), before, strict=True))
        ages = [age for rank in self.ranks for age in rank.ages]
        return Outcome(
            env_steps_per_second=env_steps / seconds,
            updates_per_second=updates / seconds,
            learner_busy=mean(rank.learning.fraction() for rank in self.ranks),
            taking_busy=mean(rank.taking.fraction() for rank in self.ranks),
            network_busy=max(meter.fraction() for meter in self.traffic.values()),
            collector_idle=1.0 - self.collecting.fraction() / self.plan.collectors,
            age_updates=mean(ages) if ages else 0.0,
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
        """When a rank's weights of a version are on a node, to which they are brought if nobody has asked yet."""
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
            rank.ages.clear()
            yield from (rank.learning, rank.taking)

    def _counts(self) -> tuple[float, float]:
        return sum(rank.env_steps for rank in self.ranks), self.ranks[0].updates


class Barrier:
    """Where learners wait for one another."""

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
class Member:
    """A collector as its learner knows it."""

    inbox: simpy.Store
    orders: deque[Order] = field(default_factory=deque)


class Rank:
    """A learner and its collectors."""

    def __init__(self, simulation: Simulation, index: int, collectors: range) -> None:
        self.simulation, self.index, self.env = simulation, index, simulation.env
        self.work, self.plan = simulation.work, simulation.plan
        self.learning, self.taking = Meter(self.env), Meter(self.env)
        self.members = [Member(simpy.Store(self.env)) for _ in collectors]
        self.free = deque(self.members * self.plan.orders_each)
        """Members that take another order, those with the fewest first."""
        self.coming = 0
        """Vector steps of one collector each that are ordered and have not come in."""
        self.arrived: simpy.Store = simpy.Store(self.env)
        self.round_steps = self.plan.round_steps or self.work.trial_steps
        self.num_envs = self.work.environments * len(collectors)
        self.env_steps, self.updates, self.version, self.credit = 0, 0, -1, 0
        self.stored, self.trajectories = 0, 0.0
        self.ages: list[int] = []
        for member, number in zip(self.members, collectors, strict=True):
            self.env.process(self.collect(member, number // self.plan.collectors_per_node))

    def rounds(self, count: int) -> Events:
        """The main thread."""
        for _ in range(count):
            if self.updates != self.version:
                yield from self.learning.work(self.work.hand_out_seconds)
                self.version = self.updates
            taking = self.env.process(self.take(self.round_steps * self.num_envs))
            due = max(0, int(self.stored * self.plan.learners * self.work.updates_per_env_step) - self.updates)
            yield from self.learning.work(due * self.plan.update_seconds(self.work))
            self.updates += due
            yield taking
            yield from self.learning.work(self.trajectories * self.work.append_seconds)
            self.stored, self.trajectories = self.env_steps, 0.0
            yield self.simulation.barrier.wait()

    def take(self, env_steps: int) -> Events:
        """The second thread, for one round."""
        while self.credit < env_steps:
            yield from self.give_orders()
            member, harvest = yield self.arrived.get()
            self.coming -= member.orders.popleft().vector_steps
            self.free.append(member)
            seconds = self.work.order_seconds + self.work.look_seconds * len(self.members)
            yield from self.taking.work(seconds + harvest.trajectories * self.work.get_seconds)
            made = harvest.vector_steps * self.work.environments
            self.credit, self.env_steps = self.credit + made, self.env_steps + made
            self.trajectories += harvest.trajectories
            self.ages.append(self.version - harvest.version)
        self.credit -= env_steps
        yield from self.give_orders()

    def give_orders(self) -> Events:
        """As many as may be."""
        each, most = self.work.environments, math.ceil(self.round_steps / self.plan.orders_each)
        ahead = self.plan.rounds_behind * self.round_steps * self.num_envs - self.credit
        while self.free and self.coming * each < ahead:
            member = self.free.popleft()
            order = Order(self.version, min(most, math.ceil(ahead / each) - self.coming))
            member.orders.append(order)
            self.coming += order.vector_steps
            yield member.inbox.put(order)

    def collect(self, member: Member, node: int) -> Events:
        """One collector, for ever."""
        work, simulation, version = self.work, self.simulation, -2
        node = 0 if self.plan.near else node
        longest = max(1, math.ceil(self.plan.order_seconds / work.vector_step_seconds))
        while True:
            order: Order = yield member.inbox.get()
            if order.version != version:
                version = order.version
                yield simulation.weights_at(node, self.index, version)
                yield from simulation.collecting.work(work.take_over_seconds)
            steps = min(order.vector_steps, longest)
            trajectories = steps * work.environments / work.trial_steps
            seconds = steps * work.vector_step_seconds + trajectories * work.put_seconds
            yield from simulation.collecting.work(seconds)
            harvest = Harvest(order.version, steps, trajectories)
            self.env.process(self._deliver(member, harvest, simulation.nodes[node]))

    def _deliver(self, member: Member, harvest: Harvest, node: Node) -> Events:
        yield from self.simulation.send(node, self.simulation.hub, harvest.trajectories * self.work.trajectory_bytes)
        yield self.arrived.put((member, harvest))


def simulate(work: Work, plan: Plan, *, rounds: int = 12, warm_up: int = 4) -> Outcome:
    """The same figures at every call: nothing is drawn."""
    return Simulation(work, plan).run(rounds=rounds, warm_up=warm_up)
