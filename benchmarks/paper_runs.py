"""Train the paper's tasks at the paper's number of environment steps, one run after the other on one thread.

Start, and start again after any interruption, from the root of the repository, which has a folder runs/:

    nohup setsid nice -n 19 .venv/bin/python benchmarks/paper_runs.py >> runs/paper.log 2>&1 &

Every run resumes exactly where it was; SIGINT and SIGTERM stop it with a checkpoint. Finished runs are kept, and runs
that failed are tried again at the next start. `--json` has the results, also of runs that are not finished; it can be
deleted as long as there are the run directories. Other commands:

    python benchmarks/paper_runs.py --status           what is finished and how far the others are
    python benchmarks/paper_runs.py --table            the table for docs/results.md
    python benchmarks/paper_runs.py --rows 'popgym-*'  rows by name, also those that wait for something
"""

import os

os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # PyTorch reads them when it is imported

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NoReturn

from filelock import FileLock, Timeout
from paper_endings import EndEarly, core_seconds
from paper_rows import ROWS, Run, all_runs, anneal_env_steps
from typing_extensions import override

from yamame.config.differences import diff_configs
from yamame.errors import UserError, describe_error
from yamame.metrics.registry import EVAL_HIGH, EVAL_LOW, EVAL_RETURN, EVAL_SUCCESS, read_metrics
from yamame.run_config import RunConfig
from yamame.runs.directory import CONFIG
from yamame.runs.durable_files import write_json
from yamame.training import start as runs
from yamame.training.callbacks import Callback, RunProgress
from yamame.training.run_files import RunResult, random_baseline, read_config, read_result

Record = dict[str, Any]
"""A run in the JSON file."""

MAX_POINTS = 100
NICE = 19
COMMITS = "commits.txt"
"""File in a run directory with the commits whose code trained it."""
FINISHED, UNFINISHED, FAILED, WAITING = "finished", "unfinished", "failed", "waiting"


def main() -> int:
    options = parse(sys.argv[1:])
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        queue = Queue(options.runs_dir, options.json, select(options.rows, tiny=options.tiny))
        if options.table:
            print_table(queue.records)
            return 0
        if options.status:
            queue.print_status()
            return 0
        for run in all_runs(tiny=options.tiny):
            run.config(), run.metadata()  # a wrong flag in any row raises before all training
        os.nice(NICE - os.nice(0))
        return queue.work()
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return stopped("a signal")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    summary, *_ = (__doc__ or "").splitlines()
    parser = argparse.ArgumentParser(description=summary, allow_abbrev=False)
    default_json = Path(__file__).with_suffix(".json")
    parser.add_argument("--runs-dir", type=Path, default=Path("runs/paper"), help="folder of the run directories")
    parser.add_argument("--json", type=Path, default=default_json, metavar="PATH", help="file of the results")
    parser.add_argument("--rows", nargs="+", metavar="NAME", help="rows or runs by name; * stands for any characters")
    parser.add_argument("--status", action="store_true", help="print how far the runs are, and train nothing")
    parser.add_argument("--table", action="store_true", help="print the results as a table, and train nothing")
    parser.add_argument("--tiny", action="store_true", help="every row at a size of seconds")
    return parser.parse_args(arguments)


def select(patterns: Sequence[str] | None, *, tiny: bool) -> list[Run]:
    """Return the runs whose row or own name fits a pattern; None: all that wait for nothing."""
    found = list(all_runs(tiny=tiny))
    if patterns is None:
        return [run for run in found if not run.row.after]
    for pattern in patterns:
        if not any(_fits(run, pattern) for run in found):
            raise UserError(f"no row {pattern!r}: choose among {', '.join(row.name for row in ROWS)}")
    return [run for run in found if any(_fits(run, pattern) for pattern in patterns)]


