"""`RayTrials`: trials in a Ray cluster, for a study that stays in this process."""

import math
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from typing_extensions import override

from yamame.collect.faults import RateLimitedPrinter
from yamame.config.named_code import caller_module_names
from yamame.distributed.ray.connection import RayConnection, connect, first_line, format_resources
from yamame.errors import UserError, describe_error
from yamame.run_config import RunConfig
from yamame.runs.durable_files import sync_folder
from yamame.tools.study.execute import Outcome
from yamame.tools.tune.ray_actors import CHUNK_BYTES, Evaluation, TrialActor, TrialBoard
from yamame.tools.tune.trial import Report, Trial, TrialExecutor, TuneConfig

TRIES = 3
"""Processes that a trial may lose before it has failed."""
_POLL_SECONDS = 0.5
_NO_ROOM_SECONDS = 30.0
"""Trials that wait for room in the cluster for this long are reported."""
_CLOSE_SECONDS = 5.0
"""Maximum time for threads to end at the end of a search."""
THREAD_NAME = "tune --ray"
"""Name of the threads that wait for the cluster."""


class RayTrials(TrialExecutor):
    """Makes trials in a Ray cluster, each in a process and a temporary folder of a node.

    A thread per trial starts the process, sends the files of a trial that is resumed, and brings the files back at its
    end. A trial whose process dies is started again, on another node if its own is gone.

    Args:
        config: Of the search.
        run_config: Config of its runs, apart from the searched fields.
        address: Of the cluster, as in `--ray.address`.
        workers: Number of trials at a time; None: as many as the nodes have room for.
        cpus: Cores that Ray reserves for a trial; None: one, or one for each worker process of its environments.
        gpus: GPUs that Ray reserves for a trial; None: one if it can use one and the cluster has any.

    Raises:
        UserError: If Ray is not installed, there is no cluster at the address, no node has room for a trial, or runs
            have collectors or learners in processes of their own.
    """

    def __init__(
        self,
        config: TuneConfig,
        run_config: RunConfig,
        *,
        address: str,
        workers: int | None,
        cpus: float | None,
        gpus: float | None,
    ) -> None:
        for flag, is_given in (
            ("--ray.address", run_config.ray.address),
            ("--num-learners", run_config.num_learners > 1),
        ):
            if is_given or flag in config.space:
                raise UserError(f"--ray trains each trial in one process of the cluster: leave out {flag}")
        self._cpus = float(max(1, getattr(run_config.env, "num_workers", None) or 0)) if cpus is None else cpus
        self._connection: RayConnection = connect(address, cpus=self._cpus * (workers or 1), flag="--ray")
        self._ray = self._connection.ray
        self._gpus = self._default_gpus(run_config) if gpus is None else gpus
        self._config, self._address, self._workers = config, address, workers
        if workers is None and not self.capacity():
            self._connection.close()
            raise UserError(
                f"no node of the cluster has room for a trial ({self._format_need()}): see --cpus-per-trial and "
                "--gpus-per-trial, or give --workers N if nodes join later"
            )
        self._reports: dict[int, Report] = {}
        self._events: SimpleQueue[Evaluation | tuple[Trial, Outcome] | Exception] = SimpleQueue()
        self._is_stopping = threading.Event()
        self._room_printer = RateLimitedPrinter(burst=1)
        self._modules = caller_module_names()
        here = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            self._ray.get_runtime_context().get_node_id(), soft=False
        )
        self._board = self._ray.remote(TrialBoard).options(num_cpus=0, scheduling_strategy=here).remote()
        self._actor_class = self._ray.remote(TrialActor).options(
            num_cpus=self._cpus, num_gpus=self._gpus, scheduling_strategy="SPREAD"
        )
        self._actors: set[Any] = set()
        self._threads: list[threading.Thread] = []
        self._start_thread(self._receive_evaluations)

    def _start_thread(self, target: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=target, name=THREAD_NAME, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    @override
    def capacity(self) -> int:
        """Return `workers`, or for how many trials the nodes that are alive have room if nothing else runs."""
        if self._workers is not None:
            return self._workers
        need = {name: amount for name, amount in (("CPU", self._cpus), ("GPU", self._gpus)) if amount}
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        return sum(min(int(node.get(name, 0.0) / amount) for name, amount in need.items()) for node in nodes)

    @override
    def start(self, trial: Trial, report: Report) -> None:
        self._reports[trial.number] = report
        self._start_thread(self._make, trial)

    @override
    def wait(self) -> list[tuple[Trial, Outcome]]:
        """Return a trial that has ended, or answer an evaluation. Raises `UserError` if the cluster is gone."""
        try:
            event = self._events.get(timeout=_POLL_SECONDS)
        except Empty:
            return []
        match event:
            case Evaluation():
                prunes = self._reports[event.trial_number](event.number, event.return_mean)
                self._board.answer.remote(event.trial_number, prunes)
                return []
            case ConnectionError() | self._ray.exceptions.RayError():
                raise UserError(
                    f"--ray {self._address} is gone ({first_line(event)}): run the same command again when it is back"
                ) from event
            case Exception():
                raise event
            case ended:
                return [ended]

    @override
    def stop(self) -> None:
        if not self._is_stopping.is_set():
            self._is_stopping.set()
            self._board.request_stop.remote()

    @override
    def close(self) -> None:
        """Disconnect; stops a cluster that was started for the search.

        Threads that wait for the cluster end first: Ray crashes if one is in `ray.get` meanwhile.
        """
        self._is_stopping.set()
        with suppress(Exception):  # the cluster may be gone
            for actor in (self._board, *self._actors.copy()):  # threads change it
                self._ray.kill(actor)
        deadline = time.monotonic() + _CLOSE_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._connection.close()

    def _default_gpus(self, run_config: RunConfig) -> float:
        device = run_config.compute.device
        can_use = device.startswith("cuda") or (device == "auto" and self._ray.cluster_resources().get("GPU"))
        return 1.0 if can_use else 0.0

    def _format_need(self) -> str:
        return format_resources(self._cpus, self._gpus)

    def _receive_evaluations(self) -> None:
        try:
            while True:
                self._events.put(self._ray.get(self._board.next_evaluation.remote()))
        except Exception as problem:
            self._events.put(problem)

    def _make(self, trial: Trial) -> None:
        try:
            self._events.put((trial, self._make_in_tries(trial)))
        except Exception as problem:  # of the connection or the disk here: not the trial's
            self._events.put(problem)

    def _make_in_tries(self, trial: Trial) -> Outcome:
        reason, was_placed = "", False
        for number in range(1, TRIES + 1):
            actor = self._actor_class.remote(self._board, math.ceil(self._cpus))
            self._actors.add(actor)
            try:
                if not self._is_placed(trial, actor):
                    return Outcome(stopped_by="SIGTERM")
                was_placed = True
                outcome = self._make_on(trial, actor)
                if self._is_stopping.is_set() or not outcome.stopped_by:
                    return outcome
                reason = f"{outcome.stopped_by} on its node"
            except self._ray.exceptions.RayActorError as problem:
                if self._is_stopping.is_set():
                    return Outcome(stopped_by="SIGTERM")
                reason = first_line(problem)
            except self._ray.exceptions.RayTaskError as problem:
                return Outcome(failed={trial.name: describe_error(problem.cause)})
            finally:
                self._actors.discard(actor)
                self._ray.kill(actor)
            _log(f"{trial.name}: its process was lost {number} of at most {TRIES} times ({reason})")
        if not was_placed:
            raise UserError(f"trials cannot start in the cluster ({reason}): is yamame installed on its nodes?")
        return Outcome(failed={trial.name: f"its process was lost {TRIES} times ({reason})"})

    def _is_placed(self, trial: Trial, actor: Any) -> bool:
        """Wait until the process of a trial has started; False if the search is stopped before."""
        started, waited = actor.ping.remote(), 0.0
        while not self._ray.wait([started], timeout=_POLL_SECONDS)[0]:
            waited += _POLL_SECONDS
            if self._is_stopping.is_set():
                return False
            if waited >= _NO_ROOM_SECONDS:
                self._room_printer.print(f"trials wait for room in the cluster ({self._format_need()} each)")
        _log(f"{trial.name}: {self._ray.get(started)}")
        return True

    def _make_on(self, trial: Trial, actor: Any) -> Outcome:
        """Send the files of a trial, train it, bring its files back."""
        self._send_files(actor, self._config.directory / trial.name)
        outcome: Outcome = self._ray.get(actor.train.remote(self._config, trial, self._modules))
        self._fetch_files(actor, self._config.directory / trial.name)
        self._ray.get(actor.remove_files.remote())
        return outcome

    def _send_files(self, actor: Any, directory: Path) -> None:
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                name = path.relative_to(directory.parent).as_posix()
                with path.open("rb") as opened:
                    for _ in range(0, max(path.stat().st_size, 1), CHUNK_BYTES):
                        self._ray.get(actor.write.remote(name, opened.read(CHUNK_BYTES)))

    def _fetch_files(self, actor: Any, directory: Path) -> None:
        """Replace a run directory by the files of the actor, of which none are left if the run could not start."""
        files = self._ray.get(actor.list_files.remote())
        partial = directory.with_name(f".{directory.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        for path, size in files:
            file = partial / path
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("wb") as opened:
                for offset in range(0, size, CHUNK_BYTES):
                    opened.write(self._ray.get(actor.read.remote(path, offset)))
                opened.flush()
                os.fsync(opened.fileno())
        if files:
            replaced = partial / "replaced"
            if directory.exists():
                directory.rename(replaced)  # removed only when the new one is there
            (partial / directory.name).rename(directory)
            sync_folder(directory.parent)
            shutil.rmtree(partial)


def _log(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
