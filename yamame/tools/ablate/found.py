"""Which runs of a comparison a folder holds; one that holds something else is left alone."""

from dataclasses import dataclass
from pathlib import Path

from yamame.errors import UserError
from yamame.run_dir import CONFIG
from yamame.runs import read_metadata
from yamame.tools.ablate.arms import Arm
from yamame.tools.many.planned_run import name_of_folder
from yamame.tools.many.results_files import RESULTS_FILES


@dataclass(frozen=True)
class FoundRun:
    """A run, finished or not."""

    arm: Arm
    directory: Path


def found_runs(directory: Path, recipe: str) -> list[FoundRun]:
    """All runs of a comparison's folder; none where there is no folder.

    Raises `UserError` for a folder that is a run itself, that holds a run of something else, or that holds anything
    and nothing of ours.
    """
    if not directory.is_dir():
        return []
    if (directory / CONFIG).exists():
        raise UserError(f"{directory} is a run itself: choose another --output-dir")
    entries = sorted(entry for entry in directory.iterdir() if not entry.name.startswith("."))
    strangers = [entry for entry in entries if _arm(entry) is None and entry.name not in RESULTS_FILES]
    if strangers and len(strangers) == len(entries):
        raise _holds(directory, strangers[0].name)
    return [_found(entry, recipe) for entry in entries if (entry / CONFIG).exists()]


def _found(run: Path, recipe: str) -> FoundRun:
    arm = _arm(run)
    if arm is None:
        raise _holds(run.parent, run.name)
    of = read_metadata(run).recipe
    if of != recipe:
        raise _holds(run.parent, f"{run.name} of {of}")
    return FoundRun(arm, run)


def _arm(entry: Path) -> Arm | None:
    name = name_of_folder(entry)
    return Arm(name) if name and Arm(name).is_known else None


def _holds(directory: Path, what: str) -> UserError:
    return UserError(f"{directory} holds something else ({what}): choose another --output-dir")
