"""Numbers far from all others in a feature, such as those that mark a missing value."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Shaped

from yamame.data.trajectory import Trajectory

_FAR = 50.0
"""Distance to the others, in widths of these, from which on a network hardly tells the others apart.

A bit is not learned in 4,000 steps beside a 100 in every second step, nor beside a 1,000 in every fiftieth.
"""
_MAX_FEATURES = 4096


def marker_findings(played: Sequence[Trajectory]) -> list[str]:
    """Return a finding for the first leaf of numbers in which some are so far away that the others look alike.

    Numbers are normalized by their mean and standard deviation, which such numbers determine alone.
    """
    for name in (*played[0].observation, *played[0].lazy_observation):
        leaf = np.concatenate([trial.read_observation(name, 0, len(trial) + 1) for trial in played])
        if leaf.dtype.kind != "f":
            continue
        for index in np.ndindex(leaf.shape[1:] if leaf[0].size <= _MAX_FEATURES else (0,)):
            marker = _find_marker(leaf[(slice(None), *index)].astype(np.float64))
            if marker is not None:
                where = f" at {list(index)}" if index else ""
                return [
                    f"observation {name!r}{where} is sometimes {marker:g}, so far from its other numbers that these "
                    "look alike: if it marks a missing value, give the largest usual number and a feature of its own "
                    "that is 1 where the value is missing"
                ]
    return []


def _find_marker(values: Shaped[np.ndarray, "N"]) -> float | None:
    """Return the number of largest magnitude beyond the widest gap, if that is far wider than both sides."""
    unique = np.unique(values)
    if len(unique) < 3:
        return None
    gaps = np.diff(unique)
    widest = int(gaps.argmax())
    width = max(unique[widest] - unique[0], unique[-1] - unique[widest + 1])
    if width <= 0.0 or gaps[widest] < _FAR * width:
        return None
    return float(max(unique[0], unique[-1], key=abs))
