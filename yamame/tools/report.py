"""Reports of finished runs: `report.md`, `report.html` and their two plots, all from the files of the run."""

import json
import math
import platform
import shlex
import sys
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from yamame.distributed.learners import is_output_process
from yamame.envs.env_fn import name_function
from yamame.errors import describe_error
from yamame.metrics.registry import METRICS, get_metric, read_metrics
from yamame.runs.directory import CONFIG, METADATA, REPORT, REPORT_HTML, RESULT
from yamame.runs.durable_files import replace_atomically
from yamame.tools.plots import plot_attempts, plot_learning_curve

LEARNING_CURVE, ATTEMPTS = "learning_curve.png", "return_per_attempt.png"
PLOTS = {LEARNING_CURVE: "Return against environment steps", ATTEMPTS: "Return of each attempt"}
"""File beside the report -> its caption."""
MAIN_FIELDS = ("num_envs", "env_steps", "context_length", "updates_per_env_step", "seed")
"""Fields of the config, besides those of the task, that are listed."""
PACKAGES = ("yamame", "torch", "numpy", "gymnasium")
"""Packages whose versions are listed."""
MAX_OPEN_ROWS = 24
"""Sections with more rows are collapsed in `report.html`."""


@dataclass(frozen=True)
class Row:
    """A row of a table."""

    name: str
    value: str
    note: str = ""
    """Follows the value in parentheses."""
    strong: bool = False


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading and a table."""

    title: str
    rows: Sequence[Row]
    intro: str = ""
    is_code: bool = False
    """Whether names and values are config fields."""


@dataclass(frozen=True, kw_only=True)
class ReportData:
    """Content of both files."""

    title: str
    expected: str
    sections: Sequence[Section]
    """The results first; sections without rows are left out."""
    plots: Sequence[str]
    """Files of `PLOTS`."""
    commands: Sequence[str]


def write_report(run_dir: Path) -> None:
    """Write the report of a finished run into its directory, from `result.json` and the other files there.

    Does not raise: if the report cannot be written, prints one line on stderr.
    """
    try:
        result = _read_json(run_dir / RESULT)
        baseline = result.get("random_baseline")
        of_random = baseline["return_mean"] if baseline else None
        plot_learning_curve(run_dir / LEARNING_CURVE, read_metrics(run_dir), result, of_random)
        if len(result["return_per_attempt"]) > 1:
            plot_attempts(run_dir / ATTEMPTS, result, baseline)
        data = collect_report(run_dir, result, baseline)
        for name, text in ((REPORT, render_markdown(data)), (REPORT_HTML, render_html(data, run_dir))):
            with replace_atomically(run_dir / name) as partial:
                partial.write_text(text, encoding="utf-8", errors="backslashreplace")  # names of files
    except Exception as problem:  # a full disk, a file that was edited, or whatever plotting may raise
        reason, quoted = describe_error(problem), shlex.quote(str(run_dir))
        print(f"cannot write the report ({reason}); yamame resume {quoted} writes it again", file=sys.stderr)


def write_report_if_finished(result: Mapping[str, Any]) -> None:
    """Write the report of the run with this result; not of a run that was stopped, and only in the output process."""
    if "stopped_by" not in result and is_output_process():
        write_report(Path(result["run_dir"]))


def write_missing_report(run_dir: Path) -> None:
    """Write the report of a finished run if it has none: its process was killed after it wrote the result."""
    if not (run_dir / REPORT_HTML).exists():
        write_report(run_dir)


def collect_report(run_dir: Path, result: Mapping[str, Any], baseline: Mapping[str, Any] | None) -> ReportData:
    """Collect the content of a report from the results of the run and of random actions.

    Other files of the run that are missing or corrupted cost a section at most.
    """
    metadata, config = _read_json(run_dir / METADATA), _read_json(run_dir / CONFIG)
    flags, quoted = _flags_of_environment(config.get("env")), shlex.quote(str(run_dir))
    sections = (
        Section(title="Results", rows=list(_result_rows(result, baseline))),
        Section(title="Origin", rows=list(_origin_rows(metadata, result))),
        Section(
            title="Overrides",
            intro="Fields that differ from the recipe: of the task from the recipe's task, of the rest from the "
            "recipe's defaults for this task.",
            rows=list(_override_rows(metadata)),
            is_code=True,
        ),
        Section(title="Faults and relabeling", intro="Last logged values.", rows=list(_counter_rows(run_dir))),
        Section(
            title="Config",
            intro=f"The main fields; `{CONFIG}` has all of them.",
            rows=list(_config_rows(config)),
            is_code=True,
        ),
    )
    return ReportData(
        title=run_dir.resolve().name,
        expected=str(metadata.get("expected") or ""),
        sections=[section for section in sections if section.rows],
        plots=[LEARNING_CURVE, *([ATTEMPTS] if len(result["return_per_attempt"]) > 1 else [])],
        commands=(f"yamame eval {quoted} --trials 256{flags}", f"yamame resume {quoted}{flags}"),
    )


def _flags_of_environment(env: Any) -> str:
    """Return the flags that name the code of a user's environment, for a command that makes it."""
    described = env if isinstance(env, dict) else {}
    module, colon, _ = str(described.get("id", "")).partition(":")
    if isinstance(function := described.get("env_fn"), dict):
        test = described.get("eval_env_fn")
        return name_function(function.get("callable"), test.get("callable") if isinstance(test, dict) else None)
    return f" --import {module}" if colon else ""


