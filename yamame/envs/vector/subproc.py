"""Gymnasium environments in worker processes, several per process, with results in shared memory."""

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
from typing_extensions import override

from yamame.data.actions import ACTION_MASK_KEY, NativeActionSpace, policy_action_space
from yamame.data.step import VectorStep
from yamame.envs.base import EpisodeVectorEnv
from yamame.envs.vector.action_masks import missing_mask_error
from yamame.envs.vector.faults import WorkerError, restart_seed, restart_with_retries
from yamame.envs.vector.worker import (
    ERROR,
    RECOVERED,
    RESET,
    RESTARTING,
    STEP,
    Channel,
    WorkerSpec,
    create_memfd,
    map_buffers,
    serialize,
)
from yamame.errors import UserError
from yamame.types import Fault

STEP_TIMEOUT_SECONDS = 60.0
STARTUP_FACTOR = 10
"""Making environments and resetting them may take this many times longer than a step."""
CLOSE_TIMEOUT_SECONDS = 3.0
_WORKER_CODE = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from yamame.envs.vector.worker import worker_main
worker_main(int(sys.argv[2]), int(sys.argv[3]))
"""
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_MIN_TIMEOUT_SECONDS = 1e-3

_Spaces = tuple[spaces.Space[Any], NativeActionSpace]


class WorkerHandle:
    """Process that steps the environments `rows`.

    Args:
        rows: Indices of the environments.
        spec: Serialized `WorkerSpec`, by which the process makes its environments.
        memory_file: Descriptor of the file with the shared buffers.
        step_timeout_seconds: Timeout of a step; 0: none.
    """

    def __init__(self, rows: slice, spec: bytes, memory_file: int, step_timeout_seconds: float) -> None:
        self.rows = rows
        self.exit_fault: Fault | None = None
        """How the process ended; None while it runs."""
        self._step_timeout = step_timeout_seconds
        self._deadline = 0.0
        self._is_busy = False
        self._faults: list[Fault] = []
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours)
        files = theirs.fileno(), memory_file
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _WORKER_CODE, json.dumps([str(path) for path in sys.path]), *map(str, files)],
                stdin=subprocess.DEVNULL,
                stdout=2,  # output of environments must not mix with results
                env=os.environ | _ONE_THREAD,
                pass_fds=files,
                process_group=0,  # Ctrl-C in the terminal interrupts the parent only
            )
        self._start_timer(STARTUP_FACTOR * self._step_timeout)
        with suppress(ConnectionError):  # reported by `wait_reply`
            self.channel.send(spec)

    @property
    def name(self) -> str:
        """Name of the process in messages."""
        return f"the worker process of environments {self.rows.start} to {self.rows.stop - 1}"

    def request(self, command: bytes) -> None:
        """Send a command whose arguments are in the shared buffers."""
        if self.exit_fault:  # reported by the next step
            return
        if self._is_busy:  # an exception from a signal handler left an earlier reply unread
            self.wait_reply()
        self._start_timer(self._step_timeout if command == STEP else STARTUP_FACTOR * self._step_timeout)
        with suppress(ConnectionError):
            self.channel.send_byte(command)

    def wait_reply(self) -> UserError | WorkerError | None:
        """Return the error of the last command; None if it succeeded or the process ended (see `exit_fault`)."""
        error: UserError | WorkerError | None = None
        try:
            reply = b"" if self.exit_fault else self._receive_reply()
            if reply == RECOVERED:
                self._faults += self.channel.receive()
            elif reply == ERROR:
                error = self.channel.receive()
        except ConnectionError:
            self.exit_fault = Fault(kind="worker_died", message=self._describe_exit())
        except TimeoutError:
            self.kill()
            message = f"{self.name} did not reply in time (env.step_timeout_seconds)"
            self.exit_fault = Fault(kind="timeout", message=message)
        self._is_busy = False
        return error

    def wait_ready(self) -> None:
        """Wait for the last command. Raises `UserError` or `WorkerError` if it failed or the process ended."""
        if error := self.wait_reply():
            raise error
        if self.exit_fault:
            raise WorkerError(self.exit_fault)

    def receive_spaces(self) -> _Spaces:
        """Return the spaces of the environments, which the process sends when they are made."""
        self.wait_ready()
        return self.channel.receive()

    def pop_faults(self) -> list[Fault]:
        """Return the faults that the process recovered from since the last call."""
        faults, self._faults = self._faults, []
        return faults

    def join(self, deadline: float) -> int:
        """Return the exit code of the process, which is killed if it still runs at the deadline."""
        try:
            return self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        """Kill the process and return its exit code."""
        self.channel.close()
        self._process.kill()
        return self._process.wait()

    def _receive_reply(self) -> bytes:
        """Return the next reply but RESTARTING, which extends the timeout."""
        remaining = max(_MIN_TIMEOUT_SECONDS, self._deadline - time.monotonic())
        self.channel.set_timeout(remaining if self._step_timeout else None)
        while (reply := self.channel.receive_byte()) == RESTARTING:
            self.channel.set_timeout(STARTUP_FACTOR * self._step_timeout or None)
        return reply

    def _start_timer(self, seconds: float) -> None:
        self._is_busy = True
        self._deadline = time.monotonic() + seconds

    def _describe_exit(self) -> str:
        code = self.join(time.monotonic() + CLOSE_TIMEOUT_SECONDS)
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return f"{self.name} {how}"


class SubprocVectorEnv(EpisodeVectorEnv):
    """`EpisodeVectorEnv` over E environments in W processes with contiguous rows.

    Each worker runs a `SerialVectorEnv` with the seeds of its rows: the same seed gives the same trajectories, faults
    and `UserError`s whatever the number of workers. Other errors before the first step raise `WorkerError`. Workers are
    new Python processes that never run the main script; they end with `close`, with this object or with this process.

    A worker that dies, or does not finish a step in time, is replaced at that step or the next, and all its rows have
    failed.

    Args:
        env_fn: Makes one environment.
        num_envs: E.
        seed: Seed of all environments.
        num_workers: W; at most E are used.
        action_mask_key: See `ActionMaskExtractor`.
        step_timeout_seconds: Timeout of a step, 0: none. Making and resetting environments may take ten times as long.

    Raises:
        UserError: If `env_fn` cannot be sent to another process, or the system is not POSIX.
    """

    def __init__(
        self,
        env_fn: Callable[[], gymnasium.Env[Any, Any]],
        num_envs: int,
        seed: int,
        num_workers: int,
        *,
        action_mask_key: str = ACTION_MASK_KEY,
        step_timeout_seconds: float = STEP_TIMEOUT_SECONDS,
    ) -> None:
        if os.name != "posix":
            raise UserError("worker processes need Linux or macOS: set env.num_workers to 0")
        self.num_envs = num_envs
        self._env_fn, self._seed, self._mask_key = env_fn, seed, action_mask_key
        self._step_timeout = step_timeout_seconds
        self._started = False
        self._restarts = 0
        self._file = create_memfd()
        self._workers: list[WorkerHandle] = []
        self._stop = weakref.finalize(self, _stop, self._workers, self._file)
        try:
            num_workers = min(num_workers, num_envs)
            bounds = [num_envs * worker // num_workers for worker in range(num_workers + 1)]
            row_slices = [slice(start, stop) for start, stop in itertools.pairwise(bounds)]
            specs = [self._serialize_spec(rows, seed) for rows in row_slices]  # before any process starts
            for rows, spec in zip(row_slices, specs, strict=True):
                self._workers.append(WorkerHandle(rows, spec, self._file, step_timeout_seconds))
            found = [worker.receive_spaces() for worker in self._workers]
            for worker, worker_spaces in zip(self._workers, found, strict=True):
                _check_spaces(worker, worker_spaces, found[0])
        except BaseException:
            self.close()
            raise
        self.observation_space, self.env_action_space = found[0]
        self.action_space = policy_action_space(self.env_action_space)
        self._buffers = map_buffers(self._file, *found[0], num_envs, action_mask_key)

    @override
    def reset(
        self, reset_mask: Bool[np.ndarray, "E"], new_task: Bool[np.ndarray, "E"]
    ) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        self._buffers.reset_mask[:] = reset_mask
        self._buffers.new_task[:] = new_task
        self._run(RESET, [worker for worker in self._workers if reset_mask[worker.rows].any()])
        self._started = True
        return self._copy_observation()

    @override
    def step(self, action: Shaped[np.ndarray, "E ..."]) -> VectorStep:
        buffers = self._buffers
        buffers.action[:] = action
        self._run(STEP, self._workers)
        faults = [fault for worker in self._workers for fault in worker.pop_faults()]
        for index, worker in enumerate(self._workers):
            if worker.exit_fault:
                faults += self._replace(index, worker.exit_fault)
        failed = buffers.failed.copy()
        observation = self._copy_observation()
        return VectorStep(
            reward=buffers.reward.copy(),
            terminated=buffers.terminated.copy(),
            truncated=buffers.truncated.copy(),
            is_transition=~failed,
            final_observation=observation,
            observation=observation,
            episode_start=failed,
            success=buffers.success.copy() if buffers.has_success.any() else None,
            failed=failed if faults else None,
            faults=faults,
        )

    @override
    def close(self) -> None:
        self._stop()

    def _serialize_spec(self, rows: slice, seed: int) -> bytes:
        spec = WorkerSpec(
            env_fn=self._env_fn, num_envs=self.num_envs, rows=rows, seed=seed, action_mask_key=self._mask_key
        )
        try:
            return serialize(spec)
        except Exception as error:
            raise UserError(
                f"env_fn cannot be sent to worker processes ({error}): "
                "set env.num_workers to 0, or let env_fn hold nothing but plain values"
            ) from error

    def _replace(self, index: int, exit_fault: Fault) -> list[Fault]:
        """Replace a worker that ended; return the faults."""
        worker, faults = self._workers[index], [exit_fault]
        restart_with_retries(partial(self._restart, index), worker.name, faults)
        buffers, rows = self._buffers, worker.rows
        buffers.reward[rows] = 0.0
        buffers.terminated[rows] = buffers.truncated[rows] = buffers.success[rows] = False
        buffers.failed[rows] = True
        return faults

    def _restart(self, index: int) -> None:
        rows = self._workers[index].rows
        self._workers[index].kill()
        self._restarts += 1
        seed = restart_seed(self._seed, rows.start, self._restarts)
        spec = self._serialize_spec(rows, seed)
        worker = self._workers[index] = WorkerHandle(rows, spec, self._file, self._step_timeout)
        _check_spaces(worker, worker.receive_spaces(), (self.observation_space, self.env_action_space))
        self._buffers.reset_mask[rows] = self._buffers.new_task[rows] = True
        worker.request(RESET)
        worker.wait_ready()

    def _run(self, command: bytes, workers: Sequence[WorkerHandle]) -> None:
        """Run a command in all these workers, wait for all of them, then raise the first error."""
        for worker in workers:
            worker.request(command)
        errors = [error for worker in workers if (error := worker.wait_reply())]
        if errors:
            raise errors[0]
        if not self._started and (exited := [worker.exit_fault for worker in workers if worker.exit_fault]):
            raise WorkerError(exited[0])

    def _copy_observation(self) -> dict[str, Shaped[np.ndarray, "E ..."]]:
        buffers = self._buffers
        has_masks = bool(buffers.has_action_mask.any())
        if has_masks and not buffers.has_action_mask.all():
            raise missing_mask_error(self._mask_key, int(np.argmin(buffers.has_action_mask)), 0)
        return {name: leaf.copy() for name, leaf in buffers.observation.items() if has_masks or name != ACTION_MASK_KEY}


def _check_spaces(worker: WorkerHandle, found: _Spaces, expected: _Spaces) -> None:
    if found != expected:
        raise UserError(f"environment {worker.rows.start} has other spaces than environment 0: make them all alike")


def _stop(workers: Sequence[WorkerHandle], file: int) -> None:
    """Close every environment and end the processes; kill those that do not end in time."""
    os.close(file)
    for worker in workers:
        worker.channel.close()  # ends the process
    deadline = time.monotonic() + CLOSE_TIMEOUT_SECONDS
    for worker in workers:
        worker.join(deadline)
