"""The study: Optuna proposes settings, trials are ordinary runs, a journal on the disk holds what is known."""

import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import optuna
from filelock import FileLock, Timeout
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from yamame import recipes
from yamame.callbacks import Callback, RunProgress
from yamame.errors import UserError
from yamame.named_code import caller_module_names, caller_modules
from yamame.recipes import Recipe
from yamame.run_files import read_result
from yamame.signals import StopSignal
from yamame.tools.sweep.runs import Outcome, PlannedRun, execute, train_or_resume
from yamame.tools.tune.space import Choices, Range, SearchSpace, describe
from yamame.types import Connection

JOURNAL, LOCK = "study.journal", "study.lock"
PRUNED = "pruned"
"""End reason of a run that was stopped because earlier trials were better at the same time."""
ERROR = "error"
"""Attribute of a failed trial."""
_STUDY = "tune"
_POLL_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class TuneConfig:
    """What a study searches, besides its number of trials."""

    recipe: Recipe
    variants: Sequence[str]
    size: str | None
    model: str | None
    flags: Sequence[str]
    """Flags of all trials."""
    space: SearchSpace
    directory: Path

    def train_command(self, params: Mapping[str, Any]) -> list[str]:
        """Return the arguments of `yamame train` for the settings of a trial."""
        named = (("--preset", self.recipe.preset), ("--size", self.size), ("--model", self.model))
        options = [word for flag, value in named if value not in (None, "small") for word in (flag, str(value))]
        variants = [word for variant in self.variants for word in ("--variant", variant)]
        return ["yamame", "train", self.recipe.name, *options, *variants, *self.flags, *self.trial_flags(params)]

    def trial_flags(self, params: Mapping[str, Any]) -> list[str]:
        """Return the flags of a trial's settings."""
        return [word for flag, value in params.items() for word in (flag, *self.space[flag].words(value))]

    def run_of(self, number: int, params: Mapping[str, Any]) -> PlannedRun:
        """Return the run of a trial. Raises `UserError` if its settings do not go together."""
        flags = [*self.flags, *self.trial_flags(params)]
        name = f"trial-{number:04}"
        return PlannedRun(
            recipe=self.recipe.name,
            preset=self.recipe.preset,
            series=name,
            config=recipes.config_from_flags(self.recipe, self.variants, flags, size=self.size, model=self.model),
            directory=self.directory / name,
        )

    def identity(self) -> dict[str, Any]:
        """Return what the trials of a study have in common, as JSON values."""
        return {"command": self.train_command({}), "search": describe(self.space)}


class Pruning(Callback):
    """Reports evaluations to the study, and stops a run whose returns are below the median of the others' so far."""

    def __init__(self, trial: optuna.Trial, *, prunes: bool) -> None:
        self._trial, self._prunes = trial, prunes
        self._reported = set(trial.storage.get_trial(trial._trial_id).intermediate_values)

    def on_evaluation(self, run: RunProgress) -> None:
        """Called after each evaluation during training."""
        assert run.evaluation is not None
        index = round(run.env_steps / run.config.eval.interval_env_steps)  # trials may step in other numbers
        if index not in self._reported:
            self._reported.add(index)
            self._trial.report(run.evaluation.return_mean, index)
        if self._prunes and self._trial.should_prune():
            run.stop(PRUNED)


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


def run_trials(
    study: optuna.Study, config: TuneConfig, *, num_trials: int, workers: int, prunes: bool, quiet: bool
) -> Outcome:
    """Make trials until the study has `num_trials`, first those that were interrupted. A signal stops them."""
    waiting = [trial.number for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))]
    outcome, active = Outcome(), list[_Worker]()
    with StopSignal() as stop:
        while True:
            while len(active) < workers and not stop.is_requested() and not outcome.stopped_by:
                number = waiting.pop(0) if waiting else _ask(study, config, num_trials)
                if number is None:
                    break
                if workers == 1:
                    _finish(study, config, number, run_trial(config, number, prunes=prunes, quiet=quiet), outcome)
                else:
                    active.append(_Worker.start(config, number, prunes=prunes, quiet=quiet))
            if not active:
                break
            ended = wait([worker.receiver for worker in active], timeout=_POLL_SECONDS)
            for worker in [worker for worker in active if worker.receiver in ended]:
                active.remove(worker)
                _finish(study, config, worker.number, worker.result(), outcome)
            if stop.is_requested():
                for worker in active:
                    worker.stop()
        outcome.stopped_by = outcome.stopped_by or stop.requested
    return outcome


