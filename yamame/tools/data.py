"""`yamame data info | verify | repair | export | import`: what follows these words, and what comes of it."""

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from yamame.data.codec import decode
from yamame.data.database import RecordTag
from yamame.data.minari import ExportResult, export_trajectories, read_trajectories
from yamame.data.salvage import read_all
from yamame.data.salvage_process import Kind
from yamame.data.schema import TaskSpec, TrajectorySchema
from yamame.data.store import LMDBReplayStore
from yamame.data.verify import check_record, iter_valid_trajectories, require_store
from yamame.errors import UserError
from yamame.run_dir import CONFIG, REPLAY, replay_dirs, resolve_run_dir
from yamame.runs import read_config, read_task_spec
from yamame.tools.options import add_import, refuse

_Report = tuple[dict[str, Any], str, int]
"""For programs, for people, and the exit code."""


def add_data(commands: Any) -> None:
    """Add the command to a parser's; what a sub-command does sets `command`, as for all others."""
    data = commands.add_parser("data", help="what a run has experienced: look at it, mend it, take it out, bring it in")
    verbs = data.add_subparsers(metavar="VERB", required=True, parser_class=type(data))
    _add(verbs, "info", _info, "how much there is, of what, by which policy")
    _add(verbs, "verify", _verify, "read everything; name what is damaged, and exit with 1 where anything is")
    _add(
        verbs, "repair", _repair, "put a store of all that is good in the place of a damaged one, which is kept beside"
    )
    export = _add(verbs, "export", _export, "write all trajectories as a Minari dataset")
    export.add_argument(
        "--output",
        required=True,
        metavar="NAME_OR_DIR",
        help="a Minari name such as maze/expert-v0, or a new directory",
    )
    bring = _add(verbs, "import", _import, "add the episodes of a Minari dataset to what a run learns from")
    bring.add_argument("dataset", metavar="NAME_OR_DIR", help="the name of a local Minari dataset, or its directory")
    bring.add_argument("--protected", action="store_true", help="keep them for good, beside the replay's capacity")


