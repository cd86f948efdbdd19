"""Standard output that holds a command's result and nothing else."""

import ctypes
import io
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress

_STDOUT, _STDERR = 1, 2
"""File descriptors, to which also C code prints."""


@contextmanager
def clean_stdout(*, until_exit: bool = False) -> Iterator[io.StringIO]:
    """Yield a stream for the result, which is printed at the end; what else is printed meanwhile goes to stderr.

    This includes what environments, their C code and their processes print.

    Args:
        until_exit: Prints after the result, of simulators that end with this process, go to stderr, too.
    """
    result, stdout = io.StringIO(), sys.stdout
    with ExitStack() as stack:
        with suppress(OSError):  # closed descriptors
            _flush(stdout)
            saved = os.dup(_STDOUT)
            stack.callback(os.close, saved)
            stack.callback(os.dup2, saved, _STDOUT)
            os.dup2(_STDERR, _STDOUT)
        stack.callback(_flush, stdout)
        with redirect_stdout(sys.stderr):
            yield result
    stdout.write(result.getvalue())
    stdout.flush()
    if until_exit:
        with suppress(OSError):
            os.dup2(_STDERR, _STDOUT)


def _flush(stdout: object) -> None:
    """Write what Python and C have buffered for standard output."""
    for stream in (stdout, sys.__stdout__):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()  # type: ignore[attr-defined]
    if os.name == "posix":
        ctypes.CDLL(None).fflush(None)
