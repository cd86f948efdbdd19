"""Lines on stderr: the first few at once, later ones at most one a minute."""

import sys
import time

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
