"""What stands where collector and policy would: they give orders to a fleet of collectors and take what it brings."""

import itertools
import time
from collections import deque
from typing import TYPE_CHECKING
from uuid import uuid4

from torch import nn

from yamame.collect.faults import FaultMonitor
from yamame.config import RunConfig
from yamame.data.trajectory import Trajectory
from yamame.distributed.ray.messages import CollectRequest, CollectResult, PolicyWeights
from yamame.distributed.ray.worker import actor_state
from yamame.envs.base import TrialVectorEnv
from yamame.types import Fault, State

if TYPE_CHECKING:
    from yamame.distributed.ray.pool import CollectorPool


class PoolMetrics:
    """Sums over a round, but for what is dropped, which counts for the whole process."""

    def __init__(self) -> None:
        self.num_dropped = 0
        """Harvests that were too old to be learned from."""
        self._handed_out: dict[str, float] = {}
        self._wait_seconds = self._seconds = self._idle_seconds = 0.0
        self._ages: list[int] = []

    def record_weight_sync(self, num_bytes: int, seconds: float) -> None:
        """New weights."""
        self._handed_out = {"collectors/weight_sync_bytes": float(num_bytes), "collectors/weight_sync_seconds": seconds}

    def record_wait(self, seconds: float) -> None:
        """For collectors to answer."""
        self._wait_seconds += seconds

    def record_result(self, harvest: CollectResult, version: int) -> None:
        """What was taken while the newest weights had so many updates behind them."""
        self._seconds += harvest.seconds
        self._idle_seconds += harvest.idle_seconds
        self._ages += [version - trajectory.policy_version for trajectory in harvest.trajectories]

    def pop(self) -> dict[str, float]:
        """By key, for the round that ends."""
        measured = {
            "time/collector_wait_seconds": self._wait_seconds,
            **self._handed_out,
        }
        if self._seconds:
            measured["collectors/idle_fraction"] = self._idle_seconds / (self._seconds + self._idle_seconds)
        if self._ages:
            measured["collectors/policy_lag_updates_mean"] = sum(self._ages) / len(self._ages)
            measured["collectors/policy_lag_updates_max"] = float(max(self._ages))
        self._handed_out, self._ages = {}, []
        self._wait_seconds = self._seconds = self._idle_seconds = 0.0
        return measured


_ORDERS_EACH = 2
"""One that a collector works off and one that waits, so that no collector waits for the learner."""
_ORDER_SECONDS = 1.0
"""Orders end so early where environments are slow, so that a collector that hangs is soon known from one that works."""
_POLL_SECONDS = 0.25


