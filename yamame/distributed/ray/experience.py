"""`RayExperience`: trajectories of collectors in a Ray cluster, which get the weights that they act with."""

import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from torch import nn
from typing_extensions import override

from yamame.collect.background import ShouldStop
from yamame.collect.experience import Experience
from yamame.collect.faults import FaultMonitor
from yamame.data.trajectory import Trajectory
from yamame.distributed.ray.pool import CollectorPool
from yamame.distributed.ray.worker import CollectRequest, CollectResult, PolicyWeights, actor_state
from yamame.envs.base import TrialVectorEnv
from yamame.run_config import RunConfig
from yamame.types import Fault

_REQUESTS_PER_COLLECTOR = 2
"""One in progress and one queued, so that no collector waits for the learner."""
_REQUEST_SECONDS = 1.0
"""Time limit of a request, so that a collector that hangs is soon distinguished from a slow one."""
_POLL_SECONDS = 0.25


class RayExperience(Experience):
    """Vector steps are made by remote collectors; a step is done when its env steps have arrived.

    Requests at most `ray.max_policy_lag` iterations ahead, and nothing beyond the end of the run. Trials whose request
    is more weight syncs old than that are dropped, but their steps are counted.

    Args:
        pool: The collectors.
        environments: For their spaces; never stepped.
        config: Of this learner.
    """

    def __init__(self, pool: CollectorPool, environments: TrialVectorEnv, config: RunConfig) -> None:
        super().__init__(environments)
        self.faults = FaultMonitor(config.fault_tolerance)
        self.pool, self.config = pool, config
        self._num_envs_each = config.num_envs // config.ray.num_collectors
        self._max_env_steps = -(-config.env_steps // config.num_learners)
        """Env steps of this learner in the whole run."""
        self._num_stale_dropped = 0
        """Results dropped because of their policy lag."""
        self._reset_metrics()
        self._num_weight_syncs = 0
        self._version = -1
        self._credit = 0
        """Env steps taken in excess of the vector steps made, counting failed steps as well."""
        self._results: deque[tuple[CollectRequest, CollectResult]] = deque()

    @override
    def load_weights(self, model: nn.Module, *, version: int) -> None:
        """Send the current weights of a model to the collectors."""
        if not self._num_weight_syncs:
            self.pool.start()
        self._num_weight_syncs += 1
        if version == self._version:
            return
        started = time.monotonic()
        tensors = actor_state(self.config.algorithm, model)
        self.pool.publish_weights(PolicyWeights(version=version, tensors=tensors))
        self._version = version
        self._weight_sync |= {
            "collectors/weight_sync_bytes": float(sum(array.nbytes for array in tensors.values())),
            "collectors/weight_sync_seconds": time.monotonic() - started,
        }

    @override
    def collect(self, vector_steps: int, should_stop: ShouldStop) -> tuple[list[Trajectory], int]:
        """Take the results of a number of vector steps. At the end of the run, takes all that arrived."""
        trajectories: list[Trajectory] = []
        while vector_steps and not should_stop():
            completed = self.step()
            if completed is not None:
                trajectories += completed
                vector_steps -= 1
        return trajectories, vector_steps

    def step(self) -> list[Trajectory] | None:
        """Return the trials that ended in a vector step of all environments; None if it is not complete after a moment.

        Raises `UserError` if collectors or their environments fail too often.
        """
        if not self._is_step_complete():
            self._submit_requests()
            started = time.monotonic()
            results = self.pool.poll(_POLL_SECONDS)
            self._wait_seconds += time.monotonic() - started
            for request, result in results:
                if isinstance(result, Fault):
                    self.faults.record_faults([result], finished=0, worked=False)
                else:
                    self._results.append((request, result))
            self._submit_requests()
        return self._take_step() if self._is_step_complete() else None

    @override
    def close(self) -> None:
        """Close the collectors and the environments."""
        self.pool.close()
        super().close()

    @override
    def counts(self) -> dict[str, float]:
        """Return the numbers of ready and replaced collectors, of dropped results, and of faults."""
        return {
            **self.faults.metrics(),
            "collectors/num_ready": float(len(self.pool.ready)),
            "collectors/num_replaced": float(self.pool.num_replaced),
            "collectors/num_stale_dropped": float(self._num_stale_dropped),
        }

    @override
    def metrics(self) -> dict[str, float]:
        metrics = {"time/collector_wait_seconds": self._wait_seconds, **self._weight_sync}
        if self._collect_seconds:
            total_seconds = self._idle_seconds + self._collect_seconds
            metrics["collectors/idle_fraction"] = self._idle_seconds / total_seconds
        if self._policy_lags:
            metrics["collectors/policy_lag_updates_mean"] = sum(self._policy_lags) / len(self._policy_lags)
            metrics["collectors/policy_lag_updates_max"] = float(max(self._policy_lags))
        self._reset_metrics()
        return metrics

    @override
    def state_dict(self) -> Mapping[str, Any]:
        """Return counters; unfinished trials end with the collectors."""
        state = {"env_steps": self.env_steps, "credit": self._credit}
        return {**state, "faults": self.faults.state_dict(), "replaced": self.pool.num_replaced}

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        """Restore counters; always True."""
        self.env_steps, self._credit = state["env_steps"], state["credit"]
        self.faults.load_state_dict(state["faults"])
        self.pool.num_replaced = state["replaced"]
        return True

    def _reset_metrics(self) -> None:
        self._weight_sync: dict[str, float] = {}
        self._policy_lags: list[int] = []
        self._wait_seconds = self._collect_seconds = self._idle_seconds = 0.0

    def _submit_requests(self) -> None:
        iteration_steps = -(-self.config.resolved_env_steps_per_iteration // self.config.num_envs)
        requested = sum(request.vector_steps for request in self.pool.pending_requests)
        requested += sum(result.vector_steps for _, result in self._results)
        max_ahead = self.config.ray.max_policy_lag * iteration_steps * self.config.num_envs - self._credit
        missing = min(max_ahead, self._max_env_steps - self.env_steps) - requested * self._num_envs_each
        available = deque(handle for handle in self.pool.ready if len(handle.calls) < _REQUESTS_PER_COLLECTOR)
        while available and missing > 0:
            handle = available.popleft()
            request = CollectRequest(
                weight_sync=self._num_weight_syncs,
                vector_steps=min(-(-missing // self._num_envs_each), -(-iteration_steps // _REQUESTS_PER_COLLECTOR)),
                seconds=_REQUEST_SECONDS,
                env_steps=self.env_steps + self.remote_env_steps,
                deterministic=self.config.deterministic_actions,
            )
            self.pool.submit(handle, request)
            missing -= request.vector_steps * self._num_envs_each
            if len(handle.calls) < _REQUESTS_PER_COLLECTOR:
                available.append(handle)

    def _is_step_complete(self) -> bool:
        arrived = sum(result.vector_steps for _, result in self._results) * self._num_envs_each
        transitions = sum(result.env_steps for _, result in self._results)
        return self._credit + arrived >= self.config.num_envs or self.env_steps + transitions >= self._max_env_steps

    def _take_step(self) -> list[Trajectory]:
        """Take as many results as a vector step needs, in the order of their arrival."""
        trajectories: list[Trajectory] = []
        while self._results and self._credit < self.config.num_envs:
            request, result = self._results.popleft()
            self._credit += result.vector_steps * self._num_envs_each
            self.env_steps += result.env_steps
            self.faults.record_faults(result.faults, finished=result.num_finished, worked=result.env_steps > 0)
            if self._num_weight_syncs - request.weight_sync > self.config.ray.max_policy_lag:
                self._num_stale_dropped += 1
                continue
            self._collect_seconds += result.seconds
            self._idle_seconds += result.idle_seconds
            self._policy_lags += [self._version - trajectory.policy_version for trajectory in result.trajectories]
            trajectories += result.trajectories
        self._credit = max(0, self._credit - self.config.num_envs)
        return trajectories
