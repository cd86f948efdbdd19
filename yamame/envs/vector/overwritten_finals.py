"""A line for environments that reset in the same step and overwrite the last observation of the episode."""

import sys
from collections.abc import Mapping

import numpy as np
from jaxtyping import Bool, Shaped

Observation = Mapping[str, Shaped[np.ndarray, "E ..."]]
_NUM_ENDS = 8
"""Ends of episodes that must look overwritten before the line is printed."""


class OverwrittenFinals:
    """Prints one line if the first final observations all equal the first observation of the next episode.

    An environment that returns the same array from `step` and `reset` gives such a final observation where its vector
    environment resets it in the same step (Gymnasium 1.x copies it after the reset). The comparison ends with the first
    final observation that differs. Ends of episodes whose observation does not change are not counted.
    """

    def __init__(self) -> None:
        self._num_equal = 0

    def compare(
        self, ended: Bool[np.ndarray, "E"], before: Observation, final: Observation, first: Observation
    ) -> None:
        """Compare the observations of rows that have `ended`: before the last step, after it, and after the reset."""
        if self._num_equal >= _NUM_ENDS:
            return
        if (ended & ~_equal(final, first)).any():
            self._num_equal = _NUM_ENDS
            return
        self._num_equal += int((ended & ~_equal(final, before)).sum())
        if self._num_equal >= _NUM_ENDS:
            print(
                f"the last observations of {self._num_equal} episodes equal the first one of the next: if the "
                "environment returns the same array at every step, return copies, or use autoreset_mode DISABLED",
                file=sys.stderr,
            )


def _equal(a: Observation, b: Observation) -> Bool[np.ndarray, "E"]:
    """Return the rows in which all leaves are equal."""
    rows = [(leaf == b[name]).reshape(len(leaf), -1).all(-1) for name, leaf in a.items()]
    return np.logical_and.reduce(rows)
