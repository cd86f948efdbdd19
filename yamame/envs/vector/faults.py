"""Faults of environments: exceptions, records and restarts."""

import time
import traceback
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from yamame.errors import UserError
from yamame.types import Fault, FaultKind

RETRY_DELAYS_SECONDS = (0.0, 1.0, 5.0)
"""Pause before each attempt to restart: a port, a file or a license may take a moment to become free."""

_T = TypeVar("_T")


class InvalidEnvOutputError(UserError):
    """An environment returned invalid values: a user error at the start of a run, a recoverable fault later."""

    def __init__(self, kind: FaultKind, message: str) -> None:
        super().__init__(message)
        self.kind: FaultKind = kind


class WorkerError(RuntimeError):
    """A worker process died or failed."""

    def __init__(self, fault: Fault) -> None:
        super().__init__("\n\n".join(filter(None, (fault.message, fault.traceback))))
        self.fault = fault


def is_recoverable(error: Exception) -> bool:
    """Return whether a restart may help: not after a `UserError`, which only the user can fix."""
    return isinstance(error, InvalidEnvOutputError) or not isinstance(error, UserError)


def fault_from_exception(error: Exception, name: str) -> Fault:
    """Return the record of an exception raised by the environment or environments called `name`."""
    if isinstance(error, WorkerError):
        return error.fault
    if isinstance(error, InvalidEnvOutputError):
        message = str(error) if str(error).startswith(name) else f"{name}: {error}"
        return Fault(kind=error.kind, message=message)
    trace = "".join(traceback.format_exception(error))
    first_line = next(iter(str(error).splitlines()), "")
    return Fault(kind="exception", message=f"{name} raised {type(error).__name__}: {first_line}", traceback=trace)


def restart_with_retries(restart: Callable[[], _T], name: str, faults: list[Fault]) -> _T:
    """Return the result of `restart`, which is called until it succeeds, at most `len(RETRY_DELAYS_SECONDS)` times.

    Args:
        restart: Makes and resets the environment or environments.
        name: Their name in messages.
        faults: Failed attempts are appended here.

    Raises:
        UserError: If no attempt succeeds, or as soon as an attempt raises an error that is not recoverable.
    """
    for delay in RETRY_DELAYS_SECONDS:
        time.sleep(delay)
        try:
            return restart()
        except Exception as error:
            if not is_recoverable(error):
                raise
            faults.append(fault_from_exception(error, name))
    last = faults[-1]
    raise UserError(
        f"{name} failed and could not be restarted after {len(RETRY_DELAYS_SECONDS)} attempts: fix the environment "
        f"({last.message})\n{last.traceback}"
    )


def restart_seed(seed: int, row: int, restarts: int) -> int:
    """Return the seed of the replacement of environment `row` after `restarts` restarts. `seed`: of all of them."""
    return int(np.random.SeedSequence(seed, spawn_key=(row, restarts)).generate_state(1)[0])
