"""The *Curves* view's answers: which panels there are for some runs, what is drawn in them, and the numbers as CSV."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from jaxtyping import Float
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from yamame.records.errors import UserError
from yamame.viewer.catalogue import RunIndex
from yamame.viewer.columns import MOST_KEYS, MetricTableCache
from yamame.viewer.lines import AXES
from yamame.viewer.panels import ci_keys, sections
from yamame.viewer.reduce import Curve, mean_band, downsample
from yamame.viewer.selection import SelectedRun, Series, Selection, select
from yamame.viewer.summary import SummaryCache

BAND_POINTS = 200
USUAL_POINTS, LEAST_POINTS, MOST_POINTS = 400.0, 10.0, 2000.0
LARGEST_SMOOTHING = 0.5
_DIGITS = 6


def routes(catalogue: RunIndex) -> list[Route]:
    """`/api/curves/panels`, `/api/curves`, `/api/curves.csv`: of `runs=ID,ID`, the latter two of each `key=METRIC`."""
    cache, summaries = MetricTableCache(), SummaryCache(catalogue)

    def chosen(request: Request) -> Selection:
        return select(catalogue, summaries, cache, _list(request, "runs"))

    def panels(request: Request) -> Response:
        selection = chosen(request)
        if request.query_params.get("known") == selection.version:
            return JSONResponse({"version": selection.version, "warnings": selection.warnings})
        keys = [key for run in selection.chosen for key in run.columns.keys]
        return JSONResponse(
            {
                "version": selection.version,
                "warnings": selection.warnings,
                "lines": [_about(line) for line in selection.lines(grouped=_flag(request, "grouped"))],
                "sections": [asdict(section) for section in sections(keys)],
            }
        )

    def curves(request: Request) -> Response:
        selection = chosen(request)
        axis, smoothing = _axis(request), _number(request, "smoothing", 0.0, 0.0, LARGEST_SMOOTHING)
        points = int(_number(request, "points", USUAL_POINTS, LEAST_POINTS, MOST_POINTS))
        lines = selection.lines(grouped=_flag(request, "grouped"))
        with np.errstate(all="ignore"):  # files may hold any numbers
            drawn = {
                key: [
                    {"series_id": line.series_id, **series}
                    for line in lines
                    if (series := _series(line, axis, key, points, smoothing)) is not None
                ]
                for key in _keys(request)
            }
        return JSONResponse({"version": selection.version, "curves": drawn})

    def csv(request: Request) -> Response:
        selection, keys = chosen(request), _keys(request)
        headers = {"content-disposition": 'attachment; filename="yamame.csv"'}
        return StreamingResponse(_csv(selection, keys), media_type="text/csv; charset=utf-8", headers=headers)

    return [Route("/api/curves/panels", panels), Route("/api/curves", curves), Route("/api/curves.csv", csv)]


def _about(line: Series) -> dict[str, Any]:
    states = {run.summary.state for run in line.runs}
    return {
        "series_id": line.series_id,
        "label": line.label,
        "runs": [{"id": run.entry.run_id, "name": run.entry.name, "state": run.summary.state} for run in line.runs],
        "running": "running" in states,
    }


def _series(line: Series, axis: str, key: str, points: int, smoothing: float) -> dict[str, Any] | None:
    """What is drawn of one line in one panel; None where nothing was measured.

    `kind` says what lies between `low` and `high`: "range" of the values at a place, 95 % "interval" of an evaluation's
    mean, or of the mean over seeds, "seeds", with the number of `seeds` at each place.
    """
    curves = [curve for run in line.runs if (curve := _curve(run, axis, key, points, smoothing)) is not None]
    if not curves:
        return None
    if len(curves) > 1:
        band, seeds = mean_band(curves, min(points, BAND_POINTS))
        return {"kind": "seeds", **_rounded(band), "seeds": seeds.astype(int).tolist()}
    interval = _interval(line.runs[0], axis, key, curves[0]) if len(line.runs) == 1 else None
    return {"kind": "interval", **_rounded(interval)} if interval else {"kind": "range", **_rounded(curves[0])}


def _curve(run: SelectedRun, axis: str, key: str, points: int, smoothing: float) -> Curve | None:
    x, y = run.columns.curve(axis, key)
    return downsample(x, y, points=points, smoothing=smoothing) if len(x) else None


def _interval(run: SelectedRun, axis: str, key: str, curve: Curve) -> Curve | None:
    """The curve with the interval that was logged beside it, where each of its places has one."""
    ends = ci_keys(key)
    if ends is None:
        return None
    low, high = (run.columns.curve(axis, end) for end in ends)
    if not (len(low[0]) == len(high[0]) == len(curve.x)):
        return None
    return Curve(x=curve.x, line=curve.line, low=low[1], high=high[1])


def _rounded(curve: Curve) -> dict[str, list[float | None]]:
    """Without `low` and `high` where they are the line."""
    is_line = curve.low is curve.line and curve.high is curve.line
    drawn = {"x": curve.x, "line": curve.line} | ({} if is_line else {"low": curve.low, "high": curve.high})
    return {name: _plain(values) for name, values in drawn.items()}


def _plain(values: Float[np.ndarray, "n"]) -> list[float | None]:
    """Numbers that JSON can hold, with as many digits as a drawing shows."""
    return [float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None for value in values.tolist()]


def _csv(selection: Selection, keys: Sequence[str]) -> Iterator[str]:
    """Every line in which one of the metrics was measured, at full resolution, a run after the other."""
    yield ",".join(map(_cell, ["run", *AXES, *keys])) + "\r\n"
    for run in selection.chosen:
        name = _cell(run.entry.name)
        for row in run.columns.rows(keys):
            if not all(math.isnan(value) for value in row[len(AXES) :]):
                yield ",".join([name, *("" if math.isnan(value) else f"{value:.10g}" for value in row)]) + "\r\n"


def _cell(text: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    harmless = f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
    return '"' + harmless.replace('"', '""') + '"' if any(char in harmless for char in '",\r\n') else harmless


def _list(request: Request, name: str) -> list[str]:
    return [part for part in request.query_params.get(name, "").split(",") if part]


def _keys(request: Request) -> list[str]:
    """`key=A&key=B`: metrics may have commas in their names."""
    return request.query_params.getlist("key")[:MOST_KEYS]


def _flag(request: Request, name: str) -> bool:
    return request.query_params.get(name, "") == "1"


def _axis(request: Request) -> str:
    axis = request.query_params.get("x", AXES[0])
    if axis not in AXES:
        raise UserError(f"x is one of {', '.join(AXES)}")
    return axis


def _number(request: Request, name: str, default: float, least: float, most: float) -> float:
    try:
        value = float(request.query_params.get(name, default))
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise UserError(f"{name} is a number from {least:g} to {most:g}")
    return value
