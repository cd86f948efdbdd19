"""The study: Optuna proposes settings, trials are ordinary runs, a journal on the disk holds what is known."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import optuna
from filelock import FileLock, Timeout
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import TrialState
from typing_extensions import override

from yamame.distributed.signals import StopSignal
from yamame.errors import UserError
from yamame.tools.study.execute import Outcome
from yamame.tools.tune.space import Choices
from yamame.tools.tune.trial import PRUNED, Trial, TrialExecutor, TuneConfig
from yamame.training.run_files import read_result

JOURNAL, JOURNAL_LOCK, LOCK = "study.journal", "journal.lock", "study.lock"
ERROR = "error"
"""Attribute of a failed trial."""
_STUDY = "tune"


@contextmanager
def open_study(config: TuneConfig, *, prunes: bool) -> Iterator[optuna.Study]:
    """Open or create the study in the directory, and lock it.

    Raises:
        UserError: The study there searches something else, or another process is at it.
    """
    try:
        with FileLock(config.directory / LOCK, timeout=0):
            study = _load(config.directory, prunes=prunes)
            found, identity = study.user_attrs.get("identity"), config.identity()
            if found is None:
                study.set_user_attr("identity", identity)
            elif found != identity:
                raise UserError(
                    f"{config.directory} holds a search with other flags or another space: choose another --output-dir"
                )
            yield study
    except Timeout:
        raise UserError(f"another process searches in {config.directory}: wait for it, or stop it") from None


def run_trials(study: optuna.Study, config: TuneConfig, executor: TrialExecutor, *, num_trials: int) -> Outcome:
    """Make trials until the study has `num_trials`, first those that were interrupted. A signal stops them."""
    interrupted = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    waiting = [_propose(study, optuna.Trial(study, trial._trial_id), config) for trial in interrupted]
    outcome, num_active = Outcome(), 0
    with StopSignal() as stop:
        while True:
            while num_active < executor.capacity() and not stop.is_requested() and not outcome.stopped_by:
                trial = waiting.pop(0) if waiting else _ask(study, config, num_trials)
                if trial is None:
                    break
                executor.start(trial, partial(report_evaluation, study, trial.number))
                num_active += 1
            if not num_active:
                break
            for trial, made in executor.wait():
                num_active -= 1
                _finish(study, config, trial, made, outcome)
            if stop.is_requested():
                executor.stop()
        outcome.stopped_by = stop.requested or outcome.stopped_by
    return outcome


def report_evaluation(study: optuna.Study, trial_number: int, evaluation_number: int, return_mean: float) -> bool:
    """Record the return of a trial's evaluation, unless it is known; return whether to prune the trial."""
    trial = study.get_trials(deepcopy=False)[trial_number]
    if evaluation_number not in trial.intermediate_values:
        study._storage.set_trial_intermediate_value(trial._trial_id, evaluation_number, return_mean)
    return bool(study.pruner.prune(study, study.get_trials(deepcopy=False)[trial_number]))


def _load(directory: Path, *, prunes: bool) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    journal = directory / JOURNAL
    _remove_torn_line(journal)
    storage = JournalStorage(JournalFileBackend(str(journal), lock_obj=_JournalLock(directory / JOURNAL_LOCK)))
    study = optuna.create_study(study_name=_STUDY, storage=storage, direction="maximize", load_if_exists=True)
    study.pruner = optuna.pruners.MedianPruner() if prunes else optuna.pruners.NopPruner()
    return study


class _JournalLock(JournalFileOpenLock):
    """Lock of the journal that the operating system releases if its process is killed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held: FileLock | None = None

    @override
    def acquire(self) -> bool:
        self._held = FileLock(self._path)
        self._held.acquire()
        return True

    @override
    def release(self) -> None:
        assert self._held is not None
        self._held.release()
        self._held = None


def _remove_torn_line(journal: Path) -> None:
    """Remove the last line of a journal if it was not written to its end: Optuna reads nothing after such a line."""
    content = journal.read_bytes() if journal.exists() else b""
    if not content.endswith(b"\n"):
        with journal.open("ab") as file:
            file.truncate(content.rfind(b"\n") + 1)


def _ask(study: optuna.Study, config: TuneConfig, num_trials: int) -> Trial | None:
    """Return a new trial; None if the study has enough of them."""
    if len(study.get_trials(deepcopy=False)) >= num_trials:
        return None
    return _propose(study, study.ask(), config)


def _propose(study: optuna.Study, trial: optuna.Trial, config: TuneConfig) -> Trial:
    """Return a trial with a value for each setting.

    Values that the journal has are kept. Each other one follows from the trials that have ended and from its place, so
    that a search that was killed proposes what it would have proposed.
    """
    for position, (flag, parameter) in enumerate(config.space.items()):
        seed = int(np.random.SeedSequence((trial.number, position)).generate_state(1)[0])
        study.sampler = optuna.samplers.TPESampler(seed=seed)
        if isinstance(parameter, Choices):
            trial.suggest_categorical(flag, parameter.values)
        elif parameter.is_int:
            trial.suggest_int(flag, int(parameter.low), int(parameter.high), log=parameter.log)
        else:
            trial.suggest_float(flag, parameter.low, parameter.high, log=parameter.log)
    return Trial(number=trial.number, params=trial.params)


def _finish(study: optuna.Study, config: TuneConfig, trial: Trial, made: Outcome, outcome: Outcome) -> None:
    """Record the end of a trial, unless a signal stopped it: then it goes on in the next call."""
    outcome.failed |= made.failed
    outcome.in_progress += made.in_progress
    outcome.stopped_by = outcome.stopped_by or made.stopped_by
    if made.failed:
        trial_id = study.get_trials(deepcopy=False)[trial.number]._trial_id
        study._storage.set_trial_user_attr(trial_id, ERROR, next(iter(made.failed.values())))
        study.tell(trial.number, state=TrialState.FAIL)
        return
    result = None if made.stopped_by or made.in_progress else read_result(config.directory / trial.name)
    if result is not None:
        value = result["return_mean"]
        if result["end_reason"] == PRUNED:
            study.tell(trial.number, state=TrialState.PRUNED)
        else:
            study.tell(trial.number, value)
