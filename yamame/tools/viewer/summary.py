"""One row of the *Runs* view: what state a run is in, and how far it has come."""

import hashlib
import json
import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from yamame.metrics import ENV_STEPS_PER_SECOND, RETURN, SUCCESS, UPDATES_PER_SECOND
from yamame.run_dir import CONFIG, LOCK, METADATA, METRICS, RESULT, STATUS, is_locked
from yamame.tools.viewer.metric_table import read_tail
from yamame.tools.viewer.run_index import RunEntry, RunIndex
from yamame.tools.viewer.safe_files import Signature, UnreadableError, file_signature, printable, read_json

State = Literal["running", "finished", "stopped", "failed", "corrupted"]

KILLED_REASON = "its process ended without a word: killed, or the machine went down"
IGNORED_FIELDS = ("seed",)
"""Fields of a config in which runs of one group may differ."""
_FILES = (CONFIG, METADATA, RESULT, STATUS, METRICS, LOCK)
_MAX_TEXT = 500


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """What a row shows. None and NaN: not known."""

    id: str
    name: str
    state: State
    reason: str
    """Of a run that stopped or failed."""
    recipe: str
    task: str
    """The class of the environment's config, shortened."""
    seed: int | None
    group: str
    """The same for runs of one recipe whose configs differ in nothing but the seed."""
    env_steps: float
    planned_env_steps: float
    updates: float
    return_mean: float
    return_from: str
    """`final evaluation`, or `training` for the mean of the last training trials."""
    success_rate: float
    env_steps_per_second: float
    updates_per_second: float
    wall_seconds: float
    seconds_left: float
    """Of a running run, at the speed of its last lines."""
    modified_time: float
    """When anything was written last, as a Unix time; 0 if it never was."""
    warnings: list[str]
    """What of the run cannot be shown, and why."""

    def to_json(self) -> dict[str, Any]:
        """The fields, NaN as null."""
        return {key: None if value != value else value for key, value in vars(self).items()}


@dataclass(frozen=True)
class _Read:
    """What a run's files said when they looked like this."""

    signatures: tuple[Signature | None, ...]
    found: dict[str, dict[str, Any] | None]
    tail: list[dict[str, float]]
    warnings: list[str]


class SummaryCache:
    """Rows of runs; files are read again only where they have changed. Safe to use from several threads."""

    def __init__(self, catalogue: RunIndex) -> None:
        self._catalogue = catalogue
        self._lock = threading.Lock()
        self._read: dict[str, _Read] = {}

    def of(self, entries: Sequence[RunEntry]) -> list[RunSummary]:
        """A row for each."""
        with self._lock:
            known = self._catalogue.found().entries
            self._read = {run_id: read for run_id, read in self._read.items() if run_id in known}
            self._read |= {entry.run_id: self._reread(entry) for entry in entries}
            return [_summary(entry, self._read[entry.run_id]) for entry in entries]

    def _reread(self, entry: RunEntry) -> _Read:
        signatures = tuple(file_signature(f"{entry.path}/{name}") for name in _FILES)
        before = self._read.get(entry.run_id)
        if before is not None and before.signatures == signatures:
            return before
        found: dict[str, dict[str, Any] | None] = {}
        warnings: list[str] = []
        for name in (CONFIG, METADATA, RESULT, STATUS):
            try:
                content = read_json(entry.path / name)
                found[name] = _what_is_shown(content) if name == CONFIG and content is not None else content
            except UnreadableError as problem:
                found[name] = None
                warnings.append(str(problem))
        tail: list[dict[str, float]] = []
        try:
            tail = read_tail(entry.path / METRICS)
        except UnreadableError as problem:
            warnings.append(str(problem))
        if signatures[0] is None:
            warnings.append(f"it has no {CONFIG}")
        return _Read(signatures, found, _ends(tail), warnings)


