"""Single environments in worker processes, several in each, answering through shared memory."""

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from jaxtyping import Bool, Shaped

from yamame.data.actions import ACTION_MASK_KEY, NativeActionSpace, policy_action_space
from yamame.data.step import EpisodeStep
from yamame.envs.vector.action_masks import missing_mask_error
from yamame.envs.vector.restarting import WorkerError, restart_seed, restart_with_retries
from yamame.envs.vector.worker import (
    ERROR,
    RECOVERED,
    RESET,
    RESTARTING,
    STEP,
    Channel,
    RemoteError,
    WorkerSpec,
    create_memfd,
    map_buffers,
    serialize,
)
from yamame.errors import UserError
from yamame.types import Fault

SECONDS_TO_CLOSE = 3.0
STARTUP_FACTOR = 10
"""So many times as long as a step may it take to make environments, and to reset them."""
_START = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from yamame.envs.vector.worker import worker_main
worker_main(int(sys.argv[2]), int(sys.argv[3]))
"""
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_SOON = 1e-3


class WorkerHandle:
    """A process that holds some `rows` of the environments. What it is asked for, it has `step_seconds` to do."""

    def __init__(self, rows: slice, memory_file: int, step_seconds: float) -> None:
        self.rows = rows
        self.gone: Fault | None = None
        """How the process ended, once that is known."""
        self._step_seconds = step_seconds
        self._deadline = 0.0
        self._asked = False
        self._faults: list[Fault] = []
        ours, theirs = socket.socketpair()
        self._channel = Channel(ours)
        files = theirs.fileno(), memory_file
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, json.dumps([str(path) for path in sys.path]), *map(str, files)],
                stdin=subprocess.DEVNULL,
                stdout=2,  # what environments print must not mix with results
                env=os.environ | _ONE_THREAD,
                pass_fds=files,
                process_group=0,  # Ctrl-C in the terminal is for the parent
            )

    @property
    def name(self) -> str:
        """What errors call it."""
        return f"the worker process of environments {self.rows.start} to {self.rows.stop - 1}"

    def start(self, share: bytes) -> None:
        """Let it make its environments."""
        self._wants_answer_in(STARTUP_FACTOR * self._step_seconds)
        with suppress(ConnectionError):  # `answer` tells
            self._channel.send(share)

    def request(self, command: bytes) -> None:
        """Let it do what the exchange says."""
        if self._asked:  # an exception from a signal handler left an earlier answer behind
            self.wait_reply()
        self._wants_answer_in(self._step_seconds if command == STEP else STARTUP_FACTOR * self._step_seconds)
        with suppress(ConnectionError):
            self._channel.send_byte(command)

    def wait_reply(self) -> RemoteError | None:
        """Wait for what became of the last request; None if all is well, or if the process is `gone`."""
        failure: RemoteError | None = None
        try:
            said = b"" if self.gone else self._said()
            if said == RECOVERED:
                self._faults += self._channel.receive()
            elif said == ERROR:
                failure = self._channel.receive()
        except ConnectionError:
            self.gone = Fault(kind="worker_died", message=self._epitaph())
        except TimeoutError:
            self.kill()
            self.gone = Fault(kind="timeout", message=f"{self.name} did not answer in time (env.step_timeout_seconds)")
        self._asked = False
        return failure

    def wait_ready(self) -> None:
        """Wait for the last request. Raises `UserError` or `WorkerError` where it failed or the process is gone."""
        failure = self.wait_reply()
        if failure and failure.is_user_error:
            raise UserError(failure.fault.message)
        if fault := failure.fault if failure else self.gone:
            raise WorkerError(fault)

    def receive_spaces(self) -> tuple[spaces.Space[Any], NativeActionSpace]:
        """What it sends when its environments are made."""
        return self._channel.receive()

    def pop_faults(self) -> list[Fault]:
        """What it has survived since this was asked last."""
        faults, self._faults = self._faults, []
        return faults

    def request_shutdown(self) -> None:
        """Tell the process to end."""
        self._channel.close()

    def join(self, deadline: float) -> int:
        """The exit code of the process, which is killed when it is still there at the deadline."""
        try:
            return self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        """End the process at once; its exit code."""
        self._channel.close()
        self._process.kill()
        return self._process.wait()

    def _said(self) -> bytes:
        """The next byte that is an answer."""
        self._channel.set_timeout(max(_SOON, self._deadline - time.monotonic()) if self._step_seconds else None)
        while (said := self._channel.receive_byte()) == RESTARTING:
            self._channel.set_timeout(STARTUP_FACTOR * self._step_seconds or None)
        return said

    def _wants_answer_in(self, seconds: float) -> None:
        self._asked = True
        self._deadline = time.monotonic() + seconds

    def _epitaph(self) -> str:
        code = self.join(time.monotonic() + SECONDS_TO_CLOSE)
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return f"{self.name} {how}"


STEP_SECONDS = 60.0
"""Longest time of a step, unless told otherwise."""

_Spaces = tuple[spaces.Space[Any], NativeActionSpace]


class SubprocVectorEnv:
    """E environments as `Environments`, in W processes that hold contiguous rows.

    Each worker runs `SerialVectorEnv` on its rows, with the seeds that they have there: the same seed gives the same
    trajectories, faults and `UserError`s whatever the number of workers. Anything else that environments raise before
    they have worked arrives as `WorkerError`. Workers begin as fresh Python processes that never run the main script;
    they end with `close`, with this object, or with this process, however it ends.

    A worker that dies, or does not finish a step in `step_seconds` (0: any time), is begun anew at that step or the
    next, and all its rows have failed. Making environments and resetting them may take ten times as long.

    Raises `UserError` where `make` cannot be sent to another process.
    """

    def __init__(
        self,
        make: Callable[[], gymnasium.Env[Any, Any]],
        num_envs: int,
        seed: int,
        workers: int,
        *,
        action_mask_key: str = ACTION_MASK_KEY,
        step_seconds: float = STEP_SECONDS,
    ) -> None:
        if os.name != "posix":
            raise UserError("worker processes need Linux or macOS: set env.workers to 0")
        self.num_envs = num_envs
        self._make, self._seed, self._mask_key, self._step_seconds = make, seed, action_mask_key, step_seconds
        self._started = False
        self._restarts = 0
        self._file = create_memfd()
        self._workers: list[WorkerHandle] = []
        self._stop = weakref.finalize(self, _stop, self._workers, self._file)
        try:
            shares = [self._share(rows, seed) for rows in _contiguous(num_envs, min(workers, num_envs))]
            for share in shares:
                self._workers.append(self._start(share))
            found = [_spaces_of(worker) for worker in self._workers]
            for worker, theirs in zip(self._workers, found, strict=True):
                _check_spaces(worker, theirs, found[0])
        except BaseException:
            self.close()
            raise
        self.observation_space, self.env_action_space = found[0]
        self.action_space = policy_action_space(self.env_action_space)
        self._exchange = map_buffers(self._file, *found[0], num_envs, action_mask_key)

    def reset(
        self, reset_mask: Bool[np.ndarray, "E"], new_task: Bool[np.ndarray, "E"]
    ) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        """See `Environments.reset`."""
        self._exchange.reset_mask[:] = reset_mask
        self._exchange.new_task[:] = new_task
        self._ask(RESET, [worker for worker in self._workers if reset_mask[worker.rows].any()])
        self._started = True
        return self._observation()

    def step(self, action: Shaped[np.ndarray, "E ..."]) -> EpisodeStep:
        """See `Environments.step`."""
        exchange = self._exchange
        exchange.action[:] = action
        self._ask(STEP, self._workers)
        faults = [fault for worker in self._workers for fault in worker.pop_faults()]
        for number, worker in enumerate(self._workers):
            if worker.gone:
                faults += self._replace(number, worker.gone)
        failed = exchange.failed.copy()
        return EpisodeStep(
            reward=exchange.reward.copy(),
            terminated=exchange.terminated.copy(),
            truncated=exchange.truncated.copy(),
            is_transition=~failed,
            observation=self._observation(),
            success=exchange.success.copy() if exchange.has_success.any() else None,
            failed=failed if faults else None,
            faults=faults,
        )

    def close(self) -> None:
        """Close every environment and end the processes; those that do not end within seconds are killed."""
        self._stop()

    def _share(self, rows: slice, seed: int) -> tuple[slice, bytes]:
        share = WorkerSpec(
            make=self._make, num_envs=self.num_envs, rows=rows, seed=seed, action_mask_key=self._mask_key
        )
        try:
            return rows, serialize(share)
        except Exception as problem:
            raise UserError(
                f"what makes the environments cannot be sent to worker processes ({problem}): "
                "set env.num_workers to 0, or let it hold nothing but plain values"
            ) from problem

    def _start(self, share: tuple[slice, bytes]) -> WorkerHandle:
        """A new process, which is making its environments."""
        rows, message = share
        worker = WorkerHandle(rows, self._file, self._step_seconds)
        worker.start(message)
        return worker

    def _replace(self, number: int, gone: Fault) -> list[Fault]:
        """Begin another process in place of one that is gone; what went wrong."""
        worker, faults = self._workers[number], [gone]
        restart_with_retries(partial(self._restart, number), worker.name, faults)
        exchange, rows = self._exchange, worker.rows
        exchange.reward[rows] = 0.0
        exchange.terminated[rows] = exchange.truncated[rows] = exchange.success[rows] = False
        exchange.failed[rows] = True
        return faults

    def _restart(self, number: int) -> None:
        rows = self._workers[number].rows
        self._workers[number].kill()
        self._restarts += 1
        seed = restart_seed(self._seed, rows.start, self._restarts)
        worker = self._workers[number] = self._start(self._share(rows, seed))
        _check_spaces(worker, _spaces_of(worker), (self.observation_space, self.env_action_space))
        self._exchange.reset_mask[rows] = self._exchange.new_task[rows] = True
        worker.request(RESET)
        worker.wait_ready()

    def _ask(self, command: bytes, workers: Sequence[WorkerHandle]) -> None:
        """Wait for all, so that they stay in step, then raise what went wrong first, unless it is survived."""
        for worker in workers:
            worker.request(command)
        failures = [failure for worker in workers if (failure := worker.wait_reply())]
        if failures:
            raise UserError(failures[0].fault.message) if failures[0].is_user_error else WorkerError(failures[0].fault)
        if not self._started and (gone := [worker.gone for worker in workers if worker.gone]):
            raise WorkerError(gone[0])

    def _observation(self) -> dict[str, Shaped[np.ndarray, "E ..."]]:
        exchange = self._exchange
        masked = bool(exchange.has_action_mask.any())
        if masked and not exchange.has_action_mask.all():
            raise missing_mask_error(self._mask_key, int(np.argmin(exchange.has_action_mask)), 0)
        return {name: leaf.copy() for name, leaf in exchange.observation.items() if masked or name != ACTION_MASK_KEY}


def _spaces_of(worker: WorkerHandle) -> _Spaces:
    """The spaces of the environments that a worker has made."""
    worker.wait_ready()
    return worker.receive_spaces()


def _check_spaces(worker: WorkerHandle, found: _Spaces, wanted: _Spaces) -> None:
    if found != wanted:
        raise UserError(f"environment {worker.rows.start} has other spaces than environment 0: make them all alike")


def _stop(workers: Sequence[WorkerHandle], file: int) -> None:
    os.close(file)
    for worker in workers:
        worker.request_shutdown()
    deadline = time.monotonic() + SECONDS_TO_CLOSE
    for worker in workers:
        worker.join(deadline)


def _contiguous(num_envs: int, workers: int) -> list[slice]:
    bounds = [num_envs * worker // workers for worker in range(workers + 1)]
    return [slice(start, stop) for start, stop in itertools.pairwise(bounds)]
