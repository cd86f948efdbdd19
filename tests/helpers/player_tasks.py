"""What a player process is asked to do, well or badly."""

import os
import sys
import time
from typing import Any

from yamame.errors import UserError


def double(number: int) -> int:
    return 2 * number


def hang() -> None:
    time.sleep(1_000)


def record_and_hang(query: Any, key: str) -> None:
    """In the place of a trial: write the process id beside the run, and hang."""
    (query.directory.parent / "hangs").write_text(str(os.getpid()))
    hang()


def die() -> None:
    os._exit(3)


def leave() -> None:
    sys.exit(0)


def fail() -> None:
    raise ValueError("no\nsecond line")


def refuse() -> None:
    raise UserError("there is no such instruction")
