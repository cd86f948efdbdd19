"""Trials in processes of this machine."""

import multiprocessing
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

from typing_extensions import override

from yamame.config.named_code import caller_module_names, caller_modules
from yamame.tools.study.execute import Outcome
from yamame.tools.tune.trial import Report, Trial, TrialExecutor, TuneConfig, run_trial
from yamame.types import Connection

_POLL_SECONDS = 0.5


class LocalProcesses(TrialExecutor):
    """Makes several trials at a time, each in a process of its own, which report to the journal of the study."""

    def __init__(self, config: TuneConfig, *, workers: int) -> None:
        self._config, self._workers = config, workers
        self._active: list[_Worker] = []

    @override
    def capacity(self) -> int:
        return self._workers

    @override
    def start(self, trial: Trial, report: Report) -> None:
        self._active.append(_Worker.start(self._config, trial, report))

    @override
    def wait(self) -> list[tuple[Trial, Outcome]]:
        receivers = wait([worker.receiver for worker in self._active], timeout=_POLL_SECONDS)
        ended = [worker for worker in self._active if worker.receiver in receivers]
        self._active = [worker for worker in self._active if worker not in ended]
        return [(worker.trial, worker.result()) for worker in ended]

    @override
    def stop(self) -> None:
        for worker in self._active:
            worker.stop()

    @override
    def close(self) -> None: ...


@dataclass(kw_only=True, eq=False)
class _Worker:
    """A process that makes one trial."""

    trial: Trial
    process: Any
    receiver: Connection
    is_stopped: bool = False

    @staticmethod
    def start(config: TuneConfig, trial: Trial, report: Report) -> "_Worker":
        context = multiprocessing.get_context("spawn")
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(config, trial, report, caller_module_names(), sender))
        process.start()
        sender.close()
        return _Worker(trial=trial, process=process, receiver=receiver)

    def stop(self) -> None:
        """Request a checkpoint and an end, once: a second signal would end the process at once."""
        if not self.is_stopped:
            self.is_stopped = True
            self.process.terminate()

    def result(self) -> Outcome:
        try:
            outcome: Outcome = self.receiver.recv()
        except EOFError:
            failed = Outcome(failed={self.trial.name: "its process died"})
            outcome = Outcome(stopped_by="SIGTERM") if self.is_stopped else failed
        self.process.join()
        self.receiver.close()
        return outcome


def _work(config: TuneConfig, trial: Trial, report: Report, modules: Sequence[str], sender: Connection) -> None:
    """Make one trial in a process of its own, which the terminal's signals do not reach."""
    if hasattr(os, "setpgrp"):
        os.setpgrp()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # until the run handles it
    try:
        with caller_modules(modules):
            sender.send(run_trial(config, trial, report, quiet=True))
    except KeyboardInterrupt:
        sender.send(Outcome(stopped_by="SIGTERM"))
