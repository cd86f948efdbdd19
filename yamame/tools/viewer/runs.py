"""API of the *Runs* view: state and results of every run."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from yamame.metrics.registry import ENV_STEPS_PER_SECOND, RETURN, SUCCESS, UPDATES_PER_SECOND
from yamame.run_config import experiment_settings
from yamame.runs.directory import CONFIG, LOCK, METADATA, METRICS, NOTES, RESULT, STATUS, is_locked
from yamame.tools.viewer.metric_table import read_tail, to_float
from yamame.tools.viewer.notes import Notes, read_notes
from yamame.tools.viewer.run_cache import RunCache, Signatures
from yamame.tools.viewer.run_index import RunEntry, RunIndex, UnreadableError, leaves, printable, read_json
from yamame.tools.web.finite_json import FiniteJSONResponse

State = Literal["running", "finished", "stopped", "failed", "corrupted"]

KILLED_REASON = "the process ended without a status: killed, or the machine went down"
_FILES = (CONFIG, METADATA, RESULT, STATUS, METRICS, LOCK, NOTES)
_MAX_TEXT = 500


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """A row. None and NaN: unknown."""

    id: str
    name: str
    state: State
    reason: str
    """Why the run stopped or failed."""
    recipe: str
    task: str
    """Name of the environment: that of Gymnasium, of the function that makes it, or of its benchmark, or its class."""
    seed: int | None
    group: str
    """Equal for runs of one recipe and of one experiment, such as seeds."""
    env_steps: float
    planned_env_steps: float
    updates: float
    return_mean: float
    return_from: str
    """`final evaluation`, or `training`: mean of the last training trials."""
    success_rate: float
    env_steps_per_second: float
    updates_per_second: float
    wall_seconds: float
    seconds_left: float
    """Of a running run, at its speed over the last lines."""
    modified_time: float
    """Unix time of the last write of the run itself; 0: never."""
    tags: tuple[str, ...]
    note: str
    """Start of the note."""
    warnings: list[str]
    """What cannot be shown, and why."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields, NaN as None."""
        return {key: None if value != value else value for key, value in vars(self).items()}


@dataclass(frozen=True)
class _Read:
    """Content of a run's files at some signatures."""

    signatures: Signatures
    found: dict[str, dict[str, Any] | None]
    first: dict[str, float]
    """First line of the tail of the metrics; empty without any."""
    last: dict[str, float]
    notes: Notes
    warnings: list[str]


class SummaryCache:
    """Summaries of runs; one for all views. Thread-safe."""

    def __init__(self, index: RunIndex) -> None:
        self._cache = RunCache(index, _FILES, _read_run)

    def get(self, entries: Sequence[RunEntry]) -> list[RunSummary]:
        """Return a summary of each run."""
        return [_summary(entry, read) for entry, read in zip(entries, self._cache.get(entries), strict=True)]


def _read_run(entry: RunEntry, signatures: Signatures) -> _Read:
    found: dict[str, dict[str, Any] | None] = {}
    warnings: list[str] = []
    for name in (CONFIG, METADATA, RESULT, STATUS):
        try:
            content = read_json(entry.path / name)
            found[name] = _shorten_config(content) if name == CONFIG and content is not None else content
        except UnreadableError as problem:
            found[name] = None
            warnings.append(str(problem))
    tail: list[dict[str, float]] = []
    try:
        tail = read_tail(entry.path / METRICS)
    except UnreadableError as problem:
        warnings.append(str(problem))
    notes = Notes()
    try:
        notes = read_notes(entry.path)
    except UnreadableError as problem:
        warnings.append(str(problem))
    if signatures[0] is None:
        warnings.append(f"no {CONFIG}")
    first, last = (tail[0], tail[-1]) if tail else ({}, {})
    return _Read(signatures, found, first, last, notes, warnings)


