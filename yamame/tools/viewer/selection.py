"""The runs that are looked at together: their metrics, and which of them are seeds of one experiment."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from yamame.errors import UserError
from yamame.run_dir import METRICS
from yamame.tools.viewer.metric_table import MetricTable, MetricTableCache
from yamame.tools.viewer.run_index import RunEntry, RunIndex, UnknownRunError
from yamame.tools.viewer.safe_files import UnreadableError
from yamame.tools.viewer.summary import RunSummary, SummaryCache

MAX_RUNS = 500
_SEPARATORS = " -_/.="


@dataclass(frozen=True, kw_only=True)
class SelectedRun:
    """One run with what it measured."""

    entry: RunEntry
    columns: MetricTable
    summary: RunSummary


@dataclass(frozen=True, kw_only=True)
class Series:
    """What has a line of its own in every panel: a run, or the seeds of one experiment together."""

    series_id: str
    """The run's name for programs, or the group's."""
    label: str
    runs: list[SelectedRun]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Some runs, as far as they can be read."""

    chosen: list[SelectedRun]
    warnings: list[str]
    """What is not shown, and why; a sentence each."""

    @property
    def version(self) -> str:
        """Another one whenever there is something else to see."""
        seen = ("{}.{}.{}".format(*run.columns.version, run.summary.state) for run in self.chosen)
        return "-".join(seen) + f"-{len(self.warnings)}"

    def lines(self, *, grouped: bool) -> list[Series]:
        """In the order of the runs; `grouped` joins those that differ in nothing but their seed."""
        if not grouped:
            return [Series(series_id=run.entry.run_id, label=run.entry.name, runs=[run]) for run in self.chosen]
        groups: dict[str, list[SelectedRun]] = {}
        for run in self.chosen:
            groups.setdefault(run.summary.group, []).append(run)
        return [Series(series_id=f"g{group}", label=_label(runs), runs=runs) for group, runs in groups.items()]


def select(catalogue: RunIndex, summaries: SummaryCache, cache: MetricTableCache, run_ids: Sequence[str]) -> Selection:
    """The runs of these names; one that has gone or cannot be read is a problem, not an error.

    Raises `UserError` for more than `MAX_RUNS`.
    """
    if len(run_ids) > MAX_RUNS:
        raise UserError(f"choose at most {MAX_RUNS} runs at once")
    chosen: list[SelectedRun] = []
    warnings: list[str] = []
    entries: list[RunEntry] = []
    for run_id in dict.fromkeys(run_ids):
        try:
            entries.append(catalogue.entry(run_id))
        except UnknownRunError as problem:
            warnings.append(str(problem))
    for entry, summary in zip(entries, summaries.of(entries), strict=True):
        warnings += [f"{entry.name}: {problem}" for problem in summary.warnings]
        try:
            columns = cache.of(entry.path / METRICS)
        except UnreadableError as problem:
            warnings.append(f"{entry.name}: {problem}")
            continue
        warnings += [f"{entry.name}: {problem}" for problem in columns.warnings]
        chosen.append(SelectedRun(entry=entry, columns=columns, summary=summary))
    return Selection(chosen=chosen, warnings=list(dict.fromkeys(warnings)))


def _label(runs: Sequence[SelectedRun]) -> str:
    """What the names of a group's runs begin with, or their recipe; and how many there are."""
    if len(runs) == 1:
        return runs[0].entry.name
    common = _common_beginning([run.entry.name for run in runs]).rstrip(_SEPARATORS + "0123456789")
    common = common.removesuffix("seed").rstrip(_SEPARATORS)
    return f"{common if len(common) > 2 else runs[0].summary.recipe or 'runs'} ({len(runs)} seeds)"


def _common_beginning(names: Sequence[str]) -> str:
    first, last = min(names), max(names)
    alike = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return "".join(char for char, _ in alike)