def _result_rows(result: Mapping[str, Any], baseline: Mapping[str, Any] | None) -> Iterator[Row]:
    yield Row("mean return", _format_number(result["return_mean"]), _interval(result["return_ci95"]), strong=True)
    if baseline is not None:
        yield Row("mean return of random actions", _format_number(baseline["return_mean"]))
    attempts = result["return_per_attempt"]
    if len(attempts) > 1:
        yield Row("first and last attempt", f"{_format_number(attempts[0])} and {_format_number(attempts[-1])}")
    if result.get("success_rate") is not None:
        yield Row("success rate", _percent(result["success_rate"]))
    successes = result.get("success_per_attempt") or []
    if len(successes) > 1:
        yield Row("success of the first and last attempt", f"{_percent(successes[0])} and {_percent(successes[-1])}")
    if train_tasks := result.get("train_tasks"):
        mean, interval = _format_number(train_tasks["return_mean"]), _interval(train_tasks["return_ci95"])
        yield Row("mean return on the training tasks", mean, interval)
    for key, name, unit in (
        ("trials", "evaluation trials", ""),
        ("env_steps", "environment steps", ""),
        ("updates", "updates", ""),
        ("wall_seconds", "wall time", " s"),
        ("train_seconds", "training time", " s"),
        ("env_steps_per_second", "environment steps per second", ""),
        ("updates_per_second", "updates per second", ""),
    ):
        value = result.get(key)
        if value is not None:
            yield Row(name, f"{value:,}" if isinstance(value, int) else f"{_format_number(value)}{unit}")
    if reason := result.get("end_reason"):
        yield Row("training ended", str(reason))


def _origin_rows(metadata: Mapping[str, Any], result: Mapping[str, Any]) -> Iterator[Row]:
    for name, source in (("recipe", metadata), ("command", metadata), ("seed", result)):
        if source.get(name) not in (None, ""):
            yield Row(name, str(source[name]))
    yield Row("versions", ", ".join(_versions()))


def _versions() -> Iterator[str]:
    for package in PACKAGES:
        try:
            yield f"{package} {version(package)}"
        except PackageNotFoundError:  # run from its sources
            continue
    yield f"Python {platform.python_version()}"
    yield f"{platform.system()} {platform.machine()}"


def _override_rows(metadata: Mapping[str, Any]) -> Iterator[Row]:
    overrides = metadata.get("overrides")
    for path, pair in overrides.items() if isinstance(overrides, dict) else ():
        default, value = pair if isinstance(pair, list) and len(pair) == 2 else (None, pair)
        yield Row(path, json.dumps(value), f"default {json.dumps(default)}")


def _counter_rows(run_dir: Path) -> Iterator[Row]:
    """Faults and corrupted records if there were any, and the statistics of relabeling."""
    last: dict[str, Any] = {}
    for line in read_metrics(run_dir):
        last |= {key: value for key, value in line.items() if value is not None}
    counters = ("faults/restarts", "optim/nonfinite_updates", "replay/num_corrupted")
    groups = ("Faults", "Relabeling")
    known = [metric.key for metric in METRICS if metric.key in counters or metric.group in groups]
    others = [key for key in last if key not in known and "/" in key and get_metric(key).group in groups]
    for key in (*known, *others):
        value = last.get(key)
        if isinstance(value, int | float) and (value or key == "faults/restarts" or key.startswith("relabel/")):
            metric = get_metric(key)
            yield Row(metric.label, _format_number(value), metric.description)


def _config_rows(config: Mapping[str, Any]) -> Iterator[Row]:
    """The numbers, words and switches of the task that are set, and the main fields of the run."""
    env = config.get("env")
    fields = {f"env.{name}": value for name, value in (env.items() if isinstance(env, dict) else ()) if name != "type"}
    for path, value in (fields | {name: config.get(name) for name in MAIN_FIELDS}).items():
        if isinstance(value, str | int | float) and value != "":
            yield Row(path, str(value))


