"""API of the *Curves* view: panels of the chosen runs, their curves, and the values as CSV."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from yamame.errors import UserError
from yamame.metrics.confidence import student_ci95
from yamame.metrics.registry import GROUPS, METRICS, OTHER_GROUP, ci95_keys, get_metric, is_ci95_end
from yamame.runs.directory import METRICS as METRICS_FILE
from yamame.tools.palette import screen_colors
from yamame.tools.run_groups import color_numbers, common_name, longest_by_seed
from yamame.tools.study.curves import MIN_BAND_SEEDS
from yamame.tools.viewer.metric_table import AXES, MAX_KEYS, MetricTable, MetricTableCache
from yamame.tools.viewer.run_index import RunEntry, RunIndex, UnknownRunError, UnreadableError
from yamame.tools.viewer.runs import RunSummary, SummaryCache, run_ids
from yamame.tools.web.finite_json import FiniteJSONResponse

MAX_RUNS = 500
BAND_POINTS = 200
DEFAULT_POINTS, MIN_POINTS, MAX_POINTS = 400.0, 10.0, 2000.0
MAX_SMOOTHING = 0.5
_DIGITS = 6


@dataclass(frozen=True, kw_only=True)
class SelectedRun:
    """A run with its metrics."""

    entry: RunEntry
    metrics: MetricTable
    summary: RunSummary


@dataclass(frozen=True, kw_only=True)
class Series:
    """A line in every panel: a run, or the seeds of one experiment."""

    series_id: str
    """Run id, or id of the group."""
    label: str
    runs: list[SelectedRun]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The chosen runs that can be read."""

    runs: list[SelectedRun]
    warnings: list[str]
    """What is not shown, and why."""

    @property
    def version(self) -> str:
        """Changes with the content."""
        seen = ("{}.{}.{}".format(*run.metrics.version, run.summary.state) for run in self.runs)
        return "-".join(seen) + f"-{len(self.warnings)}"

    def series(self, *, grouped: bool) -> list[Series]:
        """Return the series in the order of the runs; `grouped` joins the seeds of one experiment.

        A group has one run for each seed: the longest one, as in figures.
        """
        if not grouped:
            return [Series(series_id=run.entry.run_id, label=run.entry.name, runs=[run]) for run in self.runs]
        groups: dict[str, list[SelectedRun]] = {}
        for run in self.runs:
            groups.setdefault(run.summary.group, []).append(run)
        series: list[Series] = []
        for group, members in groups.items():
            runs = [longest for longest, _ in longest_by_seed(members, seed=_seed, length=_length)]
            series.append(Series(series_id=f"g{group}", label=_label(runs), runs=runs))
        return series


def select(index: RunIndex, summaries: SummaryCache, cache: MetricTableCache, run_ids: Sequence[str]) -> Selection:
    """Read the runs with these ids. Missing or unreadable runs become warnings.

    Raises `UserError` for more than `MAX_RUNS` ids.
    """
    if len(run_ids) > MAX_RUNS:
        raise UserError(f"choose at most {MAX_RUNS} runs at once")
    chosen: list[SelectedRun] = []
    warnings: list[str] = []
    entries: list[RunEntry] = []
    for run_id in dict.fromkeys(run_ids):
        try:
            entries.append(index.entry(run_id))
        except UnknownRunError as problem:
            warnings.append(str(problem))
    for entry, summary in zip(entries, summaries.get(entries), strict=True):
        warnings += [f"{entry.name}: {problem}" for problem in summary.warnings]
        try:
            metrics = cache.get(entry.path / METRICS_FILE)
        except UnreadableError as problem:
            warnings.append(f"{entry.name}: {problem}")
            continue
        warnings += [f"{entry.name}: {problem}" for problem in metrics.warnings]
        chosen.append(SelectedRun(entry=entry, metrics=metrics, summary=summary))
    return Selection(runs=chosen, warnings=list(dict.fromkeys(warnings)))


def _seed(run: SelectedRun) -> int | str:
    """Return the seed; without a known one, a value that no other run has."""
    return run.entry.run_id if run.summary.seed is None else run.summary.seed


