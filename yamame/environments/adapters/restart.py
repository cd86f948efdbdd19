"""What is survived, and how what has failed is begun again."""

import time
import traceback
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from yamame.records.errors import UserError
from yamame.records.fault import Fault, FaultKind

RETRY_DELAYS_SECONDS = (0.0, 1.0, 5.0)
"""Before each try to begin again: a port, a file or a licence may take a moment to become free."""

_T = TypeVar("_T")


class InvalidEnvOutputError(UserError):
    """An environment gave what nobody can use: the user's to mend at the start of a run, survived later."""

    def __init__(self, kind: FaultKind, message: str) -> None:
        super().__init__(message)
        self.kind: FaultKind = kind


class WorkerError(RuntimeError):
    """A worker process is gone, or what it does failed; `fault` says how."""

    def __init__(self, fault: Fault) -> None:
        super().__init__("\n\n".join(filter(None, (fault.message, fault.traceback))))
        self.fault = fault


def is_recoverable(error: Exception) -> bool:
    """Whether making anew may help: not where the message is for the user, who has to mend something."""
    return isinstance(error, InvalidEnvOutputError) or not isinstance(error, UserError)


def fault_from_exception(error: Exception, who: str) -> Fault:
    """An exception of the environment or environments `who` as a record."""
    if isinstance(error, WorkerError):
        return error.fault
    if isinstance(error, InvalidEnvOutputError):
        message = str(error) if str(error).startswith(who) else f"{who}: {error}"
        return Fault(kind=error.kind, message=message)
    trace = "".join(traceback.format_exception(error))
    first_line = next(iter(str(error).splitlines()), "")
    return Fault(kind="exception", message=f"{who} raised {type(error).__name__}: {first_line}", traceback=trace)


def restart_with_retries(begin: Callable[[], _T], who: str, faults: list[Fault]) -> _T:
    """What `begin` gives, which is tried a few times; each failure is added to `faults`.

    Raises `UserError` when no try succeeds, and what `begin` raises for the user at once.
    """
    for pause in RETRY_DELAYS_SECONDS:
        time.sleep(pause)
        try:
            return begin()
        except Exception as error:
            if not is_recoverable(error):
                raise
            faults.append(fault_from_exception(error, who))
    last = faults[-1]
    raise UserError(
        f"{who} failed and could not be begun again in {len(RETRY_DELAYS_SECONDS)} tries: mend the environment "
        f"({last.message})\n{last.traceback}"
    )


def restart_seed(seed: int, row: int, restarts: int) -> int:
    """The seed of what takes the place of row `row` of environments of `seed` after so many `restarts`."""
    return int(np.random.SeedSequence(seed, spawn_key=(row, restarts)).generate_state(1)[0])