def _add(verbs: Any, verb: str, act: Callable[[argparse.Namespace], _Report], about: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(verb, help=about, description=about, allow_abbrev=False)
    parser.add_argument("path", type=Path, metavar="RUN", help="a run directory, or a store such as RUN/replay")
    add_import(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    parser.set_defaults(command=lambda options, rest: _run(act, options, rest))
    return parser


def _run(act: Callable[[argparse.Namespace], _Report], options: argparse.Namespace, rest: list[str]) -> int:
    refuse(rest)
    for_programs, for_people, exit_code = act(options)
    print(json.dumps(for_programs) if options.json else for_people)
    return exit_code


def _info(options: argparse.Namespace) -> _Report:
    # MERGED
    # MERGED

    info = collect_info(DataSource.from_path(options.path))
    return info.to_json(), info.to_text(), 0


def _verify(options: argparse.Namespace) -> _Report:
    # MERGED
    from yamame.data.verify import CorruptedRecord, verify_store

    source = DataSource.from_path(options.path)
    found = verify_store(source.store, source.schema)

    def listed(records: list[CorruptedRecord]) -> list[dict[str, str]]:
        return [{"id": record.record_id, "reason": record.reason} for record in records]

    lines = [f"{found.num_valid:,} trajectories are good"]
    lines += [f"damaged: {record}" for record in found.corrupted]
    lines += [f"set aside: {record}" for record in found.quarantined]
    report = {"valid": found.num_valid, "corrupted": listed(found.corrupted), "quarantined": listed(found.quarantined)}
    return report, "\n".join(lines), int(bool(found.corrupted or found.quarantined))


def _repair(options: argparse.Namespace) -> _Report:
    # MERGED
    from yamame.data.verify import repair_store
    from yamame.run_dir import lock_run_dir

    source = DataSource.from_path(options.path)
    with nullcontext() if source.run is None else lock_run_dir(source.run):
        result = repair_store(source.store, source.schema)
    lines = [
        f"{result.num_recovered:,} trajectories saved, {len(result.lost):,} lost; the old store is {result.backup_path}"
    ]
    lines += [f"lost: {record}" for record in result.lost]
    lost = [{"id": record.record_id, "reason": record.reason} for record in result.lost]
    return (
        {"recovered": result.num_recovered, "lost": lost, "backup_path": str(result.backup_path)},
        "\n".join(lines),
        0,
    )


def _export(options: argparse.Namespace) -> _Report:
    # MERGED

    exported = export_run(options.path, options.output)
    report = {
        "name": exported.name,
        "data": str(exported.data),
        "episodes": exported.episodes,
        "steps": exported.steps,
    }
    text = f"{exported.data}: {exported.episodes:,} episodes, {exported.steps:,} steps, as {exported.name}"
    return report, text, 0


def _import(options: argparse.Namespace) -> _Report:
    # MERGED

    count = import_into(options.path, options.dataset, protected=options.protected)
    return {"imported": count, "protected": options.protected}, f"{count:,} trajectories imported", 0


@dataclass(frozen=True, kw_only=True)
class DataSource:
    """Where trajectories lie, and the run that they belong to, if they do."""

    store: Path
    run: Path | None

    @staticmethod
    def from_path(path: Path) -> "DataSource":
        """A run's or a store's directory; `UserError` where there is neither, and for a run with several stores."""
        if (path / "data.mdb").is_file():
            return DataSource(store=path, run=path.parent if (path.parent / CONFIG).is_file() else None)
        run = resolve_run_dir(path)
        if len(stores := replay_dirs(run)) > 1:
            named = ", ".join(map(str, stores))
            raise UserError(f"{run} has a replay for each of its learners: name one of {named}")
        return DataSource(store=require_store(run / REPLAY), run=run)

    @property
    def schema(self) -> TrajectorySchema | None:
        """What its trajectories look like; None where no run says so."""
        return None if self.run is None else task_spec_of(self.run).schema


def task_spec_of(run: Path) -> TaskSpec:
    """What a run's files say of its task."""
    return read_task_spec(run)


@dataclass(frozen=True, kw_only=True)
class StoreInfo:
    """The trajectories that lie on disk, those about to be evicted included."""

    trajectories: int
    steps: int
    tasks: dict[str, int]
    """Task -> number of its trajectories."""
    record_bytes: int
    """Of the trajectories, as they are stored."""
    file_bytes: int
    """Of the whole database."""
    policy_versions: tuple[int, int] | None
    """Updates behind the policy that made the oldest and the newest of them; None where there are none."""
    protected: int
    imported: int
    corrupted: int
    """Records set aside, or to be set aside by who reads them next."""

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return asdict(self)

    def to_text(self) -> str:
        """A line for each."""
        tasks = ", ".join(f"{count:,} of {task or 'no name'}" for task, count in self.tasks.items())
        oldest, newest = self.policy_versions or (0, 0)
        return "\n".join(
            [
                f"trajectories   {self.trajectories:,}" + (f" ({tasks})" if tasks else ""),
                f"steps          {self.steps:,}",
                f"bytes          {self.record_bytes:,} of trajectories, {self.file_bytes:,} of the file",
                f"made by        the policy after {oldest:,} to {newest:,} updates",
                f"protected      {self.protected:,}",
                f"imported       {self.imported:,}",
                f"corrupted      {self.corrupted:,}",
            ]
        )


def collect_info(source: DataSource) -> StoreInfo:
    """Read everything, change nothing; a run may train meanwhile."""
    form = source.schema
    tasks: Counter[str] = Counter()
    versions: list[int] = []
    steps = record_bytes = corrupted = 0
    marks: Counter[RecordTag | None] = Counter()
    for found in read_all(source.store):
        if found.kind is Kind.REASON or check_record(found, form):
            corrupted += 1
        elif found.kind is Kind.MARK:
            marks[RecordTag.from_value(found.value)] += 1
        elif found.kind is Kind.RECORD:
            trajectory = decode(found.value)
            tasks[trajectory.task] += 1
            versions.append(trajectory.policy_version)
            steps += len(trajectory)
            record_bytes += len(found.value)
    return StoreInfo(
        trajectories=len(versions),
        steps=steps,
        tasks=dict(tasks),
        record_bytes=record_bytes,
        file_bytes=(source.store / "data.mdb").stat().st_size,
        policy_versions=(min(versions), max(versions)) if versions else None,
        protected=marks[RecordTag.PROTECTED],
        imported=marks[RecordTag.IMPORTED],
        corrupted=corrupted,
    )


_EPISODES_AT_ONCE = 64
_Item = TypeVar("_Item")


def export_run(path: Path, name_or_directory: str) -> ExportResult:
    """All good trajectories of a run as a Minari dataset; the run may train meanwhile."""
    source, run = _of_a_run(path)
    task = task_spec_of(run)
    return export_trajectories(iter_valid_trajectories(source.store, task.schema), task, name_or_directory)


def import_into(path: Path, dataset: str, *, protected: bool) -> int:
    """Add a dataset's episodes to a run's store; how many. Nothing is added unless all of them fit.

    The run may train meanwhile, and takes them up at its next round. They are no part of its own past, so that
    resuming it does not take them out again.
    """
    source, run = _of_a_run(path)
    task, replay = task_spec_of(run), read_config(run).replay
    for _ in read_trajectories(dataset, task):
        pass
    count = 0
    with LMDBReplayStore(
        source.store,
        capacity_trajectories=replay.capacity_trajectories,
        capacity_bytes=replay.capacity_bytes,
        cache_bytes=0,
        max_bytes=replay.max_disk_bytes,
        compression_level=replay.compression_level,
        schema=task.schema,
    ) as store:
        for trajectories in _batched(read_trajectories(dataset, task), _EPISODES_AT_ONCE):
            mark = RecordTag.PROTECTED if protected else RecordTag.IMPORTED
            count += len(store.extend(trajectories, mark=mark))
    return count


def _of_a_run(path: Path) -> tuple[DataSource, Path]:
    source = DataSource.from_path(path)
    if source.run is None:
        raise UserError(f"{path} belongs to no run that says what its environment is like: give a run directory")
    return source, source.run


def _batched(items: Iterator[_Item], size: int) -> Iterator[list[_Item]]:
    while batch := list(islice(items, size)):
        yield batch
