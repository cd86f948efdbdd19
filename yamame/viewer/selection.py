"""The runs that are looked at together: their metrics, and which of them are seeds of one experiment."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from yamame.records.errors import UserError
from yamame.run.run_directory import METRICS
from yamame.viewer.catalogue import Catalogue, Entry, UnknownRunError
from yamame.viewer.columns import Columns, ColumnsCache
from yamame.viewer.files import UnreadableError
from yamame.viewer.summary import Summaries, Summary

MOST_RUNS = 500
_SEPARATORS = " -_/.="


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """One run with what it measured."""

    entry: Entry
    columns: Columns
    summary: Summary


@dataclass(frozen=True, kw_only=True)
class Line:
    """What has a line of its own in every panel: a run, or the seeds of one experiment together."""

    who: str
    """The run's name for programs, or the group's."""
    label: str
    runs: list[Chosen]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Some runs, as far as they can be read."""

    chosen: list[Chosen]
    problems: list[str]
    """What is not shown, and why; a sentence each."""

    @property
    def version(self) -> str:
        """Another one whenever there is something else to see."""
        seen = ("{}.{}.{}".format(*run.columns.version, run.summary.state) for run in self.chosen)
        return "-".join(seen) + f"-{len(self.problems)}"

    def lines(self, *, grouped: bool) -> list[Line]:
        """In the order of the runs; `grouped` joins those that differ in nothing but their seed."""
        if not grouped:
            return [Line(who=run.entry.run_id, label=run.entry.name, runs=[run]) for run in self.chosen]
        groups: dict[str, list[Chosen]] = {}
        for run in self.chosen:
            groups.setdefault(run.summary.group, []).append(run)
        return [Line(who=f"g{group}", label=_label(runs), runs=runs) for group, runs in groups.items()]


def select(catalogue: Catalogue, summaries: Summaries, cache: ColumnsCache, run_ids: Sequence[str]) -> Selection:
    """The runs of these names; one that has gone or cannot be read is a problem, not an error.

    Raises `UserError` for more than `MOST_RUNS`.
    """
    if len(run_ids) > MOST_RUNS:
        raise UserError(f"choose at most {MOST_RUNS} runs at once")
    chosen: list[Chosen] = []
    problems: list[str] = []
    entries: list[Entry] = []
    for run_id in dict.fromkeys(run_ids):
        try:
            entries.append(catalogue.entry(run_id))
        except UnknownRunError as problem:
            problems.append(str(problem))
    for entry, summary in zip(entries, summaries.of(entries), strict=True):
        problems += [f"{entry.name}: {problem}" for problem in summary.problems]
        try:
            columns = cache.of(entry.path / METRICS)
        except UnreadableError as problem:
            problems.append(f"{entry.name}: {problem}")
            continue
        problems += [f"{entry.name}: {problem}" for problem in columns.problems]
        chosen.append(Chosen(entry=entry, columns=columns, summary=summary))
    return Selection(chosen=chosen, problems=list(dict.fromkeys(problems)))


def _label(runs: Sequence[Chosen]) -> str:
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
