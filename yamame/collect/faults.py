"""What becomes of trials whose environment fails, and how often that may happen."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from yamame.data.step import TrialStep
from yamame.errors import UserError, check_range
from yamame.types import Fault, FaultKind, State

_AT_ONCE, _SECONDS_BETWEEN = 5, 60.0


class RateLimitedPrinter:
    """Says what happens again and again, but not always."""

    def __init__(self, at_once: int = _AT_ONCE) -> None:
        self._at_once = at_once
        self._quiet_until = 0.0

    def print(self, line: str) -> None:
        """Print a line, unless too many were printed of late."""
        now = time.monotonic()
        if not self._at_once and now < self._quiet_until:
            return
        self._at_once = max(0, self._at_once - 1)
        self._quiet_until = now + _SECONDS_BETWEEN
        print(line, file=sys.stderr)


RESTARTS = "faults/restarts"


@dataclass(frozen=True, kw_only=True)
class FaultToleranceConfig:
    """What is done about environments that raise, hang, die, or give NaN, infinity or another shape.

    They are made anew in any case.
    """

    on_fault: Literal["drop", "truncate"] = "drop"
    """What becomes of the trial: forgotten, or kept up to the last sound step, as one that was truncated there."""
    max_restarts: int = 100
    """So many more restarts than trials that came to their end are survived; one more ends the run. 0: the first does,
    after the environment's traceback."""

    def __post_init__(self) -> None:
        check_range(self, "max_restarts", ge=0)


class FaultMonitor:
    """Counts the faults of some environments, tells of them on stderr, and says when they are too many.

    Every trial that comes to its end makes up for one restart. So a run in which more trials succeed than fail goes on
    for ever, and one whose environments always fail, at whatever step, ends soon.

    `elsewhere` takes the faults instead, where another process counts them.
    """

    def __init__(self, config: FaultToleranceConfig, *, forward_to: Callable[[Fault], None] | None = None) -> None:
        self.config = config
        self.finished = 0
        """Trials that came to their end."""
        self._forward_to = forward_to
        self._counts: Counter[FaultKind] = Counter()
        self._excess = 0
        self._has_worked = False
        self._lines = RateLimitedPrinter()

    def record_step(self, step: TrialStep, *, finished: int) -> None:
        """Take note of a step in which so many trials came to their end.

        Raises `UserError` where the faults are too many, and where there was one before any transition was made.
        """
        self.finished += finished
        if self._forward_to is None:
            self.record_faults(step.faults, finished=finished, worked=bool(step.is_transition.any()))
        else:
            for fault in step.faults:
                self._forward_to(fault)

    def record_faults(self, faults: Sequence[Fault], *, finished: int, worked: bool) -> None:
        """As `note`, of what happened anywhere while so many trials came to their end; whether any transition was made.

        Raises as `note` does.
        """
        self._has_worked = self._has_worked or worked
        self._excess = max(0, self._excess - finished) + len(faults)
        self._counts.update(fault.kind for fault in faults)
        if faults and (self._excess > self.config.max_restarts or not self._has_worked):
            raise self._too_many(faults[-1])
        for fault in faults:
            self._lines.print(f"{fault.message} (begun anew; restart {self._counts.total()})")

    def state_dict(self) -> State:
        """What was counted; see `Resumable`."""
        return {"counts": dict(self._counts), "excess": self._excess, "has_worked": self._has_worked}

    def load_state_dict(self, state: State) -> None:
        """Go on counting where `state_dict` was taken."""
        self._counts = Counter(state["counts"])
        self._excess, self._has_worked = state["excess"], state["has_worked"]

    def metrics(self) -> dict[str, float]:
        """`faults/restarts`, and how many there were of each kind that was met, all in this run."""
        kinds = {f"faults/{kind}": float(self._counts[kind]) for kind in get_args(FaultKind) if self._counts[kind]}
        return {RESTARTS: float(self._counts.total()), **kinds}

    def _too_many(self, fault: Fault) -> UserError:
        if fault.traceback:
            print(fault.traceback, file=sys.stderr)
        why = (
            f"fault {self._counts.total()} of this run, with too few whole trials between them: mend the environment, "
            f"or raise fault_tolerance.max_restarts ({self.config.max_restarts})"
            if self._has_worked
            else "no environment has made a sound step: mend it"
        )
        return UserError(f"{fault.message} ({why})")
