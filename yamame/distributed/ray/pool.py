"""`Fleet`: a learner's collectors as Ray actors; those that die, hang or do not begin are replaced."""

import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal
from uuid import uuid4

from yamame.collect.faults import RateLimitedPrinter
from yamame.config import RunConfig
from yamame.distributed.ray.connection import NAMESPACE, RayConnection
from yamame.distributed.ray.messages import (
    CollectorFailure,
    CollectorInfo,
    CollectRequest,
    CollectResult,
    PolicyWeights,
)
from yamame.distributed.ray.worker import CollectorActor
from yamame.errors import UserError
from yamame.types import Fault

Phase = Literal["away", "placing", "preparing", "ready"]
"""No actor; one that waits for room in the cluster; one that builds its environments; one that works."""

_MAX_PAUSE = 30.0


@dataclass(frozen=True)
class Call:
    """What was asked of an actor, and the reference to its answer to come."""

    answer: Any
    order: CollectRequest | None = None


class CollectorHandle:
    """A collector, or the place of one. An actor answers its calls one after the other, in their order."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.phase: Phase = "away"
        self.actor: Any = None
        self.location = ""
        """Host and process, once it has said so."""
        self.calls: deque[Call] = deque()
        self.waiting_since = time.monotonic()
        """Since when the first of the calls could have been answered."""
        self._losses_in_a_row = 0
        self._away_until = 0.0

    @property
    def name(self) -> str:
        """What to call it before users."""
        return f"collector {self.index}" + (f" ({self.location})" if self.location else "")

    @property
    def pending_requests(self) -> list[CollectRequest]:
        """Those that it has not answered."""
        return [call.order for call in self.calls if call.order]

    @property
    def should_start(self) -> bool:
        """Whether it is time for an actor where there is none."""
        return self.phase == "away" and time.monotonic() >= self._away_until

    @property
    def waited(self) -> float:
        """Seconds that the first of the calls has waited for its answer."""
        return time.monotonic() - self.waiting_since if self.calls else 0.0

    def attach(self, actor: Any) -> None:
        """Fill the place; the actor's place in the cluster shows when it says hello."""
        self.actor, self.phase, self.location = actor, "placing", ""
        self.push_call(Call(actor.ping.remote()))

    def push_call(self, call: Call) -> None:
        """Note what was asked of the actor."""
        if not self.calls:
            self.waiting_since = time.monotonic()
        self.calls.append(call)

    def pop_call(self) -> Call:
        """The first of the calls, which has its answer."""
        self.waiting_since = time.monotonic()
        return self.calls.popleft()

    def mark_healthy(self) -> None:
        """It has done what it is for."""
        self._losses_in_a_row = 0

    def fail(self, ray: Any) -> None:
        """End the actor, if it has not ended; whatever it had still to answer is forgotten. A next one comes later, the
        more of them were lost since one has worked."""
        self.kill(ray)
        pause = 2.0**self._losses_in_a_row - 1.0
        self._losses_in_a_row = min(self._losses_in_a_row + 1, 10)
        self._away_until = time.monotonic() + min(pause, _MAX_PAUSE)

    def kill(self, ray: Any) -> None:
        """Leave the place empty."""
        if self.actor is not None:
            with suppress(Exception):  # it may be gone, or the cluster
                ray.kill(self.actor)
        self.actor, self.phase = None, "away"
        self.calls.clear()


_TIMES = 4
"""So often in `keep_seconds` each is greeted."""


class Heartbeat:
    """A thread that says hello to actors."""

    def __init__(self, keep_seconds: float) -> None:
        self._actors: list[Any] = []
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._greet, args=(keep_seconds / _TIMES,), daemon=True)
        self._thread.start()

    def add(self, actor: Any) -> None:
        """Greet one more."""
        self._actors = [*self._actors, actor]

    def remove(self, actor: Any) -> None:
        """Greet one less."""
        self._actors = [other for other in self._actors if other is not actor]

    def close(self) -> None:
        """Greet nobody any more."""
        self._closed.set()
        self._thread.join()

    def _greet(self, seconds: float) -> None:
        while not self._closed.wait(seconds):
            for actor in self._actors:
                with suppress(Exception):  # it may be gone; the fleet finds out
                    actor.ping.remote()


NO_RESPONSE_TIMEOUT_SECONDS = 600.0
"""A run that hears of no collector for so long ends."""
_ROOM_SECONDS = 30.0
"""It is told of collectors that have waited so long for room."""

Results = list[tuple[CollectRequest, CollectResult | Fault]]
"""Orders and what came of them: a harvest, or what the environments of a collector did that it did not survive."""


