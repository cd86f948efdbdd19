"""The number of threads of PyTorch, which the code of an environment may set for the thread that steps it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def kept_num_threads() -> Iterator[None]:
    """Return to the present number of threads at the end, also as a decorator: after environments were called.

    Sums have other bits with another number, and updates may take many times as long.
    """
    before = torch.get_num_threads()
    try:
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)