class Queue:
    """The selected runs, their directories and the file of the results."""

    def __init__(self, directory: Path, json_path: Path, selected: Sequence[Run]) -> None:
        self.directory, self.json_path, self.selected = directory, json_path, selected
        self.records: dict[str, Record] = {}
        if json_path.exists():
            try:
                self.records = json.loads(json_path.read_text(encoding="utf-8"))["runs"]
            except (ValueError, KeyError, TypeError) as error:
                raise UserError(f"{json_path} cannot be read ({error}): restore it or delete it") from error

    def work(self) -> int:
        """Bring all selected runs to their end. Return the exit code."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with _locked(self.directory):
            commit = current_commit()
            for run in self.selected:
                if self._status(run) == FINISHED:
                    continue
                self._write(run, UNFINISHED)
                try:
                    result = train(run, self.directory / run.name, commit)
                except Exception as error:
                    reason = str(error) if isinstance(error, UserError) else describe_error(error)
                    print(f"{run.name} failed: {reason}", file=sys.stderr, flush=True)
                    self._write(run, FAILED, reason)
                    continue
                if result.get("stopped_by"):
                    self._write(run, UNFINISHED)
                    return stopped(result["stopped_by"])
                self._write(run, FINISHED)
                print(f"{run.name}: {_shown_result(self.records[run.name])}", file=sys.stderr, flush=True)
            left = [run.name for run in self.selected if self._status(run) != FINISHED]
        if left:
            print(f"not finished: {', '.join(left)}; the same command tries them again", file=sys.stderr)
        return 1 if left else 0

    def print_status(self) -> None:
        """Print a line for each selected run."""
        print("| run | status | steps | of | updates | hours of a core | newest evaluations |")
        print("|---|---|---|---|---|---|---|")
        for run in self.selected:
            status = self._status(run)
            record = (
                self.records[run.name] if status == FINISHED else make_record(run, self.directory / run.name, status)
            )
            newest = " / ".join(f"{point['return']:.3g}" for point in record["curve"][-4:])
            print(
                f"| {run.name} | {record['status']} | {record['steps']:,} | {run.config().env_steps:,} | "
                f"{record['updates']:,} | {record['core_seconds'] / 3600:.2f} | {newest} |"
            )

    def _status(self, run: Run) -> str:
        record = self.records.get(run.name)
        return record["status"] if record else WAITING

    def _write(self, run: Run, status: str, note: str = "") -> None:
        self.records[run.name] = make_record(run, self.directory / run.name, status, note)
        order = [each.name for each in all_runs()]
        ordered = {name: self.records[name] for name in order if name in self.records}
        self.json_path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.json_path, {"runs": ordered})


class NoteCommit(Callback):
    """Writes the commits whose code trained a run into its directory."""

    def __init__(self, commit: str) -> None:
        self.commit = commit

    @override
    def on_start(self, run: RunProgress) -> None:
        noted = read_commits(run.directory)
        if self.commit not in noted[-1:]:
            text = "".join(f"{commit}\n" for commit in [*noted, self.commit])
            (run.directory / COMMITS).write_text(text, encoding="utf-8")


def train(run: Run, directory: Path, commit: str) -> RunResult:
    """Bring a run to its end, from wherever it is; return its result, in which `stopped_by` names a signal."""
    config = run.config()
    callbacks = (EndEarly(hours=run.row.hours, annealed=anneal_env_steps(config)), NoteCommit(commit))
    if not (directory / CONFIG).exists():
        return runs.train_run(config, run.metadata(), run_dir=directory, quiet=True, callbacks=callbacks)
    result = read_result(directory)
    if result is not None:
        return result
    require_same_config(directory, config)
    return runs.resume_run(directory, env_steps=None, quiet=True, config=config, callbacks=callbacks)


def require_same_config(directory: Path, config: RunConfig) -> None:
    """Raise `UserError` if a run began with another config, whose rest would not be the row's run."""
    changed = diff_configs(read_config(directory), config)  # a field that is newer than the run has its default
    if changed:
        raise UserError(
            f"{directory} began with another config ({', '.join(changed)}): check out the commit in its {COMMITS}, or "
            "delete it to begin again"
        )