class RayCollector:
    """A collector whose vector steps are made elsewhere: each is over when as many environment steps have come in.

    Never more is ordered than `ray.max_policy_lag` rounds take, and nothing beyond the end of the run. Trials that
    came of what was ordered more refreshes ago than that are dropped, but the steps made are counted. `environments`
    are only looked at.
    """

    def __init__(self, fleet: "CollectorPool", environments: TrialVectorEnv, config: RunConfig) -> None:
        self.environments = environments
        self.env_steps = 0
        """Transitions so far of this learner's collectors: all that was taken, and nothing else."""
        self.remote_env_steps = 0
        """Those of other learners' collectors."""
        self.faults = FaultMonitor(config.fault_tolerance)
        self.pool, self.config = fleet, config
        self.name = uuid4().hex[:12]
        """Of the run, in all its processes."""
        self.pool_metrics = PoolMetrics()
        self._refreshes = 0
        self._version = -1
        self._credit = 0
        """Environment steps that were taken beyond the vector steps made, faults counted as if they had been none."""
        self._arrived: deque[tuple[CollectRequest, CollectResult]] = deque()
        self._numbers = itertools.count()

    def publish(self, model: nn.Module, *, version: int) -> None:
        """Let collectors act with an agent's present weights from now on."""
        if not self._refreshes:
            self.pool.start(self.name)
        self._refreshes += 1
        if version == self._version:
            return
        began = time.monotonic()
        tensors = actor_state(self.config.algorithm, model)
        self.pool.publish_weights(PolicyWeights(name=uuid4().hex, version=version, tensors=tensors))
        self._version = version
        self.pool_metrics.record_weight_sync(sum(array.nbytes for array in tensors.values()), time.monotonic() - began)

    def step(self, *, deterministic: bool) -> list[tuple[int, Trajectory]] | None:
        """Take what makes a vector step of all environments full, with index 0 for each trial that has ended.

        None where that has not come in after a moment. At the end of the run it takes what there is. Raises
        `UserError` where collectors or their environments fail too often.
        """
        if not self._is_full():
            self._give_orders(deterministic)
            began = time.monotonic()
            answers = self.pool.poll(_POLL_SECONDS)
            self.pool_metrics.record_wait(time.monotonic() - began)
            for order, answer in answers:
                self._sort(order, answer)
            self._give_orders(deterministic)
        return self._take() if self._is_full() else None

    def close(self) -> None:
        """End the collectors."""
        self.pool.close()
        self.environments.close()

    def counts(self) -> dict[str, float]:
        """How many collectors work, and what went wrong with them, with their environments and with harvests."""
        return {
            **self.faults.metrics(),
            "collectors/num_ready": float(len(self.pool.ready)),
            "collectors/num_replaced": float(self.pool.num_replaced),
            "collectors/num_stale_dropped": float(self.pool_metrics.num_dropped),
        }

    def metrics(self) -> dict[str, float]:
        """What was measured since the last call."""
        return self.pool_metrics.pop()

    def state_dict(self) -> State:
        """The clock; trials in flight are the collectors' own."""
        state = {"env_steps": self.env_steps, "credit": self._credit, "name": self.name}
        return {**state, "faults": self.faults.state_dict(), "replaced": self.pool.num_replaced}

    def load_state_dict(self, state: State) -> bool:
        """Go on where `state_dict` was taken, with the same collectors if they still live."""
        self.env_steps, self._credit, self.name = state["env_steps"], state["credit"], state["name"]
        self.faults.load_state_dict(state["faults"])
        self.pool.num_replaced = state["replaced"]
        return True

    def _give_orders(self, deterministic: bool) -> None:
        each = self.config.num_envs // self.config.ray.num_collectors
        round_steps = -(-self.config.resolved_env_steps_per_iteration // self.config.num_envs)
        wanted = self._wanted(each, round_steps)
        able = deque(member for member in self.pool.ready if len(member.calls) < _ORDERS_EACH)
        while able and wanted > 0:
            member = able.popleft()
            order = CollectRequest(
                request_id=next(self._numbers),
                weight_sync=self._refreshes,
                vector_steps=min(-(-wanted // each), -(-round_steps // _ORDERS_EACH)),
                seconds=_ORDER_SECONDS,
                env_steps=self.env_steps + self.remote_env_steps,
                deterministic=deterministic,
            )
            self.pool.submit(member, order)
            wanted -= order.vector_steps * each
            if len(member.calls) < _ORDERS_EACH:
                able.append(member)

    def _wanted(self, each: int, round_steps: int) -> int:
        """Environment steps to order now."""
        coming = each * (
            sum(order.vector_steps for order in self.pool.pending_requests)
            + sum(harvest.vector_steps for _, harvest in self._arrived)
        )
        ahead = self.config.ray.max_policy_lag * round_steps * self.config.num_envs
        return min(ahead - self._credit, self._end - self.env_steps) - coming

    @property
    def _end(self) -> int:
        """Environment steps of this learner in the whole run."""
        return -(-self.config.env_steps // self.config.num_learners)

    def _sort(self, order: CollectRequest, answer: CollectResult | Fault) -> None:
        if isinstance(answer, Fault):
            self.faults.record_faults([answer], finished=0, worked=False)
        else:
            self._arrived.append((order, answer))

    def _is_full(self) -> bool:
        each = self.config.num_envs // self.config.ray.num_collectors
        arrived = sum(harvest.vector_steps for _, harvest in self._arrived) * each
        transitions = sum(harvest.env_steps for _, harvest in self._arrived)
        return self._credit + arrived >= self.config.num_envs or self.env_steps + transitions >= self._end

    def _take(self) -> list[tuple[int, Trajectory]]:
        """As many harvests as a vector step needs, in the order of their arrival."""
        each, num_envs = self.config.num_envs // self.config.ray.num_collectors, self.config.num_envs
        taken: list[tuple[int, Trajectory]] = []
        while self._arrived and (self._credit < num_envs):
            order, harvest = self._arrived.popleft()
            self._credit += harvest.vector_steps * each
            self.env_steps += harvest.env_steps
            self.faults.record_faults(harvest.faults, finished=harvest.num_finished, worked=harvest.env_steps > 0)
            if self._refreshes - order.weight_sync > self.config.ray.max_policy_lag:
                self.pool_metrics.num_dropped += 1
                continue
            self.pool_metrics.record_result(harvest, self._version)
            taken += [(0, trajectory) for trajectory in harvest.trajectories]
        self._credit = max(0, self._credit - num_envs)
        return taken


class WeightPublisher:
    """A policy that acts elsewhere: what a run does with its policy, it does with the collectors' ones."""

    def __init__(self, collectors: RayCollector) -> None:
        self._collectors = collectors

    def load_weights(self, model: nn.Module, *, version: int) -> None:
        """Let collectors act with an agent's present weights from now on."""
        self._collectors.publish(model, version=version)

    def state_dict(self) -> State:
        """Nothing: memories are the collectors' own."""
        return {}

    def load_state_dict(self, state: State) -> None:
        """Nothing to go on from."""