def _what_is_shown(config: Mapping[str, Any]) -> dict[str, Any]:
    """Little of a config, since there may be many."""
    env = config.get("env")
    settings = {key: value for key, value in config.items() if key not in IGNORED_FIELDS}
    try:
        described = json.dumps(settings, sort_keys=True)
    except RecursionError as problem:
        raise UnreadableError(f"{CONFIG} is nested too deeply: not read") from problem
    return {
        "task": _task(env.get("type")) if isinstance(env, dict) else "",
        "seed": config.get("seed"),
        "env_steps": config.get("env_steps"),
        "settings": hashlib.sha256(described.encode()).hexdigest(),
    }


def _task(config_class: Any) -> str:
    return _text(config_class).rpartition(":")[2].removesuffix("Config")


def _ends(tail: list[dict[str, float]]) -> list[dict[str, float]]:
    return [tail[0], tail[-1]] if tail else []


def _summary(entry: RunEntry, read: _Read) -> RunSummary:
    config = read.found[CONFIG] or {}
    result, ending = read.found[RESULT], read.found[STATUS]
    first, last = (read.tail[0], read.tail[-1]) if read.tail else ({}, {})
    state, why = _state(entry, result, ending, damaged=read.found[CONFIG] is None)
    recipe = _text((read.found[METADATA] or {}).get("recipe"))
    env_steps_per_second, updates_per_second = _speeds(first, last)
    planned = _number(config.get("env_steps"))
    shown = result if state == "finished" and result is not None else {}
    left = (planned - last.get("env_steps", math.nan)) / env_steps_per_second if env_steps_per_second else math.nan
    seed = config.get("seed")
    return RunSummary(
        id=entry.run_id,
        name=entry.name,
        state=state,
        reason=why,
        recipe=recipe,
        task=_text(config.get("task")),
        seed=seed if isinstance(seed, int) else None,
        group=hashlib.sha256(f"{recipe} {config.get('settings', entry.run_id)}".encode()).hexdigest()[:12],
        env_steps=_either(shown.get("env_steps"), last.get("env_steps")),
        planned_env_steps=planned,
        updates=_either(shown.get("updates"), last.get("updates")),
        return_mean=_either(shown.get("return_mean"), last.get(RETURN)),
        return_from="final evaluation" if "return_mean" in shown else "training",
        success_rate=_either(shown.get("success_rate"), None if "return_mean" in shown else last.get(SUCCESS)),
        env_steps_per_second=_either(shown.get("env_steps_per_second"), env_steps_per_second),
        updates_per_second=_either(shown.get("updates_per_second"), updates_per_second),
        wall_seconds=_either(shown.get("wall_seconds"), last.get("wall_seconds")),
        seconds_left=max(0.0, left) if state == "running" else math.nan,
        modified_time=max((seen[2] for seen in read.signatures if seen is not None), default=0) / 1e9,
        warnings=read.warnings,
    )


def _state(
    entry: RunEntry, result: dict[str, Any] | None, ending: dict[str, Any] | None, *, damaged: bool
) -> tuple[State, str]:
    if result is not None:
        return "finished", ""
    if is_locked(entry.path):
        return "running", ""
    if ending is not None:
        why = _text(ending.get("reason"))
        return ("failed", why) if ending.get("status") == "failed" else ("stopped", f"by {why}" if why else "")
    return ("corrupted", "") if damaged else ("stopped", KILLED_REASON)


def _speeds(first: Mapping[str, float], last: Mapping[str, float]) -> tuple[float, float]:
    """Of the last lines together; of the last line, where there is only one."""
    if not last:
        return math.nan, math.nan
    seconds = last["wall_seconds"] - first["wall_seconds"]
    if seconds <= 0:
        return last.get(ENV_STEPS_PER_SECOND, math.nan), last.get(UPDATES_PER_SECOND, math.nan)
    return (last["env_steps"] - first["env_steps"]) / seconds, (last["updates"] - first["updates"]) / seconds


def _either(*values: Any) -> float:
    """The first that is known."""
    return next((number for value in values if not math.isnan(number := _number(value))), math.nan)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value) if math.isfinite(value) else math.nan
    except OverflowError:
        return math.nan


def _text(value: Any) -> str:
    return printable(value[:_MAX_TEXT]) if isinstance(value, str) else ""
