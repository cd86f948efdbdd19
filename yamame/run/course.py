"""A run from its first to its last file: lock, training, final evaluation, report."""

import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from yamame.ops.ranks import Ranks
from yamame.records.errors import UserError, explained
from yamame.records.spaces import space_to_json
from yamame.run.config import RunConfig
from yamame.run.config_json import to_json
from yamame.run.ending import note_ending, telling_of_failure
from yamame.run.local import LocalRun
from yamame.run.progress import Progress
from yamame.run.report import write_report
from yamame.run.run_directory import ABOUT, CONFIG, RESULT, SPACES, lock
from yamame.run.signals import StopSignal

Summary = dict[str, Any]
"""What `yamame train --json` prints."""

NOT_EVALUATED: Summary = {
    "return_mean": None,
    "return_ci95": None,
    "return_per_attempt": None,
    "return_per_attempt_ci95": None,
    "success_rate": None,
    "success_per_attempt": None,
    "success_per_attempt_ci95": None,
    "trials": 0,
    "training_tasks": None,
}
"""The results of a run that was stopped before its end."""


@dataclass(frozen=True, kw_only=True)
class About:
    """Where a run's config came from."""

    recipe: str
    expected: str = ""
    """What the recipe should reach, in words."""
    command: str = ""
    """The words that made it; empty where Python did, or a command for many runs."""
    changed: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Path of a setting -> the recipe's default and the run's, as JSON has them, where they differ."""


def begin(ranks: Ranks, config: RunConfig, directory: Path, about: About, quiet: bool) -> Summary:
    """A new run in an empty folder, to its end or until a signal; all ranks give the same summary.

    `UserError` for what cannot run; then nothing is left of the folder.
    """
    with _held(directory, ranks):
        try:
            run = LocalRun(config, directory, ranks=ranks)
            _describe(directory, config, about, run)
        except BaseException:
            if ranks.is_first:
                shutil.rmtree(directory)
            raise
        try:
            return _go(run, about, quiet=quiet)
        except UserError:
            if ranks.is_first and run.round.env_steps == 0:
                shutil.rmtree(directory)
            raise


def take_up(ranks: Ranks, config: RunConfig, directory: Path, about: About, quiet: bool) -> Summary:
    """Go on where a run's newest whole checkpoint stands; as `begin`, but that nothing is ever removed."""
    with _held(directory, ranks):
        run = LocalRun(config, directory, resume=True, ranks=ranks)
        finished = run.finished
        if ranks.is_first:
            tell_of_damaged(run.fallback_from)
            for sentence in run.not_restored:
                print(sentence, file=sys.stderr)
            if not finished:
                (directory / RESULT).unlink(missing_ok=True)
            _write_json(directory / CONFIG, to_json(config))
        return _go(run, about, quiet=quiet)


def tell_of_damaged(checkpoints: Sequence[str]) -> None:
    """A line for each checkpoint that was passed over."""
    for damaged in checkpoints:
        print(f"checkpoint {damaged} is damaged: taking an older one", file=sys.stderr)


@contextmanager
def _held(directory: Path, ranks: Ranks) -> Iterator[None]:
    """What the first rank holds and tells for all."""
    if not ranks.is_first:
        yield
        return
    with lock(directory), telling_of_failure(directory):
        yield


def _go(run: LocalRun, about: About, *, quiet: bool) -> Summary:
    try:
        summary = _whole(run, about, quiet=quiet)
    except BaseException:
        run.close()
        raise
    run.leave()
    return summary


def _whole(run: LocalRun, about: About, *, quiet: bool) -> Summary:
    try:
        unit = "steps of the clock" if run.config.offline.alone else "env steps"
        with Progress(run.config.env_steps, unit=unit, quiet=quiet or not run.ranks.is_first) as progress:
            stopped_by = run.train(progress)
        evaluation: Summary | None = None
        if not stopped_by:
            with StopSignal() as stop:
                judgement = run.judge_unless(stop, trials=run.config.evaluation.final_trials)
                stop.agree(run.ranks)  # so that a signal to all of them finds none outside
            evaluation = judgement.to_json() if judgement else None
            stopped_by = stop.requested
        return run.ranks.from_first(_concluded(run, about, evaluation, stopped_by) if run.ranks.is_first else {})
    except UserError as error:
        if run.round.env_steps == 0:
            raise
        raise UserError(f"{error} (yamame resume {run.directory} goes on from the last checkpoint)") from error


def _concluded(run: LocalRun, about: About, evaluation: Summary | None, stopped_by: str) -> Summary:
    """The summary of a run that has come to its end, or was stopped, and the files that tell of that."""
    counters = {
        "env_steps": stepped(run.config, run.round.env_steps),
        "updates": run.parts.learner.updates,
        "seed": run.config.seed,
    }
    if evaluation is None:
        note_ending(run.directory, "stopped", stopped_by)
        print(f"stopped by {stopped_by}; yamame resume {run.directory} goes on", file=sys.stderr)
        return {**NOT_EVALUATED, **counters, **_speeds(run), "stopped_by": stopped_by}
    summary = {**evaluation, **counters, **_speeds(run)}
    _write_json(run.directory / RESULT, summary)
    _report(run, {**evaluation, **counters}, summary, about)
    return summary


def _report(run: LocalRun, evaluation: Summary, summary: Summary, about: About) -> None:
    """Write the reports; what goes wrong in that takes nothing from a run that has come to its end."""
    try:
        write_report(
            run.directory,
            evaluation=evaluation,
            summary=summary,
            random_actions=run.standing.random_actions,
            expected=about.expected,
        )
    except Exception as problem:  # a full disk, or whatever drawing may raise
        told = " ".join(f"{type(problem).__name__}: {problem}".split())
        print(f"the report is not written ({told}); yamame resume {run.directory} tries again", file=sys.stderr)


def stepped(config: RunConfig, env_steps: int) -> int:
    """Environment steps that were made; the clock of a run on data alone counts none."""
    return 0 if config.offline.alone else env_steps


def _speeds(run: LocalRun) -> Summary:
    seconds = run.standing.train_seconds
    env_steps = stepped(run.config, run.round.env_steps)
    return {
        "wall_seconds": run.standing.wall_seconds,
        "train_seconds": seconds,
        "env_steps_per_second": env_steps / seconds if seconds else 0.0,
        "updates_per_second": run.parts.learner.updates / seconds if seconds else 0.0,
        "run_dir": str(run.directory),
    }


def _describe(directory: Path, config: RunConfig, about: About, run: LocalRun) -> None:
    """Its first checkpoint, and the files that say what a run is; `config.json` last: that makes a folder a run."""
    trials = run.parts.collector.environments
    of_task = {
        "observation_space": space_to_json(trials.observation_space),
        "action_space": space_to_json(trials.native_action_space),
        "horizon": trials.horizon,
    }
    run.save()
    if not run.ranks.is_first:
        return
    for name, content in ((SPACES, of_task), (ABOUT, asdict(about)), (CONFIG, to_json(config))):
        _write_json(directory / name, content)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    """Whole or not at all, whenever the process is killed."""
    aside = path.with_suffix(".partial")
    with explained(path):
        aside.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        aside.replace(path)