def _shorten_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Keep only what summaries need."""
    env = config.get("env")
    settings = experiment_settings(dict(leaves(config)))
    try:
        described = json.dumps(settings, sort_keys=True)
    except RecursionError as problem:
        raise UnreadableError(f"{CONFIG} is nested too deeply and was not read") from problem
    return {
        "task": _env_name(env) if isinstance(env, dict) else "",
        "seed": config.get("seed"),
        "env_steps": config.get("env_steps"),
        "settings": hashlib.sha256(described.encode()).hexdigest(),
    }


def _env_name(env: Mapping[str, Any]) -> str:
    """Return the name of the environment of a stored config; empty for a function without a name of its own."""
    made = env.get("env_fn")
    if isinstance(made, dict):
        return _text(made.get("callable")).rpartition(":")[2]
    kind = _text(env.get("type")).rpartition(":")[2].removesuffix("Config")
    name = _text(env.get("id")) or _text(env.get("name"))
    return name.rpartition(":")[2] if name else kind


def _summary(entry: RunEntry, read: _Read) -> RunSummary:
    config = read.found[CONFIG] or {}
    result, status, last = read.found[RESULT], read.found[STATUS], read.last
    state, reason = _state(entry, result, status, corrupted=read.found[CONFIG] is None)
    recipe = _text((read.found[METADATA] or {}).get("recipe"))
    env_steps_per_second, updates_per_second = _speeds(read.first, last)
    planned = to_float(config.get("env_steps"))
    shown = result if state == "finished" and result is not None else {}
    left = (planned - last.get("env_steps", math.nan)) / env_steps_per_second if env_steps_per_second else math.nan
    seed = config.get("seed")
    return RunSummary(
        id=entry.run_id,
        name=entry.name,
        state=state,
        reason=reason,
        recipe=recipe,
        task=_text(config.get("task")) or recipe,
        seed=seed if isinstance(seed, int) else None,
        group=hashlib.sha256(f"{recipe} {config.get('settings', entry.run_id)}".encode()).hexdigest()[:12],
        env_steps=_first_known(shown.get("env_steps"), last.get("env_steps")),
        planned_env_steps=planned,
        updates=_first_known(shown.get("updates"), last.get("updates")),
        return_mean=_first_known(shown.get("return_mean"), last.get(RETURN)),
        return_from="final evaluation" if "return_mean" in shown else "training",
        success_rate=_first_known(shown.get("success_rate"), None if "return_mean" in shown else last.get(SUCCESS)),
        env_steps_per_second=_first_known(shown.get("env_steps_per_second"), env_steps_per_second),
        updates_per_second=_first_known(shown.get("updates_per_second"), updates_per_second),
        wall_seconds=_first_known(shown.get("wall_seconds"), last.get("wall_seconds")),
        seconds_left=max(left, 0.0) if state == "running" else math.nan,  # in this order NaN stays NaN
        modified_time=max((seen[2] for seen in read.signatures[:-1] if seen is not None), default=0) / 1e9,
        tags=read.notes.tags,
        note=read.notes.text[:_MAX_TEXT],
        warnings=read.warnings,
    )


def _state(
    entry: RunEntry, result: dict[str, Any] | None, status: dict[str, Any] | None, *, corrupted: bool
) -> tuple[State, str]:
    if result is not None:
        return "finished", ""
    if is_locked(entry.path):
        return "running", ""
    if status is not None:
        reason = _text(status.get("reason"))
        failed = status.get("status") == "failed"
        return ("failed", reason) if failed else ("stopped", f"by {reason}" if reason else "")
    return ("corrupted", "") if corrupted else ("stopped", KILLED_REASON)


def _speeds(first: Mapping[str, float], last: Mapping[str, float]) -> tuple[float, float]:
    """Return env steps and updates per second over the last lines; those of the last line if there is only one."""
    if not last:
        return math.nan, math.nan
    seconds = last["wall_seconds"] - first["wall_seconds"]
    if seconds <= 0:
        return last.get(ENV_STEPS_PER_SECOND, math.nan), last.get(UPDATES_PER_SECOND, math.nan)
    return (last["env_steps"] - first["env_steps"]) / seconds, (last["updates"] - first["updates"]) / seconds


def _first_known(*values: Any) -> float:
    """Return the first known value."""
    return next((number for value in values if not math.isnan(number := to_float(value))), math.nan)


def _text(value: Any) -> str:
    return printable(value[:_MAX_TEXT]) if isinstance(value, str) else ""


def run_ids(request: Request) -> list[str]:
    """Return the ids in the parameter `runs`."""
    return [run_id for run_id in request.query_params.get("runs", "").split(",") if run_id]


def routes(index: RunIndex, summaries: SummaryCache) -> list[Route]:
    """Return `/api/runs`."""

    def listing(request: Request) -> Response:
        found = index.found()
        rows = [summary.to_json() for summary in summaries.get(list(found.entries.values()))]
        return FiniteJSONResponse({"runs": rows, "warnings": found.warnings})

    return [Route("/api/runs", listing)]
