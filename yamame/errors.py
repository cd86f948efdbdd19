"""The exceptions for mistakes that a user can mend."""

import errno
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the operating system says where a disk or a quota is full."""


class UserError(Exception):
    """Something the user gave us is wrong: the message is one line that says what, and what to do about it.

    The command line prints the message and exits with code 2.
    """


class RunFailedError(Exception):
    """A process of a run died: the message is one line that says which one and how to go on.

    The command line prints the message and exits with code 1.
    """


class ConfigFieldError(UserError):
    """A field of a config holds what it may not; the message begins with the field's name."""

    def __init__(self, config: Any, field: str, problem: str) -> None:
        super().__init__(f"{field} {problem}")
        self.config_class = type(config)
        self.field = field
        self.problem = problem
        """The rest of a sentence that begins with the name."""


@contextmanager
def wrap_os_errors(path: Path) -> Iterator[None]:
    """Inside, what goes wrong in writing to a path is a `UserError`."""
    try:
        yield
    except OSError as problem:
        remedy = "free disk space and resume" if problem.errno in DISK_FULL_ERRNOS else "mend that and resume"
        raise UserError(f"cannot write to {path} ({problem.strerror}): {remedy}") from problem


def check_range(
    config: Any,
    *names: str,
    ge: float | int = -math.inf,
    gt: float | int = -math.inf,
    le: float | int = math.inf,
    lt: float | int = math.inf,
) -> None:
    """Raise `ConfigFieldError` for the first named field that lies outside the limits or is not finite.

    Every member of a tuple has to lie inside; None may stand anywhere.
    """
    limits = {"at least": ge, "above": gt, "at most": le, "below": lt}
    words = " and ".join(f"{word} {limit}" for word, limit in limits.items() if math.isfinite(limit))
    for name in names:
        value = getattr(config, name)
        for number in value if isinstance(value, tuple) else (value,):
            if number is None or (ge <= number <= le and gt < number < lt):
                continue
            wanted = words if math.isfinite(number) else "a finite number"
            raise ConfigFieldError(config, name, f"must be {wanted}, not {number}")
