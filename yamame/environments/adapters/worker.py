"""One worker process, as its parent sees it."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

from gymnasium import spaces

from yamame.environments.adapters.channel import Channel
from yamame.environments.adapters.restart import WorkerError
from yamame.environments.adapters.worker_process import RESTARTING, ERROR, RECOVERED, STEP, RemoteError
from yamame.records.action_spaces import NativeActionSpace
from yamame.records.errors import UserError
from yamame.records.fault import Fault

SECONDS_TO_CLOSE = 3.0
STARTUP_FACTOR = 10
"""So many times as long as a step may it take to make environments, and to reset them."""
_START = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from yamame.environments.adapters.worker_process import worker_main
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