def make_record(run: Run, directory: Path, status: str, note: str = "") -> Record:
    """Return what the JSON file has of a run: its result so far."""
    started = (directory / CONFIG).exists()
    result = (read_result(directory) if started else None) or {}
    lines = read_metrics(directory)
    last: Record = lines[-1] if lines else {}
    baseline = random_baseline(directory) if started else None
    end_reason = result.get("end_reason") or ""
    return {
        "status": status,
        "command": run.command(),
        "commit": " ".join(read_commits(directory)),
        "seed": run.seed,
        "steps": result.get("env_steps", last.get("env_steps", 0)),
        "updates": result.get("updates", last.get("updates", 0)),
        "seconds": result.get("train_seconds", last.get("wall_seconds", 0.0)),
        "core_seconds": core_seconds(directory),
        "return_mean": result.get("return_mean"),
        "return_ci95": result.get("return_ci95"),
        "success_rate": result.get("success_rate"),
        "success_ci95": (result.get("success_per_attempt_ci95") or [None])[-1],
        "random_return": baseline and baseline["return_mean"],
        "random_success": baseline and baseline["success_rate"],
        "paper": run.row.paper,
        "source": run.row.source,
        "measure": run.row.measure,
        "note": note or ("" if end_reason == "all environment steps made" else end_reason),
        "curve": thin([_point(line) for line in lines if line.get(EVAL_RETURN) is not None]),
    }


def thin(points: Sequence[Record]) -> list[Record]:
    """Return at most `MAX_POINTS` points, evenly spread, the last one included."""
    stride = -(-len(points) // MAX_POINTS) or 1
    return list(points[::-1][::stride][::-1])


def print_table(records: dict[str, Record]) -> None:
    """Print the table for docs/results.md."""
    print(
        "| task | paper | ours | random | steps | updates | hours of a core | note |\n|---|---|---|---|---|---|---|---|"
    )
    for name, record in records.items():
        paper = f"{record['paper']} ({record['source']})" if record["paper"] else record["source"]
        note = "; ".join(filter(None, ("" if record["status"] == FINISHED else record["status"], record["note"])))
        print(
            f"| {name} | {paper} | {_shown_result(record)} | {_shown_random(record)} | {record['steps']:,} | "
            f"{record['updates']:,} | {record['core_seconds'] / 3600:.1f} | {note} |"
        )


def read_commits(directory: Path) -> list[str]:
    path = directory / COMMITS
    return path.read_text(encoding="utf-8").split() if path.exists() else []


def current_commit() -> str:
    """Return the commit of this repository; "unknown" outside of one."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=10", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def stopped(by: str) -> int:
    print(f"stopped by {by}: the same command continues", file=sys.stderr)
    return 1


def _point(line: Record) -> Record:
    return {
        "steps": line["env_steps"],
        "updates": line["updates"],
        "return": line[EVAL_RETURN],
        "ci95": [line.get(EVAL_LOW), line.get(EVAL_HIGH)],
        "success": line.get(EVAL_SUCCESS),
    }


def _shown_result(record: Record) -> str:
    if record["return_mean"] is None:
        return ""
    shown = f"{record['return_mean']:.3g} [{record['return_ci95'][0]:.3g}, {record['return_ci95'][1]:.3g}]"
    return shown if record["success_rate"] is None else f"{shown}, {record['success_rate']:.0%} of the trials"


def _shown_random(record: Record) -> str:
    if record["random_return"] is None:
        return ""
    shown = f"{record['random_return']:.3g}"
    return shown if record["random_success"] is None else f"{shown}, {record['random_success']:.0%}"


def _fits(run: Run, pattern: str) -> bool:
    return fnmatch(run.row.name, pattern) or fnmatch(run.name, pattern)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    lock = FileLock(directory / "lock", timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise UserError(f"another process works on {directory}: wait for it, or choose another --runs-dir") from error
    try:
        yield
    finally:
        lock.release()


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
