"""Make planned runs, one after the other: finished ones are left alone, interrupted ones go on."""

import shutil
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from yamame.errors import UserError
from yamame.recipe_loader import about_run, load_recipe
from yamame.run_dir import CHECKPOINTS, LOCK, METADATA, OFFLINE, REPLAY, SPACES, RunLockedError, lock_run_dir
from yamame.runs import go_on, start
from yamame.tools.many.planned_run import PlannedRun, Standing

_BEFORE_CONFIG = {LOCK, REPLAY, OFFLINE, CHECKPOINTS, SPACES, METADATA}
"""What a run's folder can hold before its config, which is what makes it a run."""


@dataclass
class Outcome:
    """What became of the runs."""

    failed: dict[str, str] = field(default_factory=dict)
    """Title -> what went wrong, in one line."""
    elsewhere: list[str] = field(default_factory=list)
    """Titles of those that another process is making."""
    stopped_by: str = ""
    """Name of the signal that ended it early."""


def execute(runs: Sequence[PlannedRun], *, quiet: bool) -> Outcome:
    """Make all runs, until a signal. One that fails is told and passed over.

    All that is known of a run lies in its folder, so that nothing is lost however this ends. Raises `UserError`,
    before anything is made, where a folder holds a run with other settings.
    """
    standings = [run.standing() for run in runs]
    left = [run for run, standing in zip(runs, standings, strict=True) if standing is not Standing.FINISHED]
    outcome = Outcome()
    for number, run in enumerate(left, start=len(runs) - len(left) + 1):
        _say(f"[{number}/{len(runs)}] {run.title}")
        try:
            outcome.stopped_by = _make(run, quiet=quiet)
        except RunLockedError:
            outcome.elsewhere.append(run.title)
            _say(f"{run.title} is being made by another process")
        except UserError as problem:
            outcome.failed[run.title] = " ".join(str(problem).split())
            _say(f"{run.title} failed: {outcome.failed[run.title]}")
        except Exception as problem:  # whatever an environment may raise: the others are not to suffer
            outcome.failed[run.title] = " ".join(f"{type(problem).__name__}: {problem}".split())
            traceback.print_exc()
        if outcome.stopped_by:
            break
    return outcome


def _make(run: PlannedRun, *, quiet: bool) -> str:
    """One run, from where it stands; the name of the signal that stopped it, or nothing."""
    standing = run.standing()
    if standing is Standing.FINISHED:  # meanwhile, by another process
        return ""
    if standing is Standing.BEGUN:
        summary = go_on(run.directory, env_steps=run.config.env_steps, quiet=quiet)
    else:
        _clear(run.directory)
        about = about_run(load_recipe(run.recipe), run.config)
        summary = start(run.config, about, run_dir=run.directory, quiet=quiet)
    stopped_by: str = summary.get("stopped_by", "")
    return stopped_by


def _clear(directory: Path) -> None:
    """Remove what a process left that was killed before its run had a config: nothing that was learned."""
    if directory.is_dir() and any(directory.iterdir()):
        with lock_run_dir(directory):
            if not all(_may_precede_config(entry) for entry in directory.iterdir()):
                raise UserError(f"{directory} holds something else: remove it or choose another --output-dir")
            shutil.rmtree(directory)


def _may_precede_config(entry: Path) -> bool:
    return entry.name in _BEFORE_CONFIG or entry.name.startswith(f"{REPLAY}-") or entry.suffix == ".partial"


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
