"""`CollectorPool`: a learner's collectors as Ray actors; those that die, hang or do not start are replaced."""

import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from yamame.collect.faults import RateLimitedPrinter
from yamame.distributed.ray.connection import RayConnection, first_line, format_resources
from yamame.distributed.ray.worker import (
    CollectorActor,
    CollectorFailure,
    CollectRequest,
    CollectResult,
    PolicyWeights,
)
from yamame.errors import UserError
from yamame.run_config import RunConfig
from yamame.types import Fault

Phase = Literal["absent", "scheduling", "setup", "ready"]
"""No actor; waiting for room in the cluster; building environments and network; collecting."""

_MAX_RESTART_DELAY_SECONDS = 30.0


@dataclass(frozen=True)
class Call:
    """A call of an actor's method, and the reference to its future reply."""

    reply: Any
    request: CollectRequest | None = None


class CollectorHandle:
    """A collector, which may be absent for a while. An actor replies to its calls in request."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.phase: Phase = "absent"
        self.actor: Any = None
        self.location = ""
        """Host and process, once known."""
        self.calls: deque[Call] = deque()
        self.waiting_since = time.monotonic()
        """Earliest time at which the first of the calls could have been replied to."""
        self.consecutive_failures = 0
        """Failures since the last result; the restart delay doubles with each."""
        self.absent_until = 0.0

    @property
    def name(self) -> str:
        """Name for messages."""
        return f"collector {self.index}" + (f" ({self.location})" if self.location else "")

    @property
    def pending_requests(self) -> list[CollectRequest]:
        """Requests without a reply."""
        return [call.request for call in self.calls if call.request]

    @property
    def waiting_seconds(self) -> float:
        """How long the first of the calls has waited for its reply."""
        return time.monotonic() - self.waiting_since if self.calls else 0.0

    def attach(self, actor: Any) -> None:
        """Set the actor and ping it; its reply shows that it is scheduled."""
        self.actor, self.phase, self.location = actor, "scheduling", ""
        self.push_call(Call(actor.ping.remote()))

    def push_call(self, call: Call) -> None:
        """Record a call of the actor."""
        if not self.calls:
            self.waiting_since = time.monotonic()
        self.calls.append(call)

    def pop_call(self) -> Call:
        """Remove and return the first of the calls, after its reply."""
        self.waiting_since = time.monotonic()
        return self.calls.popleft()

    def kill(self, ray: Any) -> None:
        """Kill the actor, if there is one, and drop its calls."""
        if self.actor is not None:
            with suppress(Exception):  # the actor or the cluster may be gone
                ray.kill(self.actor)
        self.actor, self.phase = None, "absent"
        self.calls.clear()


NO_RESPONSE_TIMEOUT_SECONDS = 600.0
"""Without a reply from any collector for this long, the run aborts."""
_SCHEDULING_WARNING_SECONDS = 30.0
"""Collectors that wait for room in the cluster for this long are reported."""

Results = list[tuple[CollectRequest, CollectResult | Fault]]
"""Requests and their results; a fault if the environments failed and could not be restarted."""


class CollectorPool:
    """The collectors of one learner. Not thread-safe.

    Ray ends them when this process ends, however it ends.

    Args:
        config: Of this learner.
        connection: To the cluster.
        rank: Of this learner.
        restarts: Number of earlier processes of the run.
    """

    def __init__(self, config: RunConfig, connection: RayConnection, *, rank: int, restarts: int) -> None:
        self.config, self._connection, self._ray = config, connection, connection.ray
        self.handles = [CollectorHandle(index) for index in range(config.ray.num_collectors)]
        self.num_replaced = 0
        """Number of collectors that were replaced."""
        self._rank, self._restarts, self._num_started = rank, restarts, 0
        self._weights_ref: Any = None
        self._seconds_without_reply = 0.0
        self._failure_printer, self._room_printer = RateLimitedPrinter(), RateLimitedPrinter(burst=1)
        self._actor_class = self._ray.remote(CollectorActor)
        self._config_ref: Any = None

    @property
    def ready(self) -> list[CollectorHandle]:
        """Ready collectors, those with the fewest pending calls first."""
        ready = [handle for handle in self.handles if handle.phase == "ready"]
        return sorted(ready, key=lambda handle: len(handle.calls))

    @property
    def pending_requests(self) -> Iterator[CollectRequest]:
        """All requests without a reply."""
        return (request for handle in self.handles for request in handle.pending_requests)

    def start(self) -> None:
        """Start the collectors."""
        self._config_ref = self._ray.put(self.config)
        self._start_missing()

    def publish_weights(self, weights: PolicyWeights) -> None:
        """Set the weights of all requests from now on."""
        self._weights_ref = self._ray.put(weights)

    def submit(self, handle: CollectorHandle, request: CollectRequest) -> None:
        """Send a request to a ready collector."""
        handle.push_call(Call(handle.actor.collect.remote(request, self._weights_ref), request))

    def poll(self, seconds: float) -> Results:
        """Return results as soon as there are any, or after `seconds`; replace collectors that fail or time out.

        Raises `UserError` if a collector reports one, or if none has replied for `NO_RESPONSE_TIMEOUT_SECONDS`.
        """
        started = time.monotonic()
        results: Results = []
        any_reply, timeout = False, seconds
        while replied := self._wait_for_replies(timeout):
            any_reply, timeout = True, 0.0
            for handle in replied:
                results += self._process_reply(handle)
        for handle in self.handles:
            self._check_timeouts(handle)
        self._start_missing()
        self._seconds_without_reply = 0.0 if any_reply else self._seconds_without_reply + time.monotonic() - started
        if self._seconds_without_reply > NO_RESPONSE_TIMEOUT_SECONDS:
            minutes = NO_RESPONSE_TIMEOUT_SECONDS / 60
            raise UserError(
                f"no collector has replied for {minutes:.0f} minutes: check with `ray status` whether the cluster has "
                f"room for them ({self._format_resources()} each), and whether yamame is installed on its nodes"
            )
        return results

    def close(self) -> None:
        """Kill all collectors and disconnect."""
        for handle in self.handles:
            handle.kill(self._ray)
        self._connection.close()

    def _wait_for_replies(self, seconds: float) -> list[CollectorHandle]:
        """Return collectors whose first call has its reply."""
        first = {handle.calls[0].reply: handle for handle in self.handles if handle.calls}
        if not first:
            time.sleep(seconds)
            return []
        try:
            ready, _ = self._ray.wait(list(first), num_returns=1, timeout=seconds)
        except (ConnectionError, self._ray.exceptions.RaySystemError) as problem:
            raise UserError(
                f"--ray.address {self.config.ray.address} is gone ({' '.join(str(problem).split())})"
            ) from problem
        return [first[reply] for reply in ready]

    def _process_reply(self, handle: CollectorHandle) -> Results:
        call = handle.pop_call()
        try:
            reply = self._ray.get(call.reply, timeout=self.config.ray.collect_timeout_seconds)
        except self._ray.exceptions.RayError as problem:
            self._replace(handle, first_line(problem))
            return []
        match reply:
            case str() if handle.phase == "scheduling":
                handle.phase, handle.location = "setup", reply
                handle.push_call(Call(handle.actor.setup.remote()))
            case str():
                handle.phase = "ready"
            case CollectorFailure(traceback=""):
                raise UserError(f"{handle.name}: {reply.message}")
            case CollectorFailure():
                message = f"{handle.name}: {reply.message}"
                self._replace(handle, reply.message)
                if call.request is None:
                    print(reply.traceback, file=sys.stderr)
                    raise UserError(f"{message} (its environments cannot be built: fix them)")
                return [(call.request, Fault(kind="exception", message=message, traceback=reply.traceback))]
            case CollectResult() if call.request:
                handle.consecutive_failures = 0
                return [(call.request, reply)]
            case _:
                self._replace(handle, "its reply does not match the request")
        return []

    def _check_timeouts(self, handle: CollectorHandle) -> None:
        ray_config, waited = self.config.ray, handle.waiting_seconds
        match handle.phase:
            case "ready" if waited > ray_config.collect_timeout_seconds:
                self._replace(handle, f"it has not replied for {waited:.0f} s (--ray.collect-timeout-seconds)")
            case "setup" if waited > ray_config.startup_timeout_seconds:
                self._replace(handle, f"it was not ready after {waited:.0f} s (--ray.startup-timeout-seconds)")
            case "scheduling" if waited > min(_SCHEDULING_WARNING_SECONDS, ray_config.startup_timeout_seconds):
                if not self._has_room():
                    self._warn_of_no_room()
                elif waited > ray_config.startup_timeout_seconds:
                    self._replace(handle, f"it did not start within {waited:.0f} s (--ray.startup-timeout-seconds)")

    def _replace(self, handle: CollectorHandle, reason: str) -> None:
        self._failure_printer.print(f"{handle.name} failed and was replaced: {reason}")
        self.num_replaced += 1
        handle.kill(self._ray)
        delay = min(2.0**handle.consecutive_failures - 1.0, _MAX_RESTART_DELAY_SECONDS)
        handle.consecutive_failures = min(handle.consecutive_failures + 1, 10)
        handle.absent_until = time.monotonic() + delay

    def _start_missing(self) -> None:
        for handle in self.handles:
            if handle.phase == "absent" and time.monotonic() >= handle.absent_until:
                handle.attach(self._new_actor(handle.index))

    def _new_actor(self, index: int) -> Any:
        number, self._num_started = self._num_started, self._num_started + 1
        ray_config = self.config.ray
        options = {
            "num_cpus": ray_config.num_cpus_per_collector,
            "num_gpus": ray_config.num_gpus_per_collector,
            "max_restarts": 0,
            "max_task_retries": 0,
            "scheduling_strategy": "SPREAD",
        }
        seed = (self._restarts, self._rank, index, number)
        return self._actor_class.options(**options).remote(self._config_ref, seed)

    def _has_room(self) -> bool:
        """Whether the nodes of the cluster together have room for one more collector."""
        available, ray_config = self._ray.available_resources(), self.config.ray
        return (
            available.get("CPU", 0.0) >= ray_config.num_cpus_per_collector
            and available.get("GPU", 0.0) >= ray_config.num_gpus_per_collector
        )

    def _warn_of_no_room(self) -> None:
        waiting = sum(handle.phase == "scheduling" for handle in self.handles)
        self._room_printer.print(
            f"{waiting} of {len(self.handles)} collectors wait for room in the cluster "
            f"({self._format_resources()} each): they start when nodes join"
        )

    def _format_resources(self) -> str:
        return format_resources(self.config.ray.num_cpus_per_collector, self.config.ray.num_gpus_per_collector)