def _length(run: SelectedRun) -> tuple[float, bool]:
    """Return the last logged environment steps, and whether the run is finished.

    Offline runs log those of their schedule; their results have none.
    """
    return run.metrics.last_env_steps, run.summary.state == "finished"


def _label(runs: Sequence[SelectedRun]) -> str:
    """Return the common start of the names of a group, or its recipe, and the number of seeds."""
    if len(runs) == 1:
        return runs[0].entry.name
    name = common_name([run.entry.name for run in runs]) or runs[0].summary.recipe or "runs"
    return f"{name} ({len(runs)} seeds)"


def sections(keys: Iterable[str]) -> list[dict[str, Any]]:
    """Return panels of the metrics, grouped and ordered as in the registry; ends of intervals have none.

    Metrics of the user's follow, grouped by the prefix of their keys. A panel shows one metric of all series, or a
    family of metrics of one series, whose `keys` are ordered by number.
    """
    logged = [key for key in dict.fromkeys(keys) if not is_ci95_end(key)]
    members: dict[str, list[str]] = {metric.key: [] for metric in METRICS}
    for key in logged:
        members.setdefault(get_metric(key).key, []).append(key)
    panels: dict[str, list[dict[str, Any]]] = {group: [] for group in GROUPS.values()}
    for of_metric in filter(None, members.values()):
        metric = get_metric(of_metric[0])
        ordered = sorted(of_metric, key=lambda key: get_metric(key).index(key) or 0.0)
        prefix, _, name = ordered[0].partition("/")
        group = prefix if metric.group == OTHER_GROUP and name else metric.group
        panels.setdefault(group, []).append(
            {"title": metric.label, "keys": ordered, "description": metric.help, "unit": metric.unit}
        )
    return [{"title": group, "panels": of_group} for group, of_group in panels.items() if of_group]


