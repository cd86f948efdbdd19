"""A run from its first to its last file: lock, training, final evaluation, report."""

import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from yamame.config import RunConfig
from yamame.config_io import to_json
from yamame.data.spaces import space_to_json
from yamame.distributed_context import DistributedContext
from yamame.errors import UserError, wrap_os_errors
from yamame.progress import ProgressBar
from yamame.run_dir import CONFIG, METADATA, RESULT, SPACES, lock_run_dir, record_failure, write_status
from yamame.signals import StopSignal
from yamame.tools.report import write_report
from yamame.train import Trainer

RunResult = dict[str, Any]
"""What `yamame train --json` prints."""

EMPTY_RESULT: RunResult = {
    "return_mean": None,
    "return_ci95": None,
    "return_per_attempt": None,
    "return_per_attempt_ci95": None,
    "success_rate": None,
    "success_per_attempt": None,
    "success_per_attempt_ci95": None,
    "trials": 0,
    "train_tasks": None,
}
"""The results of a run that was stopped before its end."""


@dataclass(frozen=True, kw_only=True)
class RunMetadata:
    """Where a run's config came from."""

    recipe: str
    expected: str = ""
    """What the recipe should reach, in words."""
    command: str = ""
    """The words that made it; empty where Python did, or a command for many runs."""
    overrides: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Path of a setting -> the recipe's default and the run's, as JSON has them, where they differ."""


def start_training(
    ranks: DistributedContext, config: RunConfig, directory: Path, about: RunMetadata, quiet: bool
) -> RunResult:
    """A new run in an empty folder, to its end or until a signal; all ranks give the same summary.

    `UserError` for what cannot run; then nothing is left of the folder.
    """
    with _held(directory, ranks):
        try:
            run = Trainer(config, directory, ranks=ranks)
            _describe(directory, config, about, run)
        except BaseException:
            if ranks.is_main:
                shutil.rmtree(directory)
            raise
        try:
            return _go(run, about, quiet=quiet)
        except UserError:
            if ranks.is_main and run.iteration.env_steps == 0:
                shutil.rmtree(directory)
            raise


def resume_training(
    ranks: DistributedContext, config: RunConfig, directory: Path, about: RunMetadata, quiet: bool
) -> RunResult:
    """Go on where a run's newest whole checkpoint stands; as `begin`, but that nothing is ever removed."""
    with _held(directory, ranks):
        run = Trainer(config, directory, resume=True, ranks=ranks)
        finished = run.finished
        if ranks.is_main:
            warn_corrupted(run.skipped_corrupted)
            for sentence in run.resume_warnings:
                print(sentence, file=sys.stderr)
            if not finished:
                (directory / RESULT).unlink(missing_ok=True)
            _write_json(directory / CONFIG, to_json(config))
        return _go(run, about, quiet=quiet)


def warn_corrupted(checkpoints: Sequence[str]) -> None:
    """A line for each checkpoint that was passed over."""
    for damaged in checkpoints:
        print(f"checkpoint {damaged} is damaged: taking an older one", file=sys.stderr)


@contextmanager
def _held(directory: Path, ranks: DistributedContext) -> Iterator[None]:
    """What the first rank holds and tells for all."""
    if not ranks.is_main:
        yield
        return
    with lock_run_dir(directory), record_failure(directory):
        yield


def _go(run: Trainer, about: RunMetadata, *, quiet: bool) -> RunResult:
    try:
        summary = _whole(run, about, quiet=quiet)
    except BaseException:
        run.close()
        raise
    run.shutdown()
    return summary


def _whole(run: Trainer, about: RunMetadata, *, quiet: bool) -> RunResult:
    try:
        unit = "steps of the clock" if run.config.offline.is_offline_only else "env steps"
        with ProgressBar(run.config.env_steps, unit=unit, quiet=quiet or not run.ranks.is_main) as progress:
            stopped_by = run.train(progress)
        evaluation: RunResult | None = None
        if not stopped_by:
            with StopSignal() as stop:
                judgement = run.evaluate_unless_stopped(stop, trials=run.config.eval.final_trials)
                stop.sync(run.ranks)  # so that a signal to all of them finds none outside
            evaluation = judgement.to_json() if judgement else None
            stopped_by = stop.requested
        return run.ranks.broadcast_object(_concluded(run, about, evaluation, stopped_by) if run.ranks.is_main else {})
    except UserError as error:
        if run.iteration.env_steps == 0:
            raise
        raise UserError(f"{error} (yamame resume {run.directory} goes on from the last checkpoint)") from error


def _concluded(run: Trainer, about: RunMetadata, evaluation: RunResult | None, stopped_by: str) -> RunResult:
    """The summary of a run that has come to its end, or was stopped, and the files that tell of that."""
    counters = {
        "env_steps": actual_env_steps(run.config, run.iteration.env_steps),
        "updates": run.components.learner.num_updates,
        "seed": run.config.seed,
    }
    if evaluation is None:
        write_status(run.directory, "stopped", stopped_by)
        print(f"stopped by {stopped_by}; yamame resume {run.directory} goes on", file=sys.stderr)
        return {**EMPTY_RESULT, **counters, **_speeds(run), "stopped_by": stopped_by}
    summary = {**evaluation, **counters, **_speeds(run)}
    _write_json(run.directory / RESULT, summary)
    write_report(run.directory)
    return summary


def actual_env_steps(config: RunConfig, env_steps: int) -> int:
    """Environment steps that were made; the clock of a run on data alone counts none."""
    return 0 if config.offline.is_offline_only else env_steps


def _speeds(run: Trainer) -> RunResult:
    seconds = run.train_state.train_seconds
    env_steps = actual_env_steps(run.config, run.iteration.env_steps)
    return {
        "wall_seconds": run.train_state.wall_seconds,
        "train_seconds": seconds,
        "env_steps_per_second": env_steps / seconds if seconds else 0.0,
        "updates_per_second": run.components.learner.num_updates / seconds if seconds else 0.0,
        "run_dir": str(run.directory),
    }


def _describe(directory: Path, config: RunConfig, about: RunMetadata, run: Trainer) -> None:
    """Its first checkpoint, and the files that say what a run is; `config.json` last: that makes a folder a run."""
    trials = run.components.collector.environments
    of_task = {
        "observation_space": space_to_json(trials.observation_space),
        "action_space": space_to_json(trials.env_action_space),
        "horizon": trials.horizon,
    }
    run.save_checkpoint()
    if not run.ranks.is_main:
        return
    for name, content in ((SPACES, of_task), (METADATA, asdict(about)), (CONFIG, to_json(config))):
        _write_json(directory / name, content)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    """Whole or not at all, whenever the process is killed."""
    aside = path.with_suffix(".partial")
    with wrap_os_errors(path):
        aside.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        aside.replace(path)
