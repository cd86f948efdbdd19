"""What a finished run's reports tell: collected once, written down as Markdown and as HTML."""

import json
import math
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from yamame.run.metrics import read_metrics
from yamame.run.run_directory import METADATA, CONFIG

CURVE, ATTEMPTS = "learning_curve.png", "return_per_attempt.png"
PACKAGES = ("yamame", "torch", "numpy", "gymnasium")
"""Whose versions a report names."""
COUNTER_LABELS = {
    "faults/restarts": "environments made anew after a fault",
    "optim/nonfinite_updates": "updates skipped, since their loss or gradient was not finite",
    "replay/num_corrupted": "damaged trajectories passed over",
    "relabel/relabeled_fraction": "share of the trajectories with an open instruction that were told anew",
    "relabel/inserted_goals_mean": "goals inserted into such a trajectory, on average",
    "relabel/num_unique_goals": "goals that relabeling has seen",
    "relabel/most_common_goal_fraction": "share of the commonest of them",
    "relabel/rarest_goal_fraction": "share of the rarest of them",
}
"""Metrics of the last line that count what is out of the ordinary; other faults are named by their key."""


@dataclass(frozen=True)
class Row:
    """A row of a table."""

    name: str
    value: str
    note: str = ""
    """Stands in brackets behind the value."""
    strong: bool = False
    """What one looks for first."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading and a table."""

    title: str
    intro: str = ""
    facts: Sequence[Row]
    is_code: bool = False
    """Whether names and values are those of settings."""


@dataclass(frozen=True, kw_only=True)
class ReportData:
    """All of a report but its form."""

    title: str
    expected: str
    results: Section
    pictures: Mapping[str, str]
    """Name of a file beside the report -> what it shows."""
    sections: Sequence[Section]
    """Those with facts."""
    commands: Sequence[str]
    """What can be done with the run now."""


def collect_report(
    directory: Path,
    *,
    evaluation: Mapping[str, Any],
    summary: Mapping[str, Any],
    random_return: float | None,
    expected: str,
) -> ReportData:
    """From what `write_report` is given, and from the run's files as far as they are there."""
    sections = (
        Section(title="How it was made", facts=list(_origin(directory, evaluation))),
        Section(
            title="Changed from the recipe",
            intro="The task: from the recipe's own. The rest: from what the recipe makes of this task.",
            facts=list(_changes(directory)),
            is_code=True,
        ),
        Section(title="Faults and relabeling", intro="As of the last round.", facts=list(_counters(directory))),
        Section(
            title="Settings",
            intro=f"The main ones; all of them are in `{CONFIG}`.",
            facts=list(_highlights(directory / CONFIG)),
            is_code=True,
        ),
    )
    return ReportData(
        title=directory.resolve().name,
        expected=expected,
        results=Section(title="Results", facts=list(_results(evaluation, summary, random_return))),
        pictures={CURVE: "Return against environment steps", ATTEMPTS: "Return of each attempt"},
        sections=[section for section in sections if section.facts],
        commands=(f"yamame eval {directory} --trials 256", f"yamame resume {directory}"),
    )


def _results(evaluation: Mapping[str, Any], summary: Mapping[str, Any], random_return: float | None) -> Iterator[Row]:
    yield Row("mean return", format_number(evaluation["return_mean"]), _interval(evaluation["return_ci95"]), strong=True)
    if random_return is not None:
        yield Row("mean return of random actions", format_number(random_return))
    attempts = evaluation["return_per_attempt"]
    if len(attempts) > 1:
        yield Row("first and last attempt", f"{format_number(attempts[0])} and {format_number(attempts[-1])}")
    if evaluation.get("success_rate") is not None:
        yield Row("success rate", _percent(evaluation["success_rate"]))
    successes = evaluation.get("success_per_attempt") or []
    if len(successes) > 1:
        yield Row("success of the first and last attempt", f"{_percent(successes[0])} and {_percent(successes[-1])}")
    training_tasks = evaluation.get("train_tasks")
    if training_tasks:
        mean, interval = format_number(training_tasks["return_mean"]), _interval(training_tasks["return_ci95"])
        yield Row("mean return on the training tasks", mean, interval)
    yield Row("evaluation trials", f"{evaluation['trials']:,}")
    yield Row("environment steps", f"{evaluation['env_steps']:,}")
    yield Row("updates", f"{evaluation['updates']:,}")
    for key, name, unit in (
        ("wall_seconds", "wall time", " s"),
        ("train_seconds", "of it training", " s"),
        ("env_steps_per_second", "environment steps per second", ""),
        ("updates_per_second", "updates per second", ""),
    ):
        if summary.get(key) is not None:
            yield Row(name, f"{format_number(summary[key])}{unit}")


def _origin(directory: Path, evaluation: Mapping[str, Any]) -> Iterator[Row]:
    about = _json(directory / METADATA)
    for name in ("recipe", "command"):
        if about.get(name):
            yield Row(name, str(about[name]))
    if "seed" in evaluation:
        yield Row("seed", str(evaluation["seed"]))
    yield Row("versions", ", ".join(_versions()))


def _versions() -> Iterator[str]:
    for package in PACKAGES:
        try:
            yield f"{package} {version(package)}"
        except PackageNotFoundError:  # run from its sources
            continue
    yield f"Python {platform.python_version()}"
    yield f"{platform.system()} {platform.machine()}"


def _changes(directory: Path) -> Iterator[Row]:
    changed = _json(directory / METADATA).get("overrides")
    for path, pair in changed.items() if isinstance(changed, dict) else ():
        default, value = pair if isinstance(pair, list) and len(pair) == 2 else (None, pair)
        yield Row(path, json.dumps(value), f"default {json.dumps(default)}")


def _counters(directory: Path) -> Iterator[Row]:
    last: dict[str, Any] = {}
    for line in read_metrics(directory):
        last |= {key: value for key, value in line.items() if value is not None}
    others = [key for key in last if key.startswith("faults/") and key not in COUNTER_LABELS]
    for key in (*COUNTER_LABELS, *others):
        value = last.get(key)
        if isinstance(value, int | float) and (value or key == "faults/restarts" or key.startswith("relabel/")):
            yield Row(COUNTER_LABELS.get(key, key.partition("/")[2].replace("_", " ")), format_number(value))


def _highlights(config_path: Path) -> Iterator[Row]:
    """The settings of a run's first two levels: its own and those of its parts that hold a few plain values."""
    for name, value in _json(config_path).items():
        section = value if isinstance(value, dict) else {"": value}
        for path, part in ((f"{name}.{key}".rstrip("."), part) for key, part in section.items()):
            if isinstance(part, str | int | float) and not path.endswith("type"):
                yield Row(path, str(part))


def _json(path: Path) -> dict[str, Any]:
    """The object in a file; empty where it cannot be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _interval(ci95: Sequence[float]) -> str:
    low, high = ci95
    return f"95 % confidence: {format_number(low)} to {format_number(high)}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def format_number(value: float) -> str:
    """Three digits for small numbers, thousands separated for large ones."""
    if value is None or not math.isfinite(value):
        return "not known"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
