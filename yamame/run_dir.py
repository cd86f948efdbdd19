"""Where the files of a run lie, and that two runs never share a folder.

runs/<recipe>-<time>/
  config.json      all settings              metrics.jsonl   what was measured, a line at a time
  spaces.json      what the policy sees      tensorboard/    the same for TensorBoard
  checkpoints/     to go on from             report.html     results in words and pictures; report.md: in plain words
  replay/          what was experienced      result.json     the same for programs, once the run is over
  offline/         what others experienced, where the run learns from that
  metadata.json    where it came from        lock            held by the process that trains here
  replay-1/ …      what each further learner experienced
  status.json      how the last process stopped or failed, where the run is not over
"""

import contextlib
import difflib
import json
import os
import time
from collections.abc import Iterator, Mapping
from itertools import count, takewhile
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout, lock_descriptor

from yamame.errors import UserError, wrap_os_errors
from yamame.metrics import METRICS_FILE

DEFAULT_RUNS_DIR = Path("runs")
"""Where runs go that are not told where, below the working directory."""

CONFIG = "config.json"
SPACES = "spaces.json"
METRICS = METRICS_FILE
CHECKPOINTS = "checkpoints"
BEST = f"{CHECKPOINTS}/best"
MILESTONES = f"{CHECKPOINTS}/milestones"
REPLAY = "replay"
"""Of the first learner; of others with their number behind it."""
OFFLINE = "offline"
REPORT, REPORT_HTML = "report.md", "report.html"
RESULT = "result.json"
METADATA = "metadata.json"
LOCK = "lock"
STATUS = "status.json"

_LOCK_SECONDS, _POLL_SECONDS = 0.2, 0.02
_QUERIES, _QUERY_SECONDS = 3, 1e-3
_READ_ONLY = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"))


class RunLockedError(UserError):
    """Another process trains in a run's folder."""


def replay_dir(rank: int) -> str:
    """Where the learner of that number keeps what was experienced, in the folder of its run."""
    return f"{REPLAY}-{rank}" if rank else REPLAY


def replay_dirs(run: Path) -> list[Path]:
    """The stores of a run's learners that there are, in the order of their ranks."""
    folders = (run / replay_dir(rank) for rank in count())
    return list(takewhile(lambda folder: (folder / "data.mdb").is_file(), folders))


def create_run_dir(run_dir: Path | None, recipe: str) -> Path:
    """An empty folder for a new run: `run_dir`, or `runs/<recipe>-<YYYYmmdd-HHMMSS>` where that is None.

    Raises `UserError` where `run_dir` holds anything (nothing is ever written over) or cannot be made.
    """
    try:
        return _new_default(recipe) if run_dir is None else _given(run_dir)
    except OSError as problem:
        where = run_dir or DEFAULT_RUNS_DIR
        raise UserError(f"cannot make {where} ({problem.strerror}): choose another place with --run-dir") from problem


def resolve_run_dir(path: Path) -> Path:
    """The path itself if it holds a run; otherwise `UserError`, which names the nearest run if there is one."""
    if (path / CONFIG).is_file():
        return path
    problem = f"{path} holds no run (it has no {CONFIG})" if path.exists() else f"{path} does not exist"
    guess = _nearest_run(path)
    raise UserError(f"{problem}: " + (f"did you mean {guess}?" if guess else "yamame train makes one"))


@contextlib.contextmanager
def lock_run_dir(directory: Path) -> Iterator[None]:
    """Hold the lock of a run directory while training in it.

    The operating system releases the lock of a process that is killed.

    Raises:
        RunLockedError: If another process holds it.
    """
    lock = FileLock(directory / LOCK, timeout=_LOCK_SECONDS, poll_interval=_POLL_SECONDS, thread_local=False)
    try:
        lock.acquire()  # waits a little: `is_locked` may hold it for an instant
    except Timeout as error:
        raise RunLockedError(
            f"another process is training in {directory}: wait for it, stop it, or choose another --run-dir"
        ) from error
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


def _given(run_dir: Path) -> Path:
    if run_dir.exists() and not run_dir.is_dir():
        raise UserError(f"{run_dir} is a file: choose another --run-dir")
    run_dir.mkdir(parents=True, exist_ok=True)
    if (run_dir / CONFIG).exists():
        raise UserError(f"{run_dir} already holds a run: yamame resume {run_dir} goes on, or choose another --run-dir")
    if any(entry.name != LOCK for entry in run_dir.iterdir()):
        raise UserError(f"{run_dir} is not empty: choose another --run-dir")
    return run_dir


def _new_default(recipe: str) -> Path:
    stem = f"{recipe}-{time.strftime('%Y%m%d-%H%M%S')}"
    DEFAULT_RUNS_DIR.mkdir(parents=True, exist_ok=True)
    for attempt in range(1, 1000):
        directory = DEFAULT_RUNS_DIR / (stem if attempt == 1 else f"{stem}-{attempt}")
        with contextlib.suppress(FileExistsError):
            directory.mkdir()
            return directory
    raise UserError(f"{DEFAULT_RUNS_DIR / stem} and its numbered siblings exist: choose a place with --run-dir")


def _nearest_run(path: Path) -> Path | None:
    """The newest run inside `path`, else the run beside it (or in `runs/`) whose name is most alike."""
    inside = _runs_in(path)
    if inside:
        return max(inside, key=lambda run: (run / CONFIG).stat().st_mtime)
    candidates = {run.name: run for folder in (DEFAULT_RUNS_DIR, path.parent) for run in _runs_in(folder)}
    alike = difflib.get_close_matches(path.name, list(candidates), n=1, cutoff=0.5)
    return candidates[alike[0]] if alike else None


def _runs_in(folder: Path) -> list[Path]:
    try:
        return [entry for entry in folder.iterdir() if (entry / CONFIG).is_file()]
    except OSError:
        return []


ExitKind = Literal["stopped", "failed"]


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file atomically: it is complete or unchanged whenever the process is killed."""
    partial = path.with_suffix(".partial")
    with wrap_os_errors(path):
        partial.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        partial.replace(path)


def write_status(directory: Path, how: ExitKind, why: str) -> None:
    """Leave word in the run's folder; a disk that takes nothing more is not complained about again."""
    aside = (directory / STATUS).with_suffix(".partial")
    with contextlib.suppress(OSError):
        aside.write_text(json.dumps({"status": how, "reason": " ".join(why.split())}) + "\n", encoding="utf-8")
        aside.replace(directory / STATUS)


@contextlib.contextmanager
def record_failure(directory: Path) -> Iterator[None]:
    """Forget how an earlier process ended; what goes wrong inside is noted, and raised on."""
    (directory / STATUS).unlink(missing_ok=True)
    try:
        yield
    except Exception as problem:
        known = type(problem).__module__.startswith("yamame.")
        write_status(
            directory, "failed", str(problem) if known else f"{type(problem).__name__}: {problem}".rstrip(": ")
        )
        raise
