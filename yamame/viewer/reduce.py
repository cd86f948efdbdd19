"""Long curves made as short as a screen is wide, smooth curves, and bands over seeds. Pure maths."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

Numbers = Float[np.ndarray, "n"]

STUDENT_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""97.5 % quantiles of Student's distribution with 1, 2, ... degrees of freedom; beyond, 1.96 + 2.4 / degrees."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A curve as it is drawn: a line, and about it a range where `low` and `high` are not the line itself."""

    x: Numbers
    line: Numbers
    low: Numbers
    high: Numbers


def downsample(x: Numbers, y: Numbers, *, points: int, smoothing: float) -> Curve:
    """At most `points` places of a curve (`x` in order, nothing missing).

    Places that lie in one of as many equal parts of the axis become one: their mean, least and greatest, so that no
    peak is lost. With `smoothing`, a share of the axis, the line is the mean over so wide a window about each place,
    and the range is what it was before.
    """
    if len(x) > points:
        begins = _first_of_parts(x, points)
        counts = np.diff(begins, append=len(x))
        places, means = np.add.reduceat(x, begins) / counts, np.add.reduceat(y, begins) / counts
        low, high = np.minimum.reduceat(y, begins), np.maximum.reduceat(y, begins)
    else:
        places, means, low, high = x, y, y, y
    line = _window_mean(x, y, places, smoothing * float(x[-1] - x[0])) if smoothing and len(x) > 2 else means
    return Curve(x=places, line=line, low=low, high=high)


def mean_band(curves: Sequence[Curve], points: int) -> tuple[Curve, Numbers]:
    """The mean of the curves' lines at common places, with 95 % intervals; and how many curves there are at each place.

    Between its points a curve is straight; where it has not begun or has ended it does not count. Intervals are
    Student's, of no width where there is one curve.
    """
    x = np.linspace(min(curve.x[0] for curve in curves), max(curve.x[-1] for curve in curves), points)
    lines = np.stack([np.interp(x, curve.x, curve.line, left=np.nan, right=np.nan) for curve in curves])
    count = np.sum(~np.isnan(lines), axis=0)
    x, lines, count = x[count > 0], lines[:, count > 0], count[count > 0]
    mean = np.nanmean(lines, axis=0)
    squares = np.nansum((lines - mean) ** 2, axis=0)
    half = _student(count) * np.sqrt(squares / np.maximum(count - 1, 1) / count)
    return Curve(x=x, line=mean, low=mean - half, high=mean + half), count.astype(np.float64)


def _first_of_parts(x: Numbers, parts: int) -> np.ndarray:
    """Index of the first place in every part of the axis that has any."""
    edges = np.linspace(x[0], x[-1], parts + 1)[:-1]
    begins = np.searchsorted(x, edges, side="left")
    return np.unique(begins[begins < len(x)])


def _window_mean(x: Numbers, y: Numbers, places: Float[np.ndarray, "m"], width: float) -> Float[np.ndarray, "m"]:
    """The mean of y over windows about places; the nearest y where a window holds none."""
    sums = np.concatenate([[0.0], np.cumsum(y)])
    begin = np.searchsorted(x, places - width / 2, side="left")
    end = np.searchsorted(x, places + width / 2, side="right")
    nearest = np.clip(begin, 0, len(y) - 1)
    begin, end = np.where(end > begin, begin, nearest), np.where(end > begin, end, nearest + 1)
    return (sums[end] - sums[begin]) / (end - begin)


def _student(count: np.ndarray) -> Numbers:
    degrees = np.maximum(count - 1, 1)
    table = np.array(STUDENT_T)
    return np.where(degrees <= len(table), table[np.minimum(degrees, len(table)) - 1], 1.96 + 2.4 / degrees)
