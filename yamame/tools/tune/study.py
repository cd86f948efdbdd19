"""The study: Optuna proposes settings, trials are ordinary runs, a journal on the disk holds what is known."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import optuna
from filelock import FileLock, Timeout
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from yamame.distributed.signals import StopSignal
from yamame.errors import UserError
from yamame.tools.sweep.runs import Outcome
from yamame.tools.tune.space import Choices, Range
from yamame.tools.tune.trial import PRUNED, Trial, TrialExecutor, TuneConfig
from yamame.training.run_files import read_result

JOURNAL, LOCK = "study.journal", "study.lock"
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
    waiting = [Trial(number=trial.number, params=trial.params) for trial in interrupted]
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
    storage = JournalStorage(JournalFileBackend(str(directory / JOURNAL)))
    study = optuna.create_study(study_name=_STUDY, storage=storage, direction="maximize", load_if_exists=True)
    study.sampler = optuna.samplers.TPESampler(seed=len(study.get_trials(deepcopy=False)))
    study.pruner = optuna.pruners.MedianPruner() if prunes else optuna.pruners.NopPruner()
    return study


def _ask(study: optuna.Study, config: TuneConfig, num_trials: int) -> Trial | None:
    """Return a new trial; None if the study has enough of them."""
    if len(study.get_trials(deepcopy=False)) >= num_trials:
        return None
    asked = study.ask({flag: _distribution(parameter) for flag, parameter in config.space.items()})
    return Trial(number=asked.number, params=asked.params)


def _distribution(parameter: Range | Choices) -> optuna.distributions.BaseDistribution:
    if isinstance(parameter, Choices):
        return optuna.distributions.CategoricalDistribution(parameter.values)
    if parameter.is_int:
        return optuna.distributions.IntDistribution(int(parameter.low), int(parameter.high), log=parameter.log)
    return optuna.distributions.FloatDistribution(parameter.low, parameter.high, log=parameter.log)


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
