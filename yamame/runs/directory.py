"""Files of a run directory, and its lock.

runs/<recipe>-<time>/
  config.json      config of the run                   metrics.jsonl   metrics, one JSON object per iteration
  spaces.json      spaces and horizon of the task      tensorboard/    the same metrics for TensorBoard
  metadata.json    recipe, command, overrides          result.json     result of a finished run
  checkpoints/     latest, best and milestones         report.md       report of a finished run, and its plots
  replay/          trajectories of the main learner    report.html     the same report as a single page
  replay-1/ …      trajectories of other learners      status.json     why an unfinished run stopped or failed
  offline/         copy of the offline data, if any    lock            held by the process that trains
  notes.json       notes and tags, of `yamame view`    tracking.json   experiment trackers of the run, if any
"""

import contextlib
import difflib
import os
import re
import shlex
import shutil
import time
from collections.abc import Iterator
from itertools import count, takewhile
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout, lock_descriptor

from yamame.errors import UserError, describe_error
from yamame.metrics.registry import METRICS_FILE
from yamame.runs.durable_files import PARTIAL_PREFIX, sync_folder, write_json

DEFAULT_RUNS_DIR = Path("runs")
"""Parent of run directories without a given path, relative to the working directory."""

CONFIG = "config.json"
SPACES = "spaces.json"
METRICS = METRICS_FILE
CHECKPOINTS = "checkpoints"
BEST = f"{CHECKPOINTS}/best"
MILESTONES = f"{CHECKPOINTS}/milestones"
LATEST, BEST_CHECKPOINT = "latest", "best"
"""Names of checkpoints, as alternatives to paths."""
REPLAY = "replay"
"""Replay store of the main rank; those of other ranks have the rank as suffix."""
REPLAY_FILE = "replay.sqlite"
"""Database in the directory of a replay store."""
OFFLINE = "offline"
TASK = "task.json"
"""Env config of a store of histories."""
REPORT, REPORT_HTML = "report.md", "report.html"
RESULT = "result.json"
METADATA = "metadata.json"
TRACKING = "tracking.json"
LOCK = "lock"
STATUS = "status.json"
NOTES = "notes.json"

_BEFORE_CONFIG = (
    rf"{SPACES}|{METADATA}|{METRICS}|{STATUS}|{NOTES}|{TRACKING}|{LOCK}|{CHECKPOINTS}|{OFFLINE}|{REPLAY}(-\d+)?"
)
RUN_ENTRY = re.compile(rf"({_BEFORE_CONFIG}|{CONFIG}|{RESULT})")
"""Names of the files and folders in a run directory that are read."""
_START_ENTRY = re.compile(rf"({_BEFORE_CONFIG}|tensorboard|{re.escape(PARTIAL_PREFIX)}.*)")
"""Names of what a run directory may hold without a config, because its process was killed before it wrote one."""
_LOCK_SECONDS, _POLL_SECONDS = 0.2, 0.02
_QUERIES, _QUERY_SECONDS = 3, 1e-3
_READ_ONLY = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"))


class RunLockedError(UserError):
    """Another process trains in the run directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__(
            f"another process is training in {directory}: wait for it, stop it, or choose another --run-dir"
        )


def replay_dir(rank: int) -> str:
    """Return the name of a rank's replay store in the run directory."""
    return f"{REPLAY}-{rank}" if rank else REPLAY


def replay_dirs(run: Path) -> list[Path]:
    """Return the existing replay stores of a run, ordered by rank."""
    stores = (run / replay_dir(rank) for rank in count())
    return list(takewhile(Path.is_dir, stores))


def absolute_if_exists(source: str) -> str:
    """Return a path that exists as an absolute one; names that are no paths as they are."""
    return str(Path(source).absolute()) if source and Path(source).exists() else source


def create_run_dir(run_dir: Path | None, recipe: str) -> Path:
    """Create the directory of a new run, with its lock as the first file, by which a start that was killed is known.

    Args:
        run_dir: Its path; None: `runs/<recipe>-<YYYYmmdd-HHMMSS>`.
        recipe: Name of the recipe.

    Raises:
        UserError: If `run_dir` is not empty (files are never overwritten) or cannot be created.
    """
    try:
        directory = _create_default(recipe) if run_dir is None else _create_given(run_dir)
        with lock_run_dir(directory):  # creates the file, which lies there from now on
            return directory
    except OSError as problem:
        path = run_dir or DEFAULT_RUNS_DIR
        raise UserError(f"cannot create {path} ({problem.strerror}): choose another --run-dir") from problem


def clear_interrupted_start(directory: Path) -> bool:
    """Remove what a run left that was killed before its config was written, except for its lock.

    Returns:
        True: The directory is missing or has no more than a lock. False: It has other files, and nothing was removed.

    Raises:
        RunLockedError: If another process starts a run there.
    """
    if not directory.is_dir():
        return True
    if not _is_interrupted_start(directory):
        return not any(directory.iterdir())
    with lock_run_dir(directory):
        if not _is_interrupted_start(directory):  # another process started a run meanwhile
            return False
        _remove_entries(directory, keep=LOCK)
    return True


