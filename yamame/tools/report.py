"""A run's results for people: `report.md`, `report.html` and the pictures of `figures`."""

import json
import math
import platform
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from yamame.metrics import read_metrics
from yamame.run_dir import CONFIG, METADATA, REPORT, REPORT_HTML
from yamame.tools.plots import plot_attempts, plot_learning_curve

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
    yield Row(
        "mean return", format_number(evaluation["return_mean"]), _interval(evaluation["return_ci95"]), strong=True
    )
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


POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""What a browser may do with the page: nothing but show it, whatever it holds."""
STYLE = """
:root { color-scheme: light dark; --ink: #1d2329; --soft: #5b6670; --line: #dfe4e8; --page: #fff; --card: #f5f7f9; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8eb; --soft: #9aa5ae; --line: #353d44; --page: #14181b; --card: #1e2428; }
  img { filter: invert(0.92) hue-rotate(180deg); }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem clamp(0.8rem, 4vw, 2rem) 3rem; color: var(--ink);
  background: var(--page); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0; }
h2 { font-size: 1.1rem; margin: 2.2rem 0 0.6rem; }
p { margin: 0.3rem 0 1rem; color: var(--soft); }
.pictures { display: grid; gap: 1rem; margin: 2rem 0 0; max-width: 46rem; }
figure { margin: 0; border: 1px solid var(--line); border-radius: 8px; overflow-x: auto; }
img { display: block; width: 100%; min-width: 30rem; height: auto; }
table { width: 100%; border-collapse: collapse; font-size: 0.95rem; }
th, td { padding: 0.35rem 0.6rem 0.35rem 0; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top; font-weight: normal; }
th { width: 45%; color: var(--soft); }
.note { color: var(--soft); white-space: normal; }
strong { font-size: 1.15em; }
code, pre { font: 0.88em/1.5 ui-monospace, monospace; }
pre { background: var(--card); border-radius: 8px; padding: 0.8rem 1rem; overflow-x: auto; white-space: pre-wrap; }
details > summary { cursor: pointer; font-size: 1.1rem; font-weight: 600; margin: 2.2rem 0 0.6rem; }
"""
FOLDED = 24
"""Facts beyond which a section is folded up."""


def render_html(account: ReportData, directory: Path) -> str:
    """The whole page; pictures are read from the run's directory, and left out where they are not there."""
    return "\n".join(_page(account, directory)) + "\n"


def _page(account: ReportData, directory: Path) -> Iterator[str]:
    yield "<!doctype html>"
    yield f'<html lang="en"><head><meta charset="utf-8"><title>{escape(account.title)}</title>'
    yield f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<style>{STYLE}</style></head><body>"
    yield f"<h1>{escape(account.title)}</h1>"
    if account.expected:
        yield f"<p>Expected: {escape(account.expected)}</p>"
    yield f"<section><h2>{escape(account.results.title)}</h2>{''.join(_table(account.results))}</section>"
    yield '<div class="pictures">'
    for file, shown in account.pictures.items():
        if (directory / file).is_file():
            inside = b64encode((directory / file).read_bytes()).decode()
            yield f'<figure><img alt="{escape(shown)}" src="data:image/png;base64,{inside}"></figure>'
    yield "</div>"
    for section in account.sections:
        yield from _report_html_section(section)
    yield f"<section><h2>Go on</h2><pre>{escape(chr(10).join(account.commands))}</pre></section>"
    yield "</body></html>"


def _report_html_section(section: Section) -> Iterator[str]:
    title = escape(section.title)
    folded = len(section.facts) > FOLDED
    yield f"<details><summary>{title}</summary>" if folded else f"<section><h2>{title}</h2>"
    if section.intro:
        yield f"<p>{escape(section.intro.replace('`', ''))}</p>"
    yield from _table(section)
    yield "</details>" if folded else "</section>"


def _table(section: Section) -> Iterator[str]:
    yield "<table><tbody>"
    for fact in section.facts:
        yield f'<tr><th scope="row">{_text(fact.name, section)}</th><td>{_report_html_value(fact, section)}</td></tr>'
    yield "</tbody></table>"


def _report_html_value(fact: Row, section: Section) -> str:
    value = _text(fact.value, section)
    value = f"<strong>{value}</strong>" if fact.strong else value
    return f'{value} <span class="note">({escape(fact.note)})</span>' if fact.note else value


def _text(text: str, section: Section) -> str:
    return f"<code>{escape(text)}</code>" if section.is_code else escape(text)


def write_report(
    directory: Path,
    *,
    evaluation: Mapping[str, Any],
    summary: Mapping[str, Any],
    random_actions: Mapping[str, Any] | None,
    expected: str,
) -> None:
    """Write `report.md`, `report.html`, `learning_curve.png` and `return_per_attempt.png` into a run's folder.

    `evaluation` and `summary` are what `yamame eval --json` and `yamame train --json` print; `random_actions` is the
    like of `evaluation` for random actions, where it is known; `expected` says in words what the recipe should reach.
    """
    random_return = random_actions["return_mean"] if random_actions else None
    plot_learning_curve(directory / CURVE, read_metrics(directory), evaluation, random_return)
    plot_attempts(directory / ATTEMPTS, evaluation, random_actions)
    account = collect_report(
        directory, evaluation=evaluation, summary=summary, random_return=random_return, expected=expected
    )
    for name, text in ((REPORT, "\n".join(_markdown(account)) + "\n"), (REPORT_HTML, render_html(account, directory))):
        aside = directory / f".partial-{name}"
        try:
            aside.write_text(text, encoding="utf-8")
            aside.replace(directory / name)
        finally:
            aside.unlink(missing_ok=True)


def format_attempts_table(return_per_attempt: Sequence[float], width: int = 40) -> str:
    """Mean return of every attempt as a bar chart in plain text; bars begin at 0, or at the least value below it."""
    low, high = min([0.0, *return_per_attempt]), max([0.0, *return_per_attempt])
    lines = ["attempt  mean return"]
    for attempt, value in enumerate(return_per_attempt, start=1):
        filled = round(width * (value - low) / (high - low)) if high > low else 0
        lines.append(f"{attempt:7d}  {value:11.3f}  {'█' * filled}".rstrip())
    return "\n".join(lines)


def _markdown(account: ReportData) -> Iterator[str]:
    yield from (f"# {account.title}", "", f"Expected: {account.expected}", "")
    yield from _section(account.results)
    for file, shown in account.pictures.items():
        yield from (f"![{shown}]({file})", "")
    for section in account.sections:
        yield from _section(section)
    yield from ("## Go on", "", "```", *account.commands, "```")


def _section(section: Section) -> Iterator[str]:
    yield from (f"## {section.title}", "")
    if section.intro:
        yield from (section.intro, "")
    yield "| setting | value |" if section.is_code else "|  |  |"
    yield "|---|---|"
    for fact in section.facts:
        name, value = (f"`{fact.name}`", f"`{fact.value}`") if section.is_code else (fact.name, _value(fact))
        yield f"| {_cell(name)} | {_cell(value)}{f' ({_cell(fact.note)})' if fact.note else ''} |"
    yield ""


def _value(fact: Row) -> str:
    return f"**{fact.value}**" if fact.strong else fact.value


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
