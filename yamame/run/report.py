"""A run's results for people: `report.md`, `report.html` and the pictures of `figures`."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from yamame.run.account import ATTEMPTS, CURVE, ReportData, Row, Section, collect_report
from yamame.run.figures import plot_attempts, plot_learning_curve
from yamame.run.metrics import read_metrics
from yamame.run.report_html import render_html
from yamame.run.run_directory import REPORT, REPORT_HTML


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
