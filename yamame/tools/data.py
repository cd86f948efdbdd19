"""Command line of `yamame data`."""

import argparse
import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yamame.errors import UserError
from yamame.tools.options import add_command, add_flags, reject_unknown, whole_number

if TYPE_CHECKING:
    from yamame.data.verify import CorruptedRecord

_Output = tuple[dict[str, Any], str, int]
"""JSON, text, and the exit code."""


def register(subparsers: Any) -> None:
    """Add `yamame data`."""
    data = subparsers.add_parser("data", help="inspect, verify, repair, export or import replay data")
    verbs = data.add_subparsers(metavar="VERB", required=True, parser_class=type(data))
    _add(verbs, "info", _info, "summarize the trajectories of a store")
    _add(verbs, "verify", _verify, "check every record; exit code 1 if any is corrupted")
    _add(verbs, "repair", _repair, "rebuild the store from its valid records; the old store is kept as a backup")
    export = _add(verbs, "export", _export, "write trajectories to a Minari dataset")
    export.add_argument(
        "--output",
        required=True,
        metavar="NAME_OR_DIR",
        help="a Minari name such as maze/expert-v0, or a new directory",
    )
    bring = _add(verbs, "import", _import, "add the episodes of a Minari dataset to the replay store of a run")
    bring.add_argument("dataset", metavar="NAME_OR_DIR", help="the name of a local Minari dataset, or its directory")
    bring.add_argument("--protected", action="store_true", help="never evict the imported trajectories")
    _add_histories(verbs)


def _add(verbs: Any, verb: str, act: Callable[[argparse.Namespace], _Output], about: str) -> argparse.ArgumentParser:
    parser = add_command(verbs, verb, partial(_run, act), help=about, description=about)
    parser.add_argument("path", type=Path, metavar="RUN", help="a run directory, or a store such as RUN/replay")
    add_flags(parser, "--import", "--json")
    return parser


def _add_histories(verbs: Any) -> None:
    about = "write learning histories to a new replay store, for --algorithm distillation"
    histories = add_command(verbs, "histories", _histories, help=about, description=f"{about}. Flags of the task too.")
    histories.add_argument(
        "recipe",
        metavar="RECIPE",
        nargs="?",
        help="the task; --env.FIELD VALUE changes it. With --from it is that of the runs: both may be left out",
    )
    histories.add_argument("--output", required=True, type=Path, metavar="DIR", help="directory of the new store")
    histories.add_argument(
        "--from",
        dest="runs",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="runs that each learned one task: the trials of each become a history (default: a scripted learner)",
    )
    histories.add_argument("--count", type=whole_number, metavar="N", help="scripted: number of histories (1000)")
    histories.add_argument("--initial-eps", type=float, metavar="P", help="scripted: noise of the first step (1)")
    histories.add_argument("--final-eps", type=float, metavar="P", help="scripted: noise of the last step (0)")
    histories.add_argument("--seed", type=whole_number, metavar="N", help="scripted: random seed (0)")
    histories.add_argument(
        "--keep-every", type=whole_number, default=1, metavar="K", help="of K episodes keep the first (1: all)"
    )
    add_flags(histories, "--import", "--json")


def _run(act: Callable[[argparse.Namespace], _Output], options: argparse.Namespace, rest: list[str]) -> int:
    reject_unknown(rest)
    for_programs, for_people, exit_code = act(options)
    print(json.dumps(for_programs) if options.json else for_people, file=options.stdout)
    return exit_code


def _info(options: argparse.Namespace) -> _Output:
    from yamame.tools.run_data import DataSource, collect_info

    info = collect_info(DataSource.from_path(options.path))
    return asdict(info), info.to_text(), 0


