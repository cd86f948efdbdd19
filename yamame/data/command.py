"""`yamame data info | verify | repair | export | import`: what follows these words, and what comes of it."""

import argparse
import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from yamame.settings.command_line import refuse

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
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    parser.set_defaults(command=lambda options, rest: _run(act, options, rest))
    return parser


def _run(act: Callable[[argparse.Namespace], _Report], options: argparse.Namespace, rest: list[str]) -> int:
    refuse(rest)
    for_programs, for_people, exit_code = act(options)
    print(json.dumps(for_programs) if options.json else for_people)
    return exit_code


def _info(options: argparse.Namespace) -> _Report:
    from yamame.data.info import collect_info
    from yamame.data.source import DataSource

    info = collect_info(DataSource.from_path(options.path))
    return info.to_json(), info.to_text(), 0


def _verify(options: argparse.Namespace) -> _Report:
    from yamame.data.source import DataSource
    from yamame.replay.examine import CorruptedRecord, verify_store

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
    from yamame.data.source import DataSource
    from yamame.replay.repair import repair_store
    from yamame.run.run_directory import lock_run_dir

    source = DataSource.from_path(options.path)
    with nullcontext() if source.run is None else lock_run_dir(source.run):
        result = repair_store(source.store, source.schema)
    lines = [f"{result.num_recovered:,} trajectories saved, {len(result.lost):,} lost; the old store is {result.backup_path}"]
    lines += [f"lost: {record}" for record in result.lost]
    lost = [{"id": record.record_id, "reason": record.reason} for record in result.lost]
    return {"recovered": result.num_recovered, "lost": lost, "backup_path": str(result.backup_path)}, "\n".join(lines), 0


def _export(options: argparse.Namespace) -> _Report:
    from yamame.data.exchange import export_run

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
    from yamame.data.exchange import import_into

    count = import_into(options.path, options.dataset, protected=options.protected)
    return {"imported": count, "protected": options.protected}, f"{count:,} trajectories imported", 0
