"""Runs that are planned: their progress, and their training, which resumes."""

import contextlib
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from pathlib import Path
from typing import Any

from yamame import recipes
from yamame.config.differences import first_difference
from yamame.config.serialization import from_json, parse_json, to_json
from yamame.errors import UserError, describe_error
from yamame.run_config import RunConfig
from yamame.runs.directory import CONFIG, TASK, RunLockedError, clear_interrupted_start
from yamame.tools.histories import ScriptedLearner, scripted_histories, write_histories
from yamame.tools.report import write_missing_report, write_report_if_finished
from yamame.training import start
from yamame.training.callbacks import Callback
from yamame.training.run_files import RunResult, read_config, read_result


class RunStatus(Enum):
    """Progress of a planned run."""

    PENDING = auto()
    STARTED = auto()
    FINISHED = auto()


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One arm and seed."""

    recipe: str
    preset: str = recipes.SMALL
    algorithm: str | None = None
    """None: that of the recipe."""
    histories: int = 0
    """Learning histories of a scripted learner that `config.offline.data` names, and that are written if missing."""
    series: str
    """Name without the seed, such as `no-memory` or `RepeatFirstEasy-full`."""
    config: RunConfig
    directory: Path

    @property
    def title(self) -> str:
        """As progress and failures name it."""
        return f"{self.series} seed {self.config.seed}"

    def status(self) -> RunStatus:
        """Read the progress from the run's directory. Raises `UserError` if it holds another config or a longer run."""
        if not (self.directory / CONFIG).exists():
            return RunStatus.PENDING
        found = read_config(self.directory)
        require_same_config(self.directory, found, self.config, allow_longer=False)
        is_shorter = found.env_steps < self.config.env_steps
        return RunStatus.STARTED if is_shorter or read_result(self.directory) is None else RunStatus.FINISHED


@dataclass
class Outcome:
    """Runs of this call that are not finished."""

    failed: dict[str, str] = field(default_factory=dict)
    """Title -> error, in one line."""
    in_progress: list[str] = field(default_factory=list)
    """Titles of the runs that another process trains."""
    stopped_by: str = ""
    """Name of the signal that stopped the runs."""

    def to_lines(self) -> list[str]:
        """Return a line for each run, and how to resume."""
        stopped = [f"Stopped by {self.stopped_by}; run the same command again to resume."] if self.stopped_by else []
        failed = [f"Failed: {title}: {error}" for title, error in self.failed.items()]
        return [*stopped, *failed, *(f"In progress in another process: {title}" for title in self.in_progress)]


def train_or_resume(run: PlannedRun, quiet: bool, callbacks: Sequence[Callback] = ()) -> Mapping[str, Any]:
    """Train a run, or resume it from its latest checkpoint."""
    _write_missing_histories(run)
    if run.status() is RunStatus.STARTED:
        result = start.resume_run(run.directory, env_steps=None, quiet=quiet, config=run.config, callbacks=callbacks)
    else:
        recipe = recipes.with_algorithm(recipes.load_recipe(run.recipe, run.preset), run.algorithm)
        metadata = recipes.make_metadata(recipe, run.config)
        result = start.train_run(run.config, metadata, run_dir=run.directory, quiet=quiet, callbacks=callbacks)
    write_report_if_finished(result)
    return result


def _write_missing_histories(run: PlannedRun) -> None:
    """Write the learning histories that a run's `offline.data` names, whole or not at all; runs of an arm share them.

    They are of the run's task, by a scripted learner. Raises `UserError` for histories of a task with other settings.
    """
    if not run.histories:
        return
    env, directory = run.config.env, Path(*run.config.offline.data)
    if directory.exists():
        if parse_json((directory / TASK).read_text(encoding="utf-8")) != to_json(env):
            raise UserError(f"{directory} has histories of another task: choose another --output-dir")
        return
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=directory.parent) as partial:
        written = Path(partial) / directory.name
        write_histories(written, scripted_histories(env, ScriptedLearner(), count=run.histories, seed=0), env)
        with contextlib.suppress(OSError):  # another process has written them
            written.rename(directory)


def execute(
    runs: Sequence[PlannedRun],
    *,
    quiet: bool,
    train: Callable[[PlannedRun, bool], Mapping[str, Any]],
    number: int | None = None,
    total: int | None = None,
) -> Outcome:
    """Train or resume the runs that are not finished, one after the other until a signal; report those that fail.

    Args:
        runs: Runs that are planned.
        quiet: Hide the progress of a run.
        train: A function like `train_or_resume`.
        number: Number that progress shows for the first run that is trained; None: counted by the finished ones.
        total: Number of all runs that progress shows; None: of these.

    Raises:
        UserError: Before any training, if a directory holds a run with another config, or if what reports on the runs
            could not read their configs, which name a module of the user's.
    """
    for run in runs:
        from_json(RunConfig, to_json(run.config))
    remaining = [run for run in runs if run.status() is not RunStatus.FINISHED]
    for run in runs:
        if run not in remaining:
            write_missing_report(run.directory)
    outcome = Outcome()
    first = len(runs) - len(remaining) + 1 if number is None else number
    for count, run in enumerate(remaining, start=first):
        _log(f"[{count}/{total or len(runs)}] {run.title}")
        try:
            status = run.status()
            if status is RunStatus.FINISHED:  # by another process, since this one began
                continue
            if status is RunStatus.PENDING and not clear_interrupted_start(run.directory):
                raise UserError(f"{run.directory} holds something else: remove it or choose another --output-dir")
            outcome.stopped_by = train(run, quiet).get("stopped_by", "")
        except RunLockedError:
            outcome.in_progress.append(run.title)
            _log(f"{run.title} is in progress in another process")
        except UserError as error:
            outcome.failed[run.title] = " ".join(str(error).split())
            _log(f"{run.title} failed: {outcome.failed[run.title]}")
        except Exception as error:  # an environment can raise anything; the other runs continue
            outcome.failed[run.title] = describe_error(error)
            traceback.print_exc()
        if outcome.stopped_by:
            break
    return outcome


def finished_result(directory: Path) -> RunResult | None:
    """Return the result of a run; None if it is not finished, or not started."""
    return read_result(directory) if (directory / CONFIG).exists() else None


def require_planned(runs: Sequence[PlannedRun]) -> None:
    """Raise `UserError` if a directory holds a run with another config, or a finished one that is shorter."""
    for run in runs:
        if run.status() is RunStatus.STARTED and finished_result(run.directory) is not None:
            length = f"{read_config(run.directory).env_steps:,} environment steps, not {run.config.env_steps:,}"
            raise UserError(f"{run.directory} has {length}: leave out --report-only, or choose another --output-dir")


def require_same_config(directory: Path, found: RunConfig, wanted: RunConfig, *, allow_longer: bool = True) -> None:
    """Raise `UserError` if a directory holds another config. A shorter run can be resumed, so it is no difference."""
    ignore_length = allow_longer or found.env_steps < wanted.env_steps
    difference = first_difference(replace(found, env_steps=wanted.env_steps) if ignore_length else found, wanted)
    if difference:
        raise UserError(f"{directory} was trained with another config ({difference}): choose another --output-dir")


def make_directory(directory: Path) -> None:
    """Make the directory of the runs. Raises `UserError` if that is not possible."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make {directory} ({error.strerror}): choose another --output-dir") from error


def _log(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
