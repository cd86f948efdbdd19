"""Single environments in worker processes, several in each, answering through shared memory."""

import itertools
import os
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from jaxtyping import Bool, Shaped

from yamame.environments.adapters.action_masks import missing_mask_error
from yamame.environments.adapters.actions import policy_action_space
from yamame.environments.adapters.channel import serialize
from yamame.environments.adapters.exchange import map_buffers, create_memfd
from yamame.environments.adapters.restart import WorkerError, restart_with_retries, restart_seed
from yamame.environments.adapters.worker import SECONDS_TO_CLOSE, WorkerHandle
from yamame.environments.adapters.worker_process import RESET, STEP, WorkerSpec
from yamame.records.action_spaces import ACTION_MASK_KEY, NativeActionSpace
from yamame.records.errors import UserError
from yamame.records.fault import Fault
from yamame.records.step import EpisodeStep

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
        self._exchange.sample_task[:] = new_task
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
        share = WorkerSpec(make=self._make, num_envs=self.num_envs, rows=rows, seed=seed, action_mask_key=self._mask_key)
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
        self._exchange.reset_mask[rows] = self._exchange.sample_task[rows] = True
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
