"""A run's results in words, for people: `report.md`, with the pictures of `figures`."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from yamame.run.figures import draw_adaptation, draw_learning_curve
from yamame.run.metrics import read_metrics
from yamame.run.run_directory import CONFIG, REPORT

CURVE, ATTEMPTS = "learning_curve.png", "return_per_attempt.png"


def write_report(
    directory: Path,
    *,
    evaluation: Mapping[str, Any],
    summary: Mapping[str, Any],
    random_actions: Mapping[str, Any] | None,
    expected: str,
) -> None:
    """Write `report.md`, `learning_curve.png` and `return_per_attempt.png` into a run's folder.

    `evaluation` and `summary` are what `yamame eval --json` and `yamame train --json` print; `random_actions` is the
    like of `evaluation` for random actions, where it is known; `expected` says in words what the recipe should reach.
    """
    random_return = random_actions["return_mean"] if random_actions else None
    draw_learning_curve(directory / CURVE, read_metrics(directory), evaluation, random_return)
    draw_adaptation(directory / ATTEMPTS, evaluation, random_actions)
    text = "\n".join(_report_lines(directory, evaluation, summary, random_return, expected))
    (directory / REPORT).write_text(text + "\n", encoding="utf-8")


def format_attempts_table(return_per_attempt: Sequence[float], width: int = 40) -> str:
    """Mean return of every attempt as a bar chart in plain text; bars begin at 0, or at the least value below it."""
    low, high = min([0.0, *return_per_attempt]), max([0.0, *return_per_attempt])
    lines = ["attempt  mean return"]
    for attempt, value in enumerate(return_per_attempt, start=1):
        filled = round(width * (value - low) / (high - low)) if high > low else 0
        lines.append(f"{attempt:7d}  {value:11.3f}  {'█' * filled}".rstrip())
    return "\n".join(lines)


def _report_lines(
    directory: Path,
    evaluation: Mapping[str, Any],
    summary: Mapping[str, Any],
    random_return: float | None,
    expected: str,
) -> Iterator[str]:
    yield from (f"# {directory.resolve().name}", "", f"Expected: {expected}", "", "## Results", "")
    yield from _table(("", ""), _result_rows(evaluation, summary, random_return))
    yield from ("", f"![Return against environment steps]({CURVE})")
    yield from ("", f"![Return of each attempt]({ATTEMPTS})", "")
    settings = list(_highlights(directory / CONFIG))
    if settings:
        yield from ("## Settings", "", f"The main ones; all of them are in `{CONFIG}`.", "")
        yield from _table(("setting", "value"), settings)
        yield ""
    yield from ("## Go on", "", "```", f"yamame eval {directory} --trials 256", f"yamame resume {directory}", "```")


def _result_rows(
    evaluation: Mapping[str, Any], summary: Mapping[str, Any], random_return: float | None
) -> Iterator[tuple[str, str]]:
    low, high = evaluation["return_ci95"]
    mean = _number(evaluation["return_mean"])
    yield "mean return", f"**{mean}** (95 % confidence: {_number(low)} to {_number(high)})"
    if random_return is not None:
        yield "mean return of random actions", _number(random_return)
    attempts = evaluation["return_per_attempt"]
    if len(attempts) > 1:
        yield "first and last attempt", f"{_number(attempts[0])} and {_number(attempts[-1])}"
    if evaluation.get("success_rate") is not None:
        yield "success rate", f"{100 * evaluation['success_rate']:.1f} %"
    successes = evaluation.get("success_per_attempt") or []
    if len(successes) > 1:
        yield "success of the first and last attempt", f"{100 * successes[0]:.1f} % and {100 * successes[-1]:.1f} %"
    training_tasks = evaluation.get("training_tasks")
    if training_tasks:
        low, high = training_tasks["return_ci95"]
        mean = _number(training_tasks["return_mean"])
        yield "mean return on the training tasks", f"{mean} (95 % confidence: {_number(low)} to {_number(high)})"
    yield "evaluation trials", f"{evaluation['trials']:,}"
    yield "environment steps", f"{evaluation['env_steps']:,}"
    yield "updates", f"{evaluation['updates']:,}"
    if "seed" in evaluation:
        yield "seed", str(evaluation["seed"])
    for key, name, unit in (
        ("wall_seconds", "wall time", " s"),
        ("train_seconds", "of it training", " s"),
        ("env_steps_per_second", "environment steps per second", ""),
        ("updates_per_second", "updates per second", ""),
    ):
        if summary.get(key) is not None:
            yield name, f"{_number(summary[key])}{unit}"


def _table(header: tuple[str, str], rows: Iterator[tuple[str, str]] | list[tuple[str, str]]) -> Iterator[str]:
    yield f"| {header[0]} | {header[1]} |"
    yield "|---|---|"
    for name, value in rows:
        yield f"| {name} | {value} |"


def _highlights(config_path: Path) -> Iterator[tuple[str, str]]:
    """The settings of a run's first two levels: its own and those of its parts that hold a few plain values."""
    try:
        config = json.loads(config_path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    for name, value in config.items():
        section = value if isinstance(value, dict) else {"": value}
        for path, part in ((f"{name}.{key}".rstrip("."), part) for key, part in section.items()):
            if isinstance(part, str | int | float) and not path.endswith("type"):
                yield f"`{path}`", f"`{part}`"


def _number(value: float) -> str:
    """Three decimals for small numbers, thousands separated for large ones."""
    if value is None or not math.isfinite(value):
        return "not known"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