Numbers = Float[np.ndarray, "n"]


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A line and a range; `low` and `high` are the line itself if there is no range."""

    x: Numbers
    line: Numbers
    low: Numbers
    high: Numbers


@dataclass(frozen=True, kw_only=True)
class Resolution:
    """How much of curves is returned."""

    points: int
    """The shown part of the axis is divided into this many equal bins; each bin gives the mean, minimum and maximum of
    its values, so that no peak is lost."""
    smoothing: float
    """Width of a moving average of the line as a fraction of the whole axis; 0: none. The range is not smoothed."""
    low: float = -math.inf
    """Start of the shown part."""
    high: float = math.inf

    def shown(self, x: Numbers) -> slice:
        """Return the indices of the shown part, with a point on either side, of sorted positions."""
        start, end = np.searchsorted(x, self.low, side="left"), np.searchsorted(x, self.high, side="right")
        return slice(max(0, int(start) - 1), int(end) + 1)


def downsample(x: Numbers, y: Numbers, resolution: Resolution) -> Curve:
    """Return a curve of sorted positions and values, both without NaN."""
    points, smoothing, shown = resolution.points, resolution.smoothing, resolution.shown(x)
    places, means = x[shown], y[shown]
    low, high = means, means
    if len(places) > points:
        starts = _bin_starts(places, points)
        counts = np.diff(starts, append=len(places))
        low, high = np.minimum.reduceat(means, starts), np.maximum.reduceat(means, starts)
        places, means = np.add.reduceat(places, starts) / counts, np.add.reduceat(means, starts) / counts
    line = _window_mean(x, y, places, smoothing * float(x[-1] - x[0])) if smoothing and len(x) > 2 else means
    return Curve(x=places, line=line, low=low, high=high)


def mean_band(curves: Sequence[Curve], points: int) -> tuple[Curve, Numbers]:
    """Return the mean of interpolated curves with 95 % intervals, and the number of curves at each point.

    A curve counts between its first and last point. Intervals are Student's t, of zero width for a single curve.
    """
    x = np.linspace(min(curve.x[0] for curve in curves), max(curve.x[-1] for curve in curves), points)
    lines = np.stack([np.interp(x, curve.x, curve.line, left=np.nan, right=np.nan) for curve in curves])
    count = np.sum(~np.isnan(lines), axis=0)
    x, lines, count = x[count > 0], lines[:, count > 0], count[count > 0]
    low, high = student_ci95(lines)
    return Curve(x=x, line=np.nanmean(lines, axis=0), low=low, high=high), count.astype(np.float64)


def _bin_starts(x: Numbers, bins: int) -> np.ndarray:
    """Return the index of the first point in every bin that has any."""
    edges = np.linspace(x[0], x[-1], bins + 1)[:-1]
    starts = np.searchsorted(x, edges, side="left")
    return np.unique(starts[starts < len(x)])


def _window_mean(x: Numbers, y: Numbers, places: Float[np.ndarray, "m"], width: float) -> Float[np.ndarray, "m"]:
    """Return the mean of y over windows around places; the nearest y for an empty window."""
    sums = np.concatenate([[0.0], np.cumsum(y)])
    start = np.searchsorted(x, places - width / 2, side="left")
    end = np.searchsorted(x, places + width / 2, side="right")
    nearest = np.clip(start, 0, len(y) - 1)
    start, end = np.where(end > start, start, nearest), np.where(end > start, end, nearest + 1)
    return (sums[end] - sums[start]) / (end - start)


def routes(index: RunIndex, summaries: SummaryCache) -> list[Route]:
    """Return `/api/curves/panels?runs=ID,ID`, and `/api/curves` and `/api/curves.csv` with `key=METRIC` besides."""
    cache = MetricTableCache()

    def read(request: Request) -> Selection:
        return select(index, summaries, cache, run_ids(request))

    def series_of(selection: Selection, request: Request) -> list[Series]:
        return selection.series(grouped=request.query_params.get("grouped") == "1")

    def panels(request: Request) -> Response:
        selection = read(request)
        if request.query_params.get("known") == selection.version:
            return FiniteJSONResponse({"version": selection.version, "warnings": selection.warnings})
        keys = [key for run in selection.runs for key in run.metrics.keys]
        return FiniteJSONResponse(
            {
                "version": selection.version,
                "warnings": selection.warnings,
                "lines": _lines(series_of(selection, request)),
                "sections": sections(keys),
            }
        )

    def curves(request: Request) -> Response:
        selection = read(request)
        axis, resolution = _axis(request), _resolution(request)
        all_series = series_of(selection, request)
        with np.errstate(all="ignore"):  # files may contain any numbers
            found = {
                key: [
                    {"series_id": series.series_id, **curve}
                    for series in all_series
                    if (curve := _series_curve(series, axis, key, resolution)) is not None
                ]
                for key in _keys(request)
            }
        return FiniteJSONResponse({"version": selection.version, "curves": found})

    def csv(request: Request) -> Response:
        selection, keys = read(request), _keys(request)
        headers = {"content-disposition": 'attachment; filename="yamame.csv"'}
        return StreamingResponse(_csv(selection, keys), media_type="text/csv; charset=utf-8", headers=headers)

    return [Route("/api/curves/panels", panels), Route("/api/curves", curves), Route("/api/curves.csv", csv)]


def _lines(all_series: Sequence[Series]) -> list[dict[str, Any]]:
    """Return what is known of the lines; `colors` on light and on dark pages, which an arm of a sweep keeps."""
    numbers = color_numbers([series.runs[0].entry.path for series in all_series])
    return [_series_to_json(series, number) for series, number in zip(all_series, numbers, strict=True)]


def _series_to_json(series: Series, color_number: int) -> dict[str, Any]:
    return {
        "series_id": series.series_id,
        "label": series.label,
        "colors": screen_colors(color_number),
        "runs": [{"id": run.entry.run_id, "name": run.entry.name, "state": run.summary.state} for run in series.runs],
        "running": any(run.summary.state == "running" for run in series.runs),
    }


def _series_curve(series: Series, axis: str, key: str, resolution: Resolution) -> dict[str, Any] | None:
    """Return the curve of a series; None without values.

    `kind` is the meaning of `low` and `high`: the "range" of the values of a bin, the 95 % "interval" of an
    evaluation, or that of the mean over "seeds", with the number of `seeds` at each point; fewer than `MIN_BAND_SEEDS`
    seeds have no interval, but the lines of the seeds as `members`.
    """
    curves = [curve for run in series.runs if (curve := _run_curve(run, axis, key, resolution)) is not None]
    if not curves:
        return None
    if len(curves) > 1:
        band, seeds = mean_band(curves, min(resolution.points, BAND_POINTS))
        found = {"kind": "seeds", **_curve_to_json(band), "seeds": seeds.astype(int).tolist()}
        if len(curves) >= MIN_BAND_SEEDS:
            return found
        members = [{"x": _to_numbers(curve.x), "line": _to_numbers(curve.line)} for curve in curves]
        return {**found, "low": None, "high": None, "members": members}
    interval = _logged_interval(series.runs[0], axis, key, curves[0], resolution) if len(series.runs) == 1 else None
    if interval:
        return {"kind": "interval", **_curve_to_json(interval)}
    return {"kind": "range", **_curve_to_json(curves[0])}


def _run_curve(run: SelectedRun, axis: str, key: str, resolution: Resolution) -> Curve | None:
    x, y = run.metrics.curve(axis, key)
    return downsample(x, y, resolution) if len(x) else None


def _logged_interval(run: SelectedRun, axis: str, key: str, curve: Curve, resolution: Resolution) -> Curve | None:
    """Return the curve with its logged interval; None if a point has none."""
    ends = ci95_keys(key)
    if ends is None:
        return None
    (low_x, low), (high_x, high) = (run.metrics.curve(axis, end) for end in ends)
    low, high = low[resolution.shown(low_x)], high[resolution.shown(high_x)]
    if not (len(low) == len(high) == len(curve.x)):
        return None
    return Curve(x=curve.x, line=curve.line, low=low, high=high)


def _curve_to_json(curve: Curve) -> dict[str, list[float | None]]:
    has_range = curve.low is not curve.line or curve.high is not curve.line
    arrays = {"x": curve.x, "line": curve.line} | ({"low": curve.low, "high": curve.high} if has_range else {})
    return {name: _to_numbers(values) for name, values in arrays.items()}


def _to_numbers(values: Float[np.ndarray, "n"]) -> list[float | None]:
    return [float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None for value in values.tolist()]


def _csv(selection: Selection, keys: Sequence[str]) -> Iterator[str]:
    """Yield every line that has one of the metrics, at full resolution, run by run."""
    yield ",".join(map(_csv_cell, ["run", *AXES, *keys])) + "\r\n"
    for run in selection.runs:
        name = _csv_cell(run.entry.name)
        for row in run.metrics.rows(keys):
            if not all(math.isnan(value) for value in row[len(AXES) :]):
                yield ",".join([name, *("" if math.isnan(value) else f"{value:.10g}" for value in row)]) + "\r\n"


def _csv_cell(text: str) -> str:
    """Escape text so that spreadsheets do not read it as a formula."""
    escaped = f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
    return '"' + escaped.replace('"', '""') + '"' if any(char in escaped for char in '",\r\n') else escaped


def _keys(request: Request) -> list[str]:
    """Return the repeated `key` parameters; keys of metrics may contain commas."""
    return request.query_params.getlist("key")[:MAX_KEYS]


def _axis(request: Request) -> str:
    axis = request.query_params.get("x", AXES[0])
    if axis not in AXES:
        raise UserError(f"x must be one of {', '.join(AXES)}")
    return axis


def _resolution(request: Request) -> Resolution:
    low, high = (
        _number(request, name, end, -math.inf, math.inf) for name, end in (("low", -math.inf), ("high", math.inf))
    )
    if low >= high:
        raise UserError("low must be below high")
    points = int(_number(request, "points", DEFAULT_POINTS, MIN_POINTS, MAX_POINTS))
    return Resolution(
        points=points, smoothing=_number(request, "smoothing", 0.0, 0.0, MAX_SMOOTHING), low=low, high=high
    )


def _number(request: Request, name: str, default: float, ge: float, le: float) -> float:
    try:
        value = float(request.query_params.get(name, default))
    except ValueError:
        value = math.nan
    if not ge <= value <= le:
        raise UserError(f"{name} must be a number from {ge:g} to {le:g}")
    return value
