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
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from jaxtyping import Bool, Shaped

from yamame.environments.adapters.action_masks import missing_mask
from yamame.environments.adapters.actions import policy_action_space
from yamame.environments.adapters.channel import Channel, packed
from yamame.environments.adapters.exchange import map_exchange, nameless_file
from yamame.environments.adapters.worker_process import FAILED, RESET, STEP, Failure, Share
from yamame.records.action_spaces import MASK_LEAF, NativeActionSpace
from yamame.records.errors import UserError
from yamame.records.step import EpisodeStep

_BEGIN = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from yamame.environments.adapters.worker_process import serve
serve(int(sys.argv[2]), int(sys.argv[3]))
"""
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_SECONDS_TO_CLOSE = 3.0


class WorkerError(RuntimeError):
    """An environment raised, or its process died; the message has the row and the traceback."""


class WorkerEnvironments:
    """E environments as `Environments`, in W processes that hold contiguous rows.

    Each worker runs `SerialEnvironments` on its rows, with the seeds that they have there: the same seed gives the same
    trajectories and the same `UserError`s whatever the number of workers. Anything else that an environment raises
    arrives as `WorkerError`. Workers begin as fresh Python processes that never run the main script; they end with
    `close`, with this object, or with this process, however it ends.

    Raises `UserError` where `make` cannot be sent to another process.
    """

    def __init__(
        self,
        make: Callable[[], gymnasium.Env[Any, Any]],
        num_envs: int,
        seed: int,
        workers: int,
        *,
        mask_key: str = MASK_LEAF,
    ) -> None:
        rows_of = _contiguous(num_envs, min(workers, num_envs))
        try:
            shares = [
                packed(Share(make=make, num_envs=num_envs, rows=rows, seed=seed, mask_key=mask_key)) for rows in rows_of
            ]
        except Exception as problem:
            raise UserError(
                f"what makes the environments cannot be sent to worker processes ({problem}): "
                "set env.workers to 0, or let it hold nothing but plain values"
            ) from problem
        file = nameless_file()
        try:
            self._workers = [_Worker(rows, file) for rows in rows_of]
            self._stop = weakref.finalize(self, _stop, self._workers)
            spaces_of = self._begin(shares)
            self.num_envs = num_envs
            self.observation_space, self.native_action_space = spaces_of[0]
            self.action_space = policy_action_space(self.native_action_space)
            self._mask_key = mask_key
            self._exchange = map_exchange(file, self.observation_space, self.native_action_space, num_envs, mask_key)
        finally:
            os.close(file)

    def reset(
        self, mask: Bool[np.ndarray, "E"], new_task: Bool[np.ndarray, "E"]
    ) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        """See `Environments.reset`."""
        self._exchange.mask[:] = mask
        self._exchange.new_task[:] = new_task
        self._ask(RESET, [worker for worker in self._workers if mask[worker.rows].any()])
        return self._observation()

    def step(self, action: Shaped[np.ndarray, "E ..."]) -> EpisodeStep:
        """See `Environments.step`."""
        exchange = self._exchange
        exchange.action[:] = action
        self._ask(STEP, self._workers)
        return EpisodeStep(
            reward=exchange.reward.copy(),
            terminated=exchange.terminated.copy(),
            truncated=exchange.truncated.copy(),
            live=np.ones(self.num_envs, np.bool_),
            observation=self._observation(),
            success=exchange.success.copy() if exchange.announces_success.any() else None,
        )

    def close(self) -> None:
        """Close every environment and end the processes; those that do not end within seconds are killed."""
        self._stop()

    def _begin(self, shares: Sequence[bytes]) -> list[tuple[spaces.Space[Any], NativeActionSpace]]:
        try:
            for worker, share in zip(self._workers, shares, strict=True):
                worker.begin(share)
            self._await(self._workers)
            spaces_of = [worker.receive_spaces() for worker in self._workers]
            for worker, found in zip(self._workers, spaces_of, strict=True):
                if found != spaces_of[0]:
                    row = worker.rows.start
                    raise UserError(f"environment {row} has other spaces than environment 0: make them all alike")
        except BaseException:
            self.close()
            raise
        return spaces_of

    def _ask(self, command: bytes, workers: Sequence["_Worker"]) -> None:
        for worker in workers:
            worker.ask(command)
        self._await(workers)

    def _await(self, workers: Sequence["_Worker"]) -> None:
        """Wait for all, so that they stay in step, then raise what went wrong first."""
        failures = [failure for worker in workers if (failure := worker.answer())]
        if failures:
            raise (UserError if failures[0].for_user else WorkerError)(failures[0].message)

    def _observation(self) -> dict[str, Shaped[np.ndarray, "E ..."]]:
        exchange = self._exchange
        masked = bool(exchange.masked.any())
        if masked and not exchange.masked.all():
            raise missing_mask(self._mask_key, int(np.argmin(exchange.masked)), 0)
        return {name: leaf.copy() for name, leaf in exchange.observation.items() if masked or name != MASK_LEAF}


class _Worker:
    """One process, as its parent sees it."""

    def __init__(self, rows: slice, memory_file: int) -> None:
        self.rows = rows
        self._asked = False
        ours, theirs = socket.socketpair()
        self._channel = Channel(ours)
        files = theirs.fileno(), memory_file
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BEGIN, json.dumps([str(path) for path in sys.path]), *map(str, files)],
                stdin=subprocess.DEVNULL,
                stdout=2,  # what environments print must not mix with results
                env=os.environ | _ONE_THREAD,
                pass_fds=files,
                process_group=0,  # Ctrl-C in the terminal is for the parent
            )

    def begin(self, share: bytes) -> None:
        self._asked = True
        with suppress(ConnectionError):  # `answer` tells
            self._channel.send(share)

    def ask(self, command: bytes) -> None:
        if self._asked:  # an exception from a signal handler left an earlier answer behind
            self.answer()
        self._asked = True
        with suppress(ConnectionError):
            self._channel.signal(command)

    def answer(self) -> Failure | None:
        """Wait for what became of the last request; None if all is well."""
        try:
            failure: Failure | None = self._channel.receive() if self._channel.wait() == FAILED else None
        except ConnectionError:
            failure = Failure(message=self._epitaph())
        self._asked = False
        return failure

    def receive_spaces(self) -> tuple[spaces.Space[Any], NativeActionSpace]:
        return self._channel.receive()

    def end(self) -> None:
        """Tell the process to end."""
        self._channel.close()

    def join(self, deadline: float) -> int:
        """The exit code of the process, which is killed when it is still there at the deadline."""
        try:
            return self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def _epitaph(self) -> str:
        code = self.join(time.monotonic() + _SECONDS_TO_CLOSE)
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return f"the worker process of environments {self.rows.start} to {self.rows.stop - 1} {how}"


def _stop(workers: Sequence[_Worker]) -> None:
    for worker in workers:
        worker.end()
    deadline = time.monotonic() + _SECONDS_TO_CLOSE
    for worker in workers:
        worker.join(deadline)


def _contiguous(num_envs: int, workers: int) -> list[slice]:
    bounds = [num_envs * worker // workers for worker in range(workers + 1)]
    return [slice(start, stop) for start, stop in itertools.pairwise(bounds)]
