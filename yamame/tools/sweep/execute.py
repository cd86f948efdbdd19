"""Train planned runs one after the other: finished ones are skipped, interrupted ones resumed."""

import shutil
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from yamame import runs as run_api
from yamame.errors import UserError
from yamame.recipes import load_recipe, make_metadata
from yamame.run_dir import CHECKPOINTS, LOCK, METADATA, OFFLINE, REPLAY, SPACES, RunLockedError, lock_run_dir
from yamame.tools.report import write_report_if_finished
from yamame.tools.sweep.plan import PlannedRun, RunStatus

Train = Callable[[PlannedRun, bool], Mapping[str, Any]]
"""Trains a pending run or resumes a started one (the bool: without progress); returns its summary."""
_BEFORE_CONFIG = {LOCK, REPLAY, OFFLINE, CHECKPOINTS, SPACES, METADATA}
"""Entries that a run directory can hold before its config is written."""


@dataclass
class Outcome:
    """Runs of this call that are not finished."""

    failed: dict[str, str] = field(default_factory=dict)
    """Title -> error, in one line."""
    in_progress: list[str] = field(default_factory=list)
    """Titles of the runs that another process trains."""
    stopped_by: str = ""
    """Name of the signal that stopped the sweep."""


def train_or_resume(run: PlannedRun, quiet: bool) -> Mapping[str, Any]:
    """Train a run, or resume it from its latest checkpoint."""
    if run.status() is RunStatus.STARTED:
        result = run_api.resume(run.directory, env_steps=run.config.env_steps, quiet=quiet)
    else:
        metadata = make_metadata(load_recipe(run.recipe), run.config)
        result = run_api.train(run.config, metadata, run_dir=run.directory, quiet=quiet)
    write_report_if_finished(result)
    return result


def execute(runs: Sequence[PlannedRun], *, quiet: bool, train: Train = train_or_resume) -> Outcome:
    """Train all runs until a signal; a run that fails is reported and passed over.

    Raises `UserError`, before any training, if a directory holds a run with another config.
    """
    remaining = [run for run in runs if run.status() is not RunStatus.FINISHED]
    outcome = Outcome()
    for number, run in enumerate(remaining, start=len(runs) - len(remaining) + 1):
        _log(f"[{number}/{len(runs)}] {run.title}")
        try:
            outcome.stopped_by = _train(run, quiet, train)
        except RunLockedError:
            outcome.in_progress.append(run.title)
            _log(f"{run.title} is in progress in another process")
        except UserError as error:
            outcome.failed[run.title] = " ".join(str(error).split())
            _log(f"{run.title} failed: {outcome.failed[run.title]}")
        except Exception as error:  # an environment can raise anything; the other runs continue
            outcome.failed[run.title] = " ".join(f"{type(error).__name__}: {error}".split())
            traceback.print_exc()
        if outcome.stopped_by:
            break
    return outcome


def _train(run: PlannedRun, quiet: bool, train: Train) -> str:
    """Train one run; return the name of the signal that stopped it, or an empty string."""
    status = run.status()
    if status is RunStatus.FINISHED:  # by another process, since the sweep began
        return ""
    if status is RunStatus.PENDING:
        _remove_unstarted(run.directory)
    stopped_by: str = train(run, quiet).get("stopped_by", "")
    return stopped_by


def _remove_unstarted(directory: Path) -> None:
    """Remove the remains of a process that was killed before its run had a config."""
    if directory.is_dir() and any(directory.iterdir()):
        with lock_run_dir(directory):
            if not all(_precedes_config(entry) for entry in directory.iterdir()):
                raise UserError(f"{directory} holds something else: remove it or choose another --output-dir")
            shutil.rmtree(directory)


def _precedes_config(entry: Path) -> bool:
    return entry.name in _BEFORE_CONFIG or entry.name.startswith(f"{REPLAY}-") or entry.suffix == ".partial"


def _log(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
