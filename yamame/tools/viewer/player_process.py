"""A child process in which environments play: one that hangs or crashes does not stop the server."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from typing import Any, TypeVar

from yamame.config.named_code import caller_modules
from yamame.errors import UserError, describe_error
from yamame.types import Connection

_T = TypeVar("_T")

RESTART_ADVICE = "restart yamame view --import {}"
"""What messages say to do about a module that is not named."""


class PlayerProcess:
    """Calls functions in a child process, which starts at the first call and again after a failure.

    Calls must not overlap.

    Args:
        modules: Names of the modules that configs may name, as in `caller_modules`.
        timeout_seconds: Maximum time of a call.
    """

    def __init__(self, modules: Sequence[str], *, timeout_seconds: float) -> None:
        self._modules, self._timeout = tuple(modules), timeout_seconds
        self._process: Any = None
        self._connection: Connection | None = None

    def call(self, function: Callable[..., _T], *arguments: Any) -> _T:
        """Return `function(*arguments)`; everything must be picklable.

        Raises:
            UserError: If the function raises, takes too long or ends the process.
        """
        connection = self._start()
        try:
            connection.send((function, arguments))
            if not connection.poll(self._timeout):
                self.close()
                raise UserError(f"this trial cannot be played: its environment takes more than {self._timeout:g} s")
            succeeded, result = connection.recv()
        except (EOFError, OSError) as error:
            code = self.close()
            raise UserError(f"this trial cannot be played: its environment ended the process (code {code})") from error
        if not succeeded:
            raise UserError(result)
        value: _T = result
        return value

    def close(self) -> int | None:
        """Kill the process; return its exit code, or None if there was none."""
        process, self._process = self._process, None
        if process is None:
            return None
        process.join(timeout=0.2)  # it may have ended, with a code of its own
        process.kill()
        process.join()
        if self._connection is not None:
            self._connection.close()
        code: int | None = process.exitcode
        return code

    def _start(self) -> Connection:
        if self._process is None or not self._process.is_alive() or self._connection is None:
            self.close()
            context = multiprocessing.get_context("spawn")
            self._connection, theirs = context.Pipe()
            self._process = context.Process(target=_main, args=(theirs, self._modules), name="player", daemon=True)
            self._process.start()
            theirs.close()
        return self._connection


def _main(connection: Connection, modules: Sequence[str]) -> None:
    """Call functions until the connection is closed; exit with the parent, whatever an environment does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal, for the server
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    with caller_modules(modules, advice=RESTART_ADVICE):
        while True:
            try:
                function, arguments = connection.recv()
            except EOFError:
                return
            try:
                reply = True, function(*arguments)
            except UserError as error:
                reply = False, str(error)
            except (Exception, SystemExit) as error:  # third-party environments may raise anything
                reply = False, f"this trial cannot be played: {describe_error(error)}"
            connection.send(reply)


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