class CollectorPool:
    """The collectors of one learner, `config` being its share of the run. Use it from one thread at a time.

    In a cluster that outlives this process the collectors do so as well, under names that begin with `name`, for
    `ray.orphan_timeout_seconds`: a next process of the run with the same name takes them over, and has of their work only what
    it ordered itself.
    """

    def __init__(self, config: RunConfig, connection: RayConnection, *, rank: int, restarts: int) -> None:
        self.config, self._connection, self._ray = config, connection, connection.ray
        self.members = [CollectorHandle(index) for index in range(config.ray.num_collectors)]
        self.num_replaced = 0
        """Collectors that were lost."""
        self._rank, self._restarts, self._started = rank, restarts, 0
        self._name, self._learner = "", uuid4().hex
        self._weights: Any = None
        self._silent_seconds = 0.0
        self._losses, self._room = RateLimitedPrinter(), RateLimitedPrinter(at_once=1)
        self._keep_alive = Heartbeat(config.ray.orphan_timeout_seconds) if connection.is_persistent else None
        self._remote_class = self._ray.remote(CollectorActor)
        self._config_in_store: Any = None

    @property
    def ready(self) -> list[CollectorHandle]:
        """Collectors that work, those with the fewest orders first."""
        able = [member for member in self.members if member.phase == "ready"]
        return sorted(able, key=lambda member: len(member.calls))

    @property
    def pending_requests(self) -> Iterator[CollectRequest]:
        """All that are not answered."""
        return (order for member in self.members for order in member.pending_requests)

    def start(self, name: str) -> None:
        """Take over the collectors of an earlier process of the run, and begin those that are missing."""
        self._name = f"yamame-{name}-{self._rank}"
        self._config_in_store = self._ray.put(self.config)
        if self._connection.is_persistent:
            self._take_over()
        self._fill_places()

    def publish_weights(self, weights: PolicyWeights) -> None:
        """The weights of all orders from now on."""
        self._weights = self._ray.put(weights)

    def submit(self, member: CollectorHandle, order: CollectRequest) -> None:
        """Give a collector that is `ready` something to do."""
        member.push_call(Call(member.actor.collect.remote(order, self._weights, self._learner), order))

    def poll(self, seconds: float) -> Results:
        """What was done, once some of it is or so much time has passed; and look after those that do not answer.

        `UserError` where a collector cannot be what the user wants, and where none has answered for long.
        """
        began = time.monotonic()
        answers: Results = []
        heard, wait = False, seconds
        while ready := self._answered(wait):
            heard, wait = True, 0.0
            for member in ready:
                answers += self._take(member)
        for member in self.members:
            self._look_after(member)
        self._fill_places()
        self._silent_seconds = 0.0 if heard else self._silent_seconds + time.monotonic() - began
        if self._silent_seconds > NO_RESPONSE_TIMEOUT_SECONDS:
            raise self._nobody_answers()
        return answers

    def close(self) -> None:
        """End all collectors and leave the cluster."""
        if self._keep_alive:
            self._keep_alive.close()
        for member in self.members:
            member.kill(self._ray)
        self._connection.close()

    def _answered(self, seconds: float) -> list[CollectorHandle]:
        """Those whose first call has its answer, here in this process."""
        first = {member.calls[0].answer: member for member in self.members if member.calls}
        if not first:
            time.sleep(seconds)
            return []
        try:
            ready, _ = self._ray.wait(list(first), num_returns=1, timeout=seconds)
        except (ConnectionError, self._ray.exceptions.RaySystemError) as problem:
            raise UserError(
                f"--ray.address {self.config.ray.address} is gone ({' '.join(str(problem).split())})"
            ) from problem
        return [first[answer] for answer in ready]

    def _take(self, member: CollectorHandle) -> Results:
        call = member.pop_call()
        try:
            answer = self._ray.get(call.answer, timeout=self.config.ray.collect_timeout_seconds)
        except self._ray.exceptions.RayError as problem:
            self._lose(member, _why(problem))
            return []
        match answer:
            case CollectorInfo() if member.phase == "placing":
                member.phase, member.location = "preparing", f"process {answer.pid} on {answer.host}"
                member.push_call(Call(member.actor.setup.remote(self._learner)))
            case CollectorInfo():
                member.phase = "ready"
            case CollectorFailure(traceback=""):
                raise UserError(f"{member.name}: {answer.message}")
            case CollectorFailure():
                return self._give_up(member, call, answer)
            case CollectResult() if call.order and answer.request_id == call.order.request_id:
                member.mark_healthy()
                return [(call.order, answer)]
            case _:
                self._lose(member, "it answered something else than it was asked")
        return []

    def _give_up(self, member: CollectorHandle, call: Call, failure: CollectorFailure) -> Results:
        """Lose a collector whose own environments or policy have failed in a way that it cannot mend."""
        message = f"{member.name}: {failure.message}"
        self._lose(member, failure.message)
        if call.order is None:
            print(failure.traceback, file=sys.stderr)
            raise UserError(f"{message} (its environments cannot be built: mend them)")
        return [(call.order, Fault(kind="exception", message=message, traceback=failure.traceback))]

    def _look_after(self, member: CollectorHandle) -> None:
        remote, waited = self.config.ray, member.waited
        match member.phase:
            case "ready" if waited > remote.collect_timeout_seconds:
                self._lose(member, f"it has not answered for {waited:.0f} s (--ray.collect-timeout-seconds)")
            case "preparing" if waited > remote.startup_timeout_seconds:
                self._lose(member, f"it was not ready after {waited:.0f} s (--ray.startup-timeout-seconds)")
            case "placing" if waited > min(_ROOM_SECONDS, remote.startup_timeout_seconds):
                if not self._has_room():
                    self._tell_of_room()
                elif waited > remote.startup_timeout_seconds:
                    self._lose(member, f"it did not begin in {waited:.0f} s (--ray.startup-timeout-seconds)")

    def _lose(self, member: CollectorHandle, why: str) -> None:
        self._losses.print(f"{member.name} is lost, another takes its place: {why}")
        self.num_replaced += 1
        if self._keep_alive:
            self._keep_alive.remove(member.actor)
        member.fail(self._ray)

    def _fill_places(self) -> None:
        for member in self.members:
            if member.should_start:
                self._take_in(member, self._new_actor(member.index))

    def _take_in(self, member: CollectorHandle, actor: Any) -> None:
        member.attach(actor)
        if self._keep_alive:
            self._keep_alive.add(actor)

    def _new_actor(self, index: int) -> Any:
        number, self._started = self._started, self._started + 1
        remote, keep_seconds = self.config.ray, None
        options = {
            "num_cpus": remote.num_cpus_per_collector,
            "num_gpus": remote.num_gpus_per_collector,
            "max_restarts": 0,
            "max_task_retries": 0,
            "scheduling_strategy": "SPREAD",
        }
        if self._connection.is_persistent:
            keep_seconds = remote.orphan_timeout_seconds
            name = f"{self._name}-{index}-{self._restarts}-{number}"
            options |= {"name": name, "namespace": NAMESPACE, "lifetime": "detached"}
        seed = (self._restarts, self._rank, index, number)
        return self._remote_class.options(**options).remote(self._config_in_store, seed, keep_seconds=keep_seconds)

    def _take_over(self) -> None:
        """Adopt the newest actor of each place; others of the name would be in the way."""
        for place, _, number, name in sorted(self._left_behind(), reverse=True):
            self._started = max(self._started, number + 1)
            try:
                actor = self._ray.get_actor(name, namespace=NAMESPACE)
            except ValueError:  # it has just ended
                continue
            if place < len(self.members) and self.members[place].phase == "away":
                self._take_in(self.members[place], actor)
            else:
                self._ray.kill(actor)

    def _left_behind(self) -> Iterator[tuple[int, int, int, str]]:
        """Place, restarts, number and name of the actors of earlier processes."""
        for actor in self._ray.util.list_named_actors(all_namespaces=True):
            name: str = actor["name"]
            if actor["namespace"] == NAMESPACE and name.startswith(f"{self._name}-"):
                place, restarts, number = map(int, name.removeprefix(f"{self._name}-").split("-"))
                yield place, restarts, number, name

    def _has_room(self) -> bool:
        """Whether the cluster has room for one collector more, on all its nodes together."""
        left, remote = self._ray.available_resources(), self.config.ray
        return (
            left.get("CPU", 0.0) >= remote.num_cpus_per_collector
            and left.get("GPU", 0.0) >= remote.num_gpus_per_collector
        )

    def _tell_of_room(self) -> None:
        waiting = sum(member.phase == "placing" for member in self.members)
        self._room.print(
            f"{waiting} of {len(self.members)} collectors wait for room in the cluster ({self._needs()} each): "
            "they join when nodes do"
        )

    def _needs(self) -> str:
        remote = self.config.ray
        gpus = f" and {remote.num_gpus_per_collector:g} GPUs" if remote.num_gpus_per_collector else ""
        return f"{remote.num_cpus_per_collector:g} cores{gpus}"

    def _nobody_answers(self) -> UserError:
        return UserError(
            f"no collector has answered for {NO_RESPONSE_TIMEOUT_SECONDS / 60:.0f} minutes: see with `ray status` whether the "
            f"cluster has room for them ({self._needs()} each), and whether yamame is installed on its nodes"
        )


def _why(problem: Exception) -> str:
    """The beginning of what Ray says, which has many lines."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return f"{type(problem).__name__}: {lines[0] if lines else ''}"
