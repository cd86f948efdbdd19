"""Progress of a run on stderr: a live bar on a terminal, otherwise a plain line every few seconds. Never on stdout."""

import math
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, SupportsFloat

from yamame.metrics.registry import EVAL_RETURN, RETURN, SUCCESS

SPEED_WINDOW_SECONDS = 30.0
_ECHO_COLUMNS = 6
"""Columns left free after the bar, where a terminal echoes ^C: a line that it breaks would leave a second bar."""


class ProgressBar:
    """Shows environment steps, updates, return, success, evaluations, speeds and the time left.

    Speeds are those of the last `SPEED_WINDOW_SECONDS` of this process.

    Args:
        total_env_steps: Environment steps at which the run ends.
        unit: Name of the steps.
        may_end_early: The run ends when its task is solved, so that the time left is an upper bound.
        quiet: Show nothing.
        plain_every_seconds: Time between plain lines.
        clock: Returns seconds.
    """

    def __init__(
        self,
        total_env_steps: int,
        *,
        unit: str = "env steps",
        may_end_early: bool = False,
        quiet: bool = False,
        plain_every_seconds: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total, self._unit, self._quiet = total_env_steps, unit, quiet
        self._left = "left at most" if may_end_early else "left"
        self._plain_every_seconds, self._clock = plain_every_seconds, clock
        self._stream = sys.stderr
        self._history: deque[tuple[float, int, int]] = deque()
        self._shown: dict[str, float] = {}
        self._best_evaluation = -math.inf
        self._last_plain = -math.inf
        self._last_printed = ""
        self._bar: Any = None

    def __enter__(self) -> "ProgressBar":
        if not self._quiet and self._stream.isatty():
            from rich.console import Console
            from rich.live import Live

            # stdout belongs to --json
            console = Console(stderr=True)
            self._bar = Live(
                get_renderable=lambda: self._bar_and_line(console.width - _ECHO_COLUMNS),
                console=console,
                redirect_stdout=False,
                refresh_per_second=4,
            )
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()
        elif self._history:
            self._print_plain()

    def update(self, *, env_steps: int, updates: int, values: Mapping[str, SupportsFloat] | None = None) -> None:
        """Show a new state.

        Return, success and the return of evaluations are taken from `values` by metric key; the last ones are kept. The
        best evaluation is that of this process.
        """
        if self._quiet:
            return
        now = self._clock()
        self._history.append((now, env_steps, updates))
        while len(self._history) > 2 and self._history[1][0] < now - SPEED_WINDOW_SECONDS:
            self._history.popleft()
        self._shown |= {key: float(values[key]) for key in (RETURN, SUCCESS, EVAL_RETURN) if values and key in values}
        self._best_evaluation = max(self._best_evaluation, self._shown.get(EVAL_RETURN, -math.inf))
        if self._bar is None and now - self._last_plain >= self._plain_every_seconds:
            self._last_plain = now
            self._print_plain()

    def _print_plain(self) -> None:
        line = self._line()
        if line != self._last_printed:
            print(line, file=self._stream, flush=True)
        self._last_printed = line

    def _bar_and_line(self, columns: int) -> Any:
        from rich.constrain import Constrain
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        done = self._history[-1][1] if self._history else 0
        rows = Table.grid()
        rows.add_row(ProgressBar(total=max(1, self._total), completed=done, width=60))
        rows.add_row(Text(self._line()))
        return Constrain(rows, max(1, columns))

    def _line(self) -> str:
        if not self._history:
            return "starting"
        (start, first_steps, first_updates), (now, env_steps, updates) = self._history[0], self._history[-1]
        seconds = now - start
        percent = min(100.0, 100 * env_steps / max(1, self._total))  # runs end with a whole vector step
        parts = [f"{percent:3.0f} %", f"{env_steps:,} / {self._total:,} {self._unit}", f"{updates:,} updates"]
        if RETURN in self._shown:
            parts.append(f"return {self._shown[RETURN]:.3g}")
        if SUCCESS in self._shown:
            parts.append(f"success {100 * self._shown[SUCCESS]:.0f} %")
        if EVAL_RETURN in self._shown:
            parts.append(f"evaluation {self._shown[EVAL_RETURN]:.3g} (best {self._best_evaluation:.3g})")
        if seconds > 0 and updates > first_updates:
            parts.append(f"{(updates - first_updates) / seconds:,.1f} updates/s")
        if seconds > 0 and env_steps > first_steps:
            steps_per_second = (env_steps - first_steps) / seconds
            left = max(0, self._total - env_steps) / steps_per_second
            parts.append(f"{steps_per_second:,.0f} steps/s  {_duration(left)} {self._left}")
        return "  ".join(parts)


class TrialCounter:
    """Prints the number of finished trials of an evaluation on stderr every few seconds, and nothing if it is short."""

    def __init__(self, total: int, *, every_seconds: float = 5.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._total, self._every_seconds, self._clock = total, every_seconds, clock
        self._last_printed = clock()

    def update(self, finished: int) -> None:
        """Print the number of finished trials, if a line is due."""
        if self._clock() - self._last_printed >= self._every_seconds:
            self._last_printed = self._clock()
            print(f"{finished:,} / {self._total:,} trials", file=sys.stderr, flush=True)


def _duration(seconds: float) -> str:
    hours, minutes = divmod(math.ceil(seconds / 60), 60)
    if seconds < 60:
        return f"{math.ceil(seconds)} s"
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"
