"""The *Curves* view's answers: which panels there are for some runs, what is drawn in them, and the numbers as CSV."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from yamame.errors import UserError
from yamame.metrics import get_metric
from yamame.tools.viewer.metric_table import AXES, MAX_KEYS, MetricTableCache
from yamame.tools.viewer.run_index import RunIndex
from yamame.tools.viewer.selection import SelectedRun, Selection, Series, select
from yamame.tools.viewer.summary import SummaryCache


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One drawing: a metric of every run, or a family of metrics of one run in shades."""

    title: str
    keys: list[str]
    """Several: a family, such as the attempts of a trial, in its order."""
    about: str = ""


@dataclass(frozen=True, kw_only=True)
class Section:
    """Panels under one heading."""

    title: str
    panels: list[Panel]


_SINGLE = {
    "Learning": {
        "rollout/return_mean": ("Return while training", ""),
        "eval/return_mean": ("Return of evaluations", ""),
        "rollout/success_rate": ("Success while training", ""),
        "eval/success_rate": ("Success of evaluations", ""),
        "eval_train_tasks/return_mean": ("Return on the training tasks", ""),
        "eval_train_tasks/success_rate": ("Success on the training tasks", ""),
    },
    "Losses": {
        "loss/td": ("TD loss", "squared error of the critics, in units of scaled reward"),
        "loss/policy_gradient": ("Policy loss", "minus the critics' value of the policy's actions, normalised"),
        "loss/filtered_bc": ("Imitation loss", "minus the log-probability of actions that turned out better"),
        "loss/world_model": ("World-model loss", "squared error of how the observation will change; 1: knows nothing"),
        "critic/td_error_abs": ("TD error", "mean distance of the critics from their targets at the acting discount"),
    },
    "Values": {
        "critic/td_target_mean": ("Q at the acting discount", "mean TD target, in units of reward"),
        "critic/popart_std": ("PopArt scale", "sigma of the acting discount, in units of reward"),
        "critic/q_normalized": ("Q, normalised", "mean of the critics on PopArt's scale, at the acting discount"),
        "critic/q_ensemble_std": ("Critic ensemble std", "standard deviation over the critics, normalised"),
    },
    "Policy and optimizer": {
        "actor/entropy": ("Entropy", "of the policy at the acting discount, in nats"),
        "actor/filtered_bc_fraction": ("Filtered BC fraction", "of tokens whose action was better than the policy's"),
        "optim/grad_norm": ("Gradient norm", "before clipping"),
        "optim/nonfinite_updates": ("Skipped updates", "so far, because a loss or gradient was not finite"),
    },
    "Speed": {
        "time/env_steps_per_second": ("Environment steps per second", ""),
        "time/updates_per_second": ("Updates per second", ""),
        "time/collect_seconds": ("Collecting, seconds a round", ""),
        "time/update_seconds": ("Updating, seconds a round", ""),
        "time/learner_wait_fraction": ("Waiting for batches", "share of the time spent updating"),
    },
    "Replay": {
        "replay/trajectories": ("Trajectories stored", ""),
        "replay/median_age_updates": ("Age of the stored", "updates since the median stored trajectory was collected"),
        "replay/num_corrupted": ("Damaged records", "found and set aside so far"),
        "rollout/num_trials": ("Trials finished", "so far"),
        "rollout/trial_length_mean": ("Length of trials", "mean of the last 100 training trials, in steps"),
    },
    "Relabeling": {
        "relabel/relabeled_fraction": ("Relabelled share", "of the drawn trajectories that had an instruction"),
        "relabel/inserted_goals_mean": ("Goals inserted", "mean number for each drawn trajectory"),
        "relabel/num_unique_goals": ("Known goals", "different ones that were ever achieved"),
        "relabel/most_common_goal_fraction": ("Share of the commonest goal", "of all that were achieved"),
        "relabel/rarest_goal_fraction": ("Share of the rarest goal", "of all that were achieved"),
    },
    "Faults": {
        "faults/restarts": ("Env restarts", "so far"),
    },
}
_FAMILIES = {
    "Learning": [
        (
            "Return of each attempt",
            re.compile(r"rollout/return_mean_attempt_(\d+)"),
            "means of the last 100 training trials",
        )
    ],
    "Values": [
        (
            "Q by discount",
            re.compile(r"critic/td_target_mean_gamma_(\d+(?:\.\d+)?)"),
            "PopArt's running mean of the TD targets of every discount, in units of reward",
        ),
        (
            "PopArt scale by discount",
            re.compile(r"critic/popart_std_gamma_(\d+(?:\.\d+)?)"),
            "its running standard deviation of the TD targets of every discount, in units of reward",
        ),
    ],
}
_FAULT = re.compile(r"faults/(.+)")
_ENDS_OF_INTERVAL = re.compile(r".+_ci95_(low|high)")


def sections(keys: Iterable[str]) -> list[Section]:
    """Every metric in its section, in the order of `_SINGLE`; those that have none in the last one."""
    left = [key for key in dict.fromkeys(keys) if not _ENDS_OF_INTERVAL.fullmatch(key)]
    found: list[Section] = []
    for title, singles in _SINGLE.items():
        panels = [
            Panel(title=name, keys=[key], about=about or get_metric(key).description)
            for key, (name, about) in singles.items()
            if key in left
        ]
        panels += _families(title, left)
        if title == "Faults":
            kinds = [key for key in left if key not in singles and _FAULT.fullmatch(key)]
            panels += [Panel(title=key.partition("/")[2].capitalize(), keys=[key], about="so far") for key in kinds]
        shown = {key for panel in panels for key in panel.keys}
        left = [key for key in left if key not in shown]
        found += [Section(title=title, panels=panels)] if panels else []
    others = [Panel(title=key, keys=[key], about=get_metric(key).description) for key in left]
    return found + ([Section(title="Other", panels=others)] if others else [])


def ci_keys(key: str) -> tuple[str, str] | None:
    """The metrics that are the ends of a mean's 95 % interval, where a run may have logged them."""
    stem = key.removesuffix("_mean")
    return None if stem == key else (f"{stem}_ci95_low", f"{stem}_ci95_high")


def _families(section: str, keys: Sequence[str]) -> list[Panel]:
    panels = []
    for title, pattern, about in _FAMILIES.get(section, ()):
        numbered = [
            (float(match[1]), key) for key in keys if (match := pattern.fullmatch(key)) and _is_number(match[1])
        ]
        if numbered:
            panels.append(Panel(title=title, keys=[key for _, key in sorted(numbered)], about=about))
    return panels


def _is_number(text: str) -> bool:
    return text.count(".") <= 1 and any(char.isdigit() for char in text)


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


BAND_POINTS = 200
USUAL_POINTS, MIN_POINTS, MAX_POINTS = 400.0, 10.0, 2000.0
MAX_SMOOTHING = 0.5
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
        axis, smoothing = _axis(request), _number(request, "smoothing", 0.0, 0.0, MAX_SMOOTHING)
        points = int(_number(request, "points", USUAL_POINTS, MIN_POINTS, MAX_POINTS))
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
    return request.query_params.getlist("key")[:MAX_KEYS]


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