def run_trial(config: TuneConfig, number: int, *, prunes: bool, quiet: bool) -> Outcome:
    """Train or resume the run of a trial."""
    study = _load(config.directory, prunes=prunes)
    trial = optuna.Trial(study, study.get_trials(deepcopy=False)[number]._trial_id)
    try:
        run = config.run_of(number, trial.params)
    except UserError as error:
        return Outcome(failed={f"trial-{number:04}": str(error)})
    callbacks = [Pruning(trial, prunes=prunes)]
    return execute([run], quiet=quiet, train=partial(train_or_resume, callbacks=callbacks))


@dataclass(kw_only=True)
class _Worker:
    """A process that makes one trial."""

    number: int
    process: Any
    receiver: Connection
    is_stopped: bool = False

    @staticmethod
    def start(config: TuneConfig, number: int, *, prunes: bool, quiet: bool) -> "_Worker":
        context = multiprocessing.get_context("spawn")
        receiver, sender = context.Pipe(duplex=False)
        job = (config, number, prunes, quiet, caller_module_names(), sender)
        process = context.Process(target=_work, args=job)
        process.start()
        sender.close()
        return _Worker(number=number, process=process, receiver=receiver)

    def stop(self) -> None:
        """Request a checkpoint and an end, once: a second signal would end the process at once."""
        if not self.is_stopped:
            self.is_stopped = True
            self.process.terminate()

    def result(self) -> Outcome:
        try:
            outcome: Outcome = self.receiver.recv()
        except EOFError:
            title = f"trial-{self.number:04}"
            outcome = Outcome(stopped_by="SIGTERM") if self.is_stopped else Outcome(failed={title: "its process died"})
        self.process.join()
        self.receiver.close()
        return outcome


def _work(
    config: TuneConfig, number: int, prunes: bool, quiet: bool, modules: Sequence[str], sender: Connection
) -> None:
    """Make one trial in a process of its own, which the terminal's signals do not reach."""
    if hasattr(os, "setpgrp"):
        os.setpgrp()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # until the run handles it
    try:
        with caller_modules(modules):
            sender.send(run_trial(config, number, prunes=prunes, quiet=quiet))
    except KeyboardInterrupt:
        sender.send(Outcome(stopped_by="SIGTERM"))


def _load(directory: Path, *, prunes: bool) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = JournalStorage(JournalFileBackend(str(directory / JOURNAL)))
    study = optuna.create_study(study_name=_STUDY, storage=storage, direction="maximize", load_if_exists=True)
    study.sampler = optuna.samplers.TPESampler(seed=len(study.get_trials(deepcopy=False)))
    study.pruner = optuna.pruners.MedianPruner() if prunes else optuna.pruners.NopPruner()
    return study


def _ask(study: optuna.Study, config: TuneConfig, num_trials: int) -> int | None:
    """Return the number of a new trial; None if the study has enough of them."""
    if len(study.get_trials(deepcopy=False)) >= num_trials:
        return None
    return study.ask({flag: _distribution(parameter) for flag, parameter in config.space.items()}).number


def _distribution(parameter: Range | Choices) -> optuna.distributions.BaseDistribution:
    if isinstance(parameter, Choices):
        return optuna.distributions.CategoricalDistribution(parameter.values)
    if parameter.is_int:
        return optuna.distributions.IntDistribution(int(parameter.low), int(parameter.high), log=parameter.log)
    return optuna.distributions.FloatDistribution(parameter.low, parameter.high, log=parameter.log)


def _finish(study: optuna.Study, config: TuneConfig, number: int, made: Outcome, outcome: Outcome) -> None:
    """Record the end of a trial, unless a signal stopped it: then it goes on in the next call."""
    outcome.failed |= made.failed
    outcome.in_progress += made.in_progress
    outcome.stopped_by = outcome.stopped_by or made.stopped_by
    if made.failed:
        trial_id = study.get_trials(deepcopy=False)[number]._trial_id
        study._storage.set_trial_user_attr(trial_id, ERROR, next(iter(made.failed.values())))
        study.tell(number, state=TrialState.FAIL)
        return
    result = None if made.stopped_by or made.in_progress else read_result(config.directory / f"trial-{number:04}")
    if result is not None:
        value = result["return_mean"]
        if result["end_reason"] == PRUNED:
            study.tell(number, state=TrialState.PRUNED)
        else:
            study.tell(number, value)
