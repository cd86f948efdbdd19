"""Fault tolerance: what happens to trials whose environment fails, and how many faults end the run."""

import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from yamame.errors import UserError, check_range
from yamame.types import Fault, FaultKind, State

_INTERVAL_SECONDS = 60.0


class RateLimitedPrinter:
    """Prints up to `burst` lines to stderr without limit, then one per minute; drops the others."""

    def __init__(self, burst: int = 5) -> None:
        self._burst = burst
        self._quiet_until = 0.0

    def print(self, line: str) -> None:
        """Print or drop a line."""
        now = time.monotonic()
        if not self._burst and now < self._quiet_until:
            return
        self._burst = max(0, self._burst - 1)
        self._quiet_until = now + _INTERVAL_SECONDS
        print(line, file=sys.stderr)


RESTARTS = "faults/restarts"
_NOTABLE = 0.05
"""Fraction of failed trials from which on a line says so."""


def print_failed_trials(what: str, *, failed: float, completed: int) -> None:
    """Print a line if so many trials of a run or an evaluation failed that its results may be wrong.

    Args:
        what: The run or evaluation.
        failed: Number of faults.
        completed: Number of trials that completed.
    """
    if failed and failed >= _NOTABLE * (failed + completed):
        print(
            f"{what}: {failed:,.0f} trials failed beside {completed:,} that completed, on which alone it rests: if "
            "they fail by what the agent does, such as when it succeeds, it is wrong; fix the environment "
            "(fault_tolerance.max_restarts=0 stops at the first fault)",
            file=sys.stderr,
        )


@dataclass(frozen=True, kw_only=True)
class FaultToleranceConfig:
    """Handling of environments that raise, hang, die, or return NaN, infinity or no valid step. They are restarted."""

    on_fault: Literal["drop", "truncate"] = "drop"
    """What to do with the trial: drop it, or truncate it after the last valid step."""
    max_restarts: int = 100
    """Abort when restarts exceed completed trials by more than this. 0: abort at the first fault."""

    def __post_init__(self) -> None:
        check_range(self, "max_restarts", ge=0)


class FaultMonitor:
    """Counts and prints the faults of environments, and raises if there are too many.

    Each completed trial offsets one restart: a run in which more trials complete than fail never aborts, and one whose
    environments always fail aborts soon.
    """

    def __init__(self, config: FaultToleranceConfig) -> None:
        self.config = config
        self._counts: Counter[FaultKind] = Counter()
        self._excess = 0
        self._has_worked = False
        self._printer = RateLimitedPrinter()

    def record_faults(self, faults: Sequence[Fault], *, finished: int, worked: bool) -> None:
        """Record faults of this or another process.

        Args:
            faults: Since the last call.
            finished: Trials that completed since the last call.
            worked: Whether any transition was made since the last call.

        Raises:
            UserError: If there are too many faults, or if one comes before the first transition.
        """
        self._has_worked = self._has_worked or worked
        self._excess = max(0, self._excess - finished) + len(faults)
        self._counts.update(fault.kind for fault in faults)
        if faults and (self._excess > self.config.max_restarts or not self._has_worked):
            shown = faults[-1 if self._has_worked else 0]
            if shown.traceback:
                print(shown.traceback, file=sys.stderr)
            reason = (
                f"fault {self._counts.total()} of this run, with too few completed trials in between: fix the "
                f"environment, or raise fault_tolerance.max_restarts ({self.config.max_restarts})"
                if self._has_worked
                else "no environment has made a valid step: fix it"
            )
            raise UserError(f"{shown.message} ({reason})")
        for fault in faults:
            self._printer.print(f"{fault.message} (restart {self._counts.total()})")

    def state_dict(self) -> State:
        """Return the counts."""
        return {"counts": dict(self._counts), "excess": self._excess, "has_worked": self._has_worked}

    def load_state_dict(self, state: State) -> None:
        """Restore the counts."""
        self._counts = Counter(state["counts"])
        self._excess, self._has_worked = state["excess"], state["has_worked"]

    def metrics(self) -> dict[str, float]:
        """Return `faults/restarts`, and the number of faults of each kind that occurred in this run."""
        kinds = {f"faults/{kind}": float(self._counts[kind]) for kind in get_args(FaultKind) if self._counts[kind]}
        return {RESTARTS: float(self._counts.total()), **kinds}
