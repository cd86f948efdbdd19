"""The working directory, which the code of an environment may change for the whole process."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def kept_working_directory() -> Iterator[None]:
    """Return to the present working directory at the end, also as a decorator: after environments were made and closed.

    While they exist, their directory is left to them. So what is written meanwhile needs absolute paths.
    """
    try:
        before = Path.cwd()
    except FileNotFoundError:  # it was deleted
        yield
        return
    try:
        yield
    finally:
        with suppress(OSError):
            os.chdir(before)