def _read_json(path: Path) -> dict[str, Any]:
    """The object in a file; empty if it cannot be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _interval(ci95: Sequence[float]) -> str:
    low, high = ci95
    return f"95 % CI: {_format_number(low)} to {_format_number(high)}"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"


def _format_number(value: float | None) -> str:
    """Three digits for small numbers, thousands separators for large ones, "unknown" for None, NaN and infinity."""
    if value is None or not math.isfinite(value):
        return "unknown"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def format_attempts_table(return_per_attempt: Sequence[float], width: int = 40) -> str:
    """Format the mean return of every attempt as a bar chart in plain text. Bars start at 0 or the lowest value."""
    low, high = min([0.0, *return_per_attempt]), max([0.0, *return_per_attempt])
    lines = ["attempt  mean return"]
    for attempt, value in enumerate(return_per_attempt, start=1):
        filled = round(width * (value - low) / (high - low)) if high > low else 0
        lines.append(f"{attempt:7d}  {value:11.3f}  {'█' * filled}".rstrip())
    return "\n".join(lines)


def render_markdown(data: ReportData) -> str:
    """Render `report.md`."""

    def cell(text: str, mark: str = "") -> str:
        return mark + " ".join(text.split()).replace("|", "\\|") + mark

    def table(section: Section) -> Iterator[str]:
        yield "| field | value |" if section.is_code else "|  |  |"
        yield "|---|---|"
        for row in section.rows:
            name, value = cell(row.name, code := "`" * section.is_code), cell(row.value, code or "**" * row.strong)
            yield f"| {name} | {value}{f' ({cell(row.note)})' if row.note else ''} |"

    lines = [f"# {data.title}", ""] + ([f"Expected: {data.expected}", ""] if data.expected else [])
    for place, section in enumerate(data.sections):
        lines += [f"## {section.title}", "", *([section.intro, ""] if section.intro else []), *table(section), ""]
        if place == 0:
            lines += [line for file in data.plots for line in (f"![{PLOTS[file]}]({file})", "")]
    return "\n".join([*lines, "## Next", "", "```", *data.commands, "```", ""])


CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""The page loads nothing and runs nothing."""
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
.plots { display: grid; gap: 1rem; margin: 2rem 0 0; max-width: 46rem; }
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


def render_html(data: ReportData, run_dir: Path) -> str:
    """Render `report.html`, one file with the plots that are in `run_dir` inside."""

    def cell(text: str, tag: str) -> str:
        return f"<{tag}>{escape(text)}</{tag}>" if tag else escape(text)

    def table(section: Section) -> Iterator[str]:
        for row in section.rows:
            code = "code" if section.is_code else ""
            name, value = cell(row.name, code), cell(row.value, code or ("strong" if row.strong else ""))
            note = f' <span class="note">({escape(row.note)})</span>' if row.note else ""
            yield f'<tr><th scope="row">{name}</th><td>{value}{note}</td></tr>'

    def plots() -> Iterator[str]:
        for file in data.plots:
            if (run_dir / file).is_file():
                content = b64encode((run_dir / file).read_bytes()).decode()
                yield f'<figure><img alt="{escape(PLOTS[file])}" src="data:image/png;base64,{content}"></figure>'

    body = [f"<h1>{escape(data.title)}</h1>"] + [f"<p>Expected: {escape(data.expected)}</p>"] * bool(data.expected)
    for place, section in enumerate(data.sections):
        outer, heading = ("details", "summary") if len(section.rows) > MAX_OPEN_ROWS else ("section", "h2")
        intro = f"<p>{escape(section.intro.replace('`', ''))}</p>" if section.intro else ""
        body += [f"<{outer}>{cell(section.title, heading)}{intro}", "<table><tbody>", *table(section)]
        body += ["</tbody></table>", f"</{outer}>"]
        if place == 0:
            body += ['<div class="plots">', *plots(), "</div>"]
    body += [f"<section><h2>Next</h2>{cell(chr(10).join(data.commands), 'pre')}</section>"]
    return "\n".join(
        [
            "<!doctype html>",
            f'<html lang="en"><head><meta charset="utf-8">{cell(data.title, "title")}',
            f'<meta http-equiv="Content-Security-Policy" content="{escape(CONTENT_SECURITY_POLICY)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<style>{STYLE}</style></head><body>",
            *body,
            "</body></html>",
            "",
        ]
    )
