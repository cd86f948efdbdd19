"""The study: Optuna proposes settings, trials are ordinary runs, a journal on the disk holds what is known."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
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
from yamame.errors import UserError, wrap_os_errors
from yamame.tools.study.execute import Outcome
from yamame.tools.tune.space import Choices
from yamame.tools.tune.trial import PRUNED, Trial, TrialExecutor, TuneConfig
from yamame.training.run_files import read_result

JOURNAL, JOURNAL_LOCK, LOCK = "study.journal", "journal.lock", "study.lock"
ERROR = "error"
"""Attribute of a failed trial."""
_STUDY = "tune"


@dataclass(frozen=True, kw_only=True)
class OpenStudy:
    """A study whose directory is locked."""

    study: optuna.Study
    interrupted: Sequence[optuna.Trial]
    """Trials that a signal or a kill interrupted, in their order."""


@contextmanager
def open_study(config: TuneConfig, *, prunes: bool) -> Iterator[OpenStudy]:
    """Open or create the study in the directory, and lock it.

    Raises:
        UserError: The study there searches something else, another process is at it, or nothing can be written there.
    """
    with ExitStack() as stack:
        with wrap_os_errors(config.directory):
            try:
                stack.enter_context(FileLock(config.directory / LOCK, timeout=0))
            except Timeout:
                raise UserError(f"another process searches in {config.directory}: wait for it, or stop it") from None
            opened = _load(config.directory, prunes=prunes)
            found, identity = opened.study.user_attrs.get("identity"), config.identity()
            if found is None:
                opened.study.set_user_attr("identity", identity)
        if found not in (None, identity):
            raise UserError(
                f"{config.directory} holds a search with other flags or another space: choose another --output-dir"
            )
        yield opened


def run_trials(opened: OpenStudy, config: TuneConfig, executor: TrialExecutor) -> Outcome:
    """Make trials until the study has `config.num_trials`, first those that were interrupted. A signal stops them."""
    with wrap_os_errors(config.directory):
        waiting = [(asked, _propose(asked, config)) for asked in opened.interrupted]
    active: dict[int, optuna.Trial] = {}
    outcome = Outcome()
    with StopSignal() as stop:
        while True:
            while len(active) < executor.capacity() and not stop.is_requested() and not outcome.stopped_by:
                if not waiting:
                    if len(opened.study.get_trials(deepcopy=False)) >= config.num_trials:
                        break
                    with wrap_os_errors(config.directory):
                        new = opened.study.ask()
                        waiting.append((new, _propose(new, config)))
                asked, trial = waiting.pop(0)
                active[trial.number] = asked
                executor.start(trial, partial(report_evaluation, asked))
            if not active:
                break
            for trial, made in executor.wait():
                with wrap_os_errors(config.directory):
                    _finish(active.pop(trial.number), config, trial, made, outcome)
            if stop.is_requested():
                executor.stop()
        outcome.stopped_by = stop.requested or outcome.stopped_by
    return outcome


def report_evaluation(asked: optuna.Trial, number: int, return_mean: float) -> bool:
    """Record the return of a trial's evaluation, unless it is known; return whether to prune the trial.

    `number` is that of the evaluation. A resumed trial evaluates again what came after its checkpoint.
    """
    if number not in asked.study.get_trials(deepcopy=False)[asked.number].intermediate_values:
        asked.report(return_mean, number)
    return bool(asked.should_prune())


def _load(directory: Path, *, prunes: bool) -> OpenStudy:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    journal = directory / JOURNAL
    _remove_torn_line(journal)
    storage = JournalStorage(JournalFileBackend(str(journal), lock_obj=_JournalLock(directory)))
    study = optuna.create_study(study_name=_STUDY, storage=storage, direction="maximize", load_if_exists=True)
    study.pruner = optuna.pruners.MedianPruner() if prunes else optuna.pruners.NopPruner()
    study_id = storage.get_study_id_from_name(_STUDY)
    interrupted = [
        optuna.Trial(study, storage.get_trial_id_from_study_id_trial_number(study_id, trial.number))
        for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    ]
    return OpenStudy(study=study, interrupted=interrupted)


class _JournalLock(JournalFileOpenLock):
    """Lock of the journal that the operating system releases if its process is killed."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / JOURNAL_LOCK  # Optuna makes links with a name of its own, which may be left
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


def _propose(asked: optuna.Trial, config: TuneConfig) -> Trial:
    """Return a trial with a value for each setting.

    Values that the journal has are kept. Each other one follows from the trials that have ended and from its place, so
    that a search that was killed proposes what it would have proposed.
    """
    for position, (flag, parameter) in enumerate(config.space.items()):
        seed = int(np.random.SeedSequence((asked.number, position)).generate_state(1)[0])
        asked.study.sampler = optuna.samplers.TPESampler(seed=seed)
        if isinstance(parameter, Choices):
            asked.suggest_categorical(flag, parameter.values)
        elif parameter.is_int:
            asked.suggest_int(flag, int(parameter.low), int(parameter.high), log=parameter.log)
        else:
            asked.suggest_float(flag, parameter.low, parameter.high, log=parameter.log)
    return Trial(number=asked.number, params=asked.params)


def _finish(asked: optuna.Trial, config: TuneConfig, trial: Trial, made: Outcome, outcome: Outcome) -> None:
    """Record the end of a trial, unless a signal stopped it: then it goes on in the next call."""
    outcome.failed |= made.failed
    outcome.in_progress += made.in_progress
    outcome.stopped_by = outcome.stopped_by or made.stopped_by
    if made.failed:
        asked.set_user_attr(ERROR, next(iter(made.failed.values())))
        asked.study.tell(asked, state=TrialState.FAIL)
        return
    result = None if made.stopped_by or made.in_progress else read_result(config.directory / trial.name)
    if result is None:
        return
    if result.get("end_reason") == PRUNED:
        asked.study.tell(asked, state=TrialState.PRUNED)
    else:
        asked.study.tell(asked, result["return_mean"])