def _verify(options: argparse.Namespace) -> _Output:
    from yamame.data.verify import verify_store
    from yamame.tools.run_data import DataSource

    source = DataSource.from_path(options.path)
    found = verify_store(source.store, source.schema, needed_ids=source.needed_ids())

    lines = [f"{found.num_valid:,} valid trajectories"]
    lines += [f"corrupted: {record}" for record in found.corrupted]
    lines += [f"quarantined: {record}" for record in found.quarantined]
    lines += [f"missing: trajectory {record_id}, which the latest checkpoint needs" for record_id in found.missing]
    lines += [f"lost in a repair: trajectory {record_id}" for record_id in found.lost]
    report = {
        "valid": found.num_valid,
        "corrupted": _listed(found.corrupted),
        "quarantined": _listed(found.quarantined),
        "missing": found.missing,
        "lost": found.lost,
    }
    return report, "\n".join(lines), int(bool(found.corrupted or found.quarantined or found.missing))


def _repair(options: argparse.Namespace) -> _Output:
    from yamame.data.verify import repair_store
    from yamame.runs.directory import lock_run_dir
    from yamame.tools.run_data import DataSource

    source = DataSource.from_path(options.path)
    with nullcontext() if source.run is None else lock_run_dir(source.run):
        result = repair_store(source.store, source.schema, needed_ids=source.needed_ids())
    lines = [
        f"{result.num_recovered:,} trajectories recovered, {len(result.lost):,} lost",
        f"backup of the old store: {result.backup_path}",
    ]
    lines += [f"lost: {record}" for record in result.lost]
    report = {
        "recovered": result.num_recovered,
        "lost": _listed(result.lost),
        "backup_path": str(result.backup_path),
    }
    return report, "\n".join(lines), 0


def _listed(records: "Sequence[CorruptedRecord]") -> list[dict[str, str]]:
    return [{"id": record.record_id, "reason": record.reason} for record in records]


def _export(options: argparse.Namespace) -> _Output:
    from yamame.tools.run_data import export_run

    exported = export_run(options.path, options.output)
    report = {
        "name": exported.name,
        "data": str(exported.data),
        "episodes": exported.episodes,
        "steps": exported.steps,
    }
    text = f"{exported.data}: {exported.episodes:,} episodes, {exported.steps:,} steps, as {exported.name}"
    return report, text, 0


def _import(options: argparse.Namespace) -> _Output:
    from yamame.tools.run_data import import_into

    count = import_into(options.path, options.dataset, protected=options.protected)
    return {"imported": count, "protected": options.protected}, f"{count:,} trajectories imported", 0


def _histories(options: argparse.Namespace, rest: list[str]) -> int:
    from yamame.recipes import config_from_flags, load_recipe
    from yamame.tools.histories import (
        ScriptedLearner,
        run_histories,
        scripted_histories,
        task_of_runs,
        write_histories,
    )

    if others := [flag for flag in rest if flag.startswith("--") and not flag.startswith("--env.")]:
        reject_unknown(others)
    recipe = None if options.recipe is None else load_recipe(options.recipe)
    of_script = {name: getattr(options, name) for name in ("count", "seed", "initial_eps", "final_eps")}
    given = {name: value for name, value in of_script.items() if value is not None}
    if options.runs and given:
        flag = next(iter(given)).replace("_", "-")
        raise UserError(f"--{flag} is for a scripted learner: leave out --from, or --{flag}")
    noise = {name: value for name, value in given.items() if name.endswith("_eps")}
    script = ScriptedLearner(keep_every=options.keep_every, **noise)
    differing: list[str] = []
    if options.runs:
        env, differing = task_of_runs(options.runs, recipe=recipe, flags=rest)
        histories = run_histories(options.runs, keep_every=script.keep_every)
    elif recipe is None:
        raise UserError("RECIPE is missing: give the task of a scripted learner, or runs with --from")
    else:
        env = config_from_flags(recipe, [], rest).env
        count, seed = given.get("count", 1000), given.get("seed", 0)
        histories = scripted_histories(env, script, count=count, seed=seed)
    lengths = write_histories(options.output, histories, env, differing=differing)
    report = {"output": str(options.output), "histories": len(lengths), "steps": int(lengths.sum())}
    text = f"{options.output}: {len(lengths):,} histories, {int(lengths.sum()):,} steps"
    print(json.dumps(report) if options.json else text, file=options.stdout)
    return 0
