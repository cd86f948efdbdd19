"""Exceptions that the command line prints as one line, and checks that raise them."""

import errno
import math
import numbers
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a full disk or an exhausted quota."""


class UserError(Exception):
    """Invalid input. The message is one line: what was expected, what was found, what to do.

    The command line prints the message and exits with code 2.
    """


class RunFailedError(Exception):
    """A process of a run died. The message is one line: which process, and how to resume.

    The command line prints the message and exits with code 1.
    """


class ConfigFieldError(UserError):
    """A field of a config has an invalid value. The message starts with the name of the field."""

    def __init__(self, config: Any, field: str, problem: str) -> None:
        super().__init__(f"{field} {problem}")
        self.config_class = type(config)
        self.field = field
        self.problem = problem
        """The message without the name."""


class FieldPathError(UserError):
    """A field of a nested config cannot have a value. The message is `path` followed by `problem`."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}{problem}".removeprefix(": "))
        self.path, self.problem = path, problem


class UnknownFlagError(UserError):
    """A command does not take a flag. The message names the nearest one, if `guess` is not empty."""

    def __init__(self, flag: str, guess: str) -> None:
        super().__init__(f"unknown flag {flag}: {f'did you mean {guess}?' if guess else '--help lists all of them'}")
        self.flag, self.guess = flag, guess


def describe_error(error: BaseException) -> str:
    """Return type and message of an exception in one line."""
    return " ".join(f"{type(error).__name__}: {error_message(error)}".rstrip(": ").split())


def error_message(error: BaseException) -> str:
    """Return the message of an exception; empty if its `__str__` raises."""
    try:
        return str(error)
    except Exception:
        return ""


@contextmanager
def wrap_os_errors(path: Path) -> Iterator[None]:
    """Raise `UserError` for an `OSError` of writing to a path."""
    try:
        yield
    except OSError as problem:
        remedy = "free disk space and resume" if problem.errno in DISK_FULL_ERRNOS else "correct that and resume"
        raise UserError(f"cannot write to {path} ({problem.strerror}): {remedy}") from problem


@contextmanager
def require_pytorch(what: str) -> Iterator[None]:
    """Raise `UserError` if a package is missing because PyTorch is not installed, which acting does not need.

    Args:
        what: What needs it, for the message.
    """
    try:
        yield
    except ModuleNotFoundError as missing:
        if find_spec("torch") is not None:
            raise
        raise UserError(
            f"{what} needs PyTorch, which is not installed: yamame-act only acts from .onnx files; pip uninstall "
            "yamame-act and pip install yamame"
        ) from missing


def check_range(
    config: Any,
    *names: str,
    ge: float | int = -math.inf,
    gt: float | int = -math.inf,
    le: float | int = math.inf,
    lt: float | int = math.inf,
) -> None:
    """Raise `ConfigFieldError` for the first named field outside the limits or not finite.

    Every element of a tuple is checked; None is always valid.
    """
    limits = {"at least": ge, "above": gt, "at most": le, "below": lt}
    words = " and ".join(f"{word} {limit}" for word, limit in limits.items() if math.isfinite(limit))
    for name in names:
        value = getattr(config, name)
        elements = value if isinstance(value, tuple) else (value,)
        if not all(number is None or isinstance(number, numbers.Real) for number in elements):
            raise ConfigFieldError(config, name, f"must be a number, got {value!r}")
        for number in elements:
            if number is None or (ge <= number <= le and gt < number < lt):
                continue
            wanted = words if math.isfinite(number) else "a finite number"
            raise ConfigFieldError(config, name, f"must be {wanted}, not {number}")