def remove_run_dir(directory: Path) -> None:
    """Remove a run whose lock this process does not hold.

    What is left if the process is killed meanwhile is an interrupted start. Raises no error, which would hide that of
    the run: what cannot be removed, or is of another process by now, stays.
    """
    with contextlib.suppress(OSError, UserError):
        with lock_run_dir(directory):
            (directory / CONFIG).unlink(missing_ok=True)
            _remove_entries(directory, keep=LOCK)
            with contextlib.suppress(PermissionError):  # Windows removes no file that is open
                (directory / LOCK).unlink()
        if os.name == "nt":
            (directory / LOCK).unlink(missing_ok=True)
        directory.rmdir()


def _remove_entries(directory: Path, *, keep: str) -> None:
    for entry in directory.iterdir():
        if entry.name != keep:
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()


def resolve_run_dir(path: Path) -> Path:
    """Return the path if it is a run directory. Raises `UserError` if not, with the closest match if there is one."""
    if (path / CONFIG).is_file():
        return path
    if path.is_dir() and _is_interrupted_start(path) and not is_locked(path):
        raise UserError(f"{path} has a run that was killed while it started: train it again with --run-dir {path}")
    problem = f"{path} is not a run directory (it has no {CONFIG})" if path.exists() else f"{path} does not exist"
    match = _closest_match(path)
    raise UserError(f"{problem}: " + (f"did you mean {match}?" if match else "yamame train creates one"))


@contextlib.contextmanager
def lock_run_dir(directory: Path) -> Iterator[None]:
    """Hold the lock of a run directory while training in it.

    The operating system releases the lock of a process that is killed.

    Raises:
        RunLockedError: If another process holds it.
    """
    lock = FileLock(directory / LOCK, timeout=_LOCK_SECONDS, poll_interval=_POLL_SECONDS, thread_local=False)
    try:
        lock.acquire()  # with a timeout: `is_locked` may hold it for an instant
    except Timeout as error:
        raise RunLockedError(directory) from error
    except OSError as error:
        raise UserError(f"cannot lock {directory} ({error.strerror}): nothing can be written there") from error
    try:
        yield
    finally:
        lock.release()


def is_locked(directory: Path) -> bool:
    """Return whether a process trains in a run directory.

    Writes nothing. Holds the lock for an instant if no process does.
    """
    try:
        handle = os.open(directory / LOCK, _READ_ONLY)
    except OSError:
        return False
    try:
        for _ in range(_QUERIES):  # more than one: another query may hold it for an instant
            if lock_descriptor(handle, blocking=False):
                return False
            time.sleep(_QUERY_SECONDS)
    except OSError:
        return False
    finally:
        os.close(handle)  # releases the lock
    return True


def _create_given(run_dir: Path) -> Path:
    if run_dir.exists() and not run_dir.is_dir():
        raise UserError(f"{run_dir} is a file: choose another --run-dir")
    run_dir.mkdir(parents=True, exist_ok=True)
    sync_folder(run_dir.parent)
    if (run_dir / CONFIG).exists():
        resume = f"yamame resume {shlex.quote(str(run_dir))}"
        raise UserError(f"{run_dir} has a run: resume it with {resume}, or choose another --run-dir")
    if not clear_interrupted_start(run_dir):
        raise UserError(f"{run_dir} is not empty: choose another --run-dir")
    return run_dir


def _is_interrupted_start(run_dir: Path) -> bool:
    """Return whether a directory only has files of a run that was killed before its config was written."""
    names = {entry.name for entry in run_dir.iterdir()}
    return LOCK in names and all(_START_ENTRY.fullmatch(name) for name in names)


def _create_default(recipe: str) -> Path:
    stem = f"{recipe}-{time.strftime('%Y%m%d-%H%M%S')}"
    DEFAULT_RUNS_DIR.mkdir(parents=True, exist_ok=True)
    for attempt in range(1, 1000):
        directory = DEFAULT_RUNS_DIR / (stem if attempt == 1 else f"{stem}-{attempt}")
        with contextlib.suppress(FileExistsError):
            directory.mkdir()
            sync_folder(DEFAULT_RUNS_DIR)
            return directory
    raise UserError(f"{DEFAULT_RUNS_DIR / stem} and numbered copies exist: choose a --run-dir")


def _closest_match(path: Path) -> Path | None:
    """Return the newest run in `path`, else the run in its parent or in `runs/` with the most similar name."""
    children = _list_runs(path)
    if children:
        return max(children, key=lambda run: (run / CONFIG).stat().st_mtime)
    candidates = {run.name: run for folder in (DEFAULT_RUNS_DIR, path.parent) for run in _list_runs(folder)}
    matches = difflib.get_close_matches(path.name, list(candidates), n=1, cutoff=0.5)
    return candidates[matches[0]] if matches else None


def _list_runs(folder: Path) -> list[Path]:
    try:
        return [entry for entry in folder.iterdir() if (entry / CONFIG).is_file()]
    except OSError:
        return []


ExitKind = Literal["stopped", "failed"]


def write_status(directory: Path, status: ExitKind, reason: str) -> None:
    """Write `status.json`; ignore errors, which would hide the reason."""
    with contextlib.suppress(UserError):
        write_json(directory / STATUS, {"status": status, "reason": " ".join(reason.split())})


@contextlib.contextmanager
def record_failure(directory: Path) -> Iterator[None]:
    """Delete the status of an earlier process; if the body raises, write the status and raise."""
    (directory / STATUS).unlink(missing_ok=True)
    try:
        yield
    except Exception as problem:
        is_own = type(problem).__module__.startswith("yamame.")
        write_status(directory, "failed", str(problem) if is_own else describe_error(problem))
        raise
