"""What runs on the nodes of a Ray cluster: a process for each trial, and the board between them and the search."""

import asyncio
import os
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from yamame.config.named_code import caller_modules
from yamame.runs.directory import LOCK
from yamame.tools.study.execute import Outcome
from yamame.tools.tune.trial import Trial, TuneConfig, run_trial

CHUNK_BYTES = 16 * 2**20
"""Files of runs are sent in chunks of this size."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """An evaluation of a trial during training."""

    trial_number: int
    number: int
    return_mean: float


class TrialBoard:
    """Ray actor: evaluations go from the trials to the search, answers and the request to stop the other way."""

    def __init__(self) -> None:
        self._evaluations: asyncio.Queue[Evaluation] = asyncio.Queue()
        self._answers: dict[int, asyncio.Future[bool]] = {}
        self._stop = asyncio.Event()

    async def report(self, evaluation: Evaluation) -> bool:
        """Pass an evaluation to the search; return its answer, whether to prune the trial."""
        answer = asyncio.get_running_loop().create_future()
        self._answers[evaluation.trial_number] = answer
        self._evaluations.put_nowait(evaluation)
        return await answer

    async def next_evaluation(self) -> Evaluation:
        """Return the next evaluation of any trial, as soon as there is one."""
        return await self._evaluations.get()

    async def answer(self, trial_number: int, prunes: bool) -> None:
        """Answer the last report of a trial."""
        if trial_number in self._answers:  # a second process of the trial may have been answered for the first
            self._answers.pop(trial_number).set_result(prunes)

    async def request_stop(self) -> None:
        """Request a checkpoint and an end of all trials."""
        self._stop.set()

    async def wait_for_stop(self) -> None:
        """Return when the end of all trials is requested."""
        await self._stop.wait()


class TrialActor:
    """Ray actor: makes one trial in a temporary folder of its node, in the main thread of its process.

    Args:
        board: Handle of the `TrialBoard`.
        num_threads: Threads of PyTorch.
    """

    def __init__(self, board: Any, num_threads: int) -> None:
        self._board = board
        self._folder = Path(tempfile.mkdtemp(prefix="yamame-trial-"))
        torch.set_num_threads(num_threads)

    def ping(self) -> str:
        """Return the process and its host, for messages."""
        return f"process {os.getpid()} on {socket.gethostname()}"

    def write(self, path: str, chunk: bytes) -> None:
        """Append to a file, which is created with its folders."""
        file = self._folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("ab") as opened:
            opened.write(chunk)

    def train(self, config: TuneConfig, trial: Trial, modules: Sequence[str]) -> Outcome:
        """Train the trial, or resume it from the files that were written.

        Args:
            config: Its directory is replaced by the temporary folder.
            trial: The trial.
            modules: Modules that files of the run may name.
        """
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # until the run handles it
        threading.Thread(target=self._signal_stop, daemon=True).start()
        try:
            with caller_modules(modules):
                return run_trial(
                    replace(config, directory=self._folder),
                    trial,
                    lambda number, return_mean: self._report(trial, number, return_mean),
                    quiet=True,
                )
        except KeyboardInterrupt:
            return Outcome(stopped_by="SIGTERM")
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the files are needed; the search kills this process

    def list_files(self) -> list[tuple[str, int]]:
        """Return path and size in bytes of each file of the run."""
        files = [path for path in sorted(self._folder.rglob("*")) if path.is_file() and path.name != LOCK]
        return [(path.relative_to(self._folder).as_posix(), path.stat().st_size) for path in files]

    def read(self, path: str, offset: int) -> bytes:
        """Return a chunk of a file."""
        with (self._folder / path).open("rb") as opened:
            opened.seek(offset)
            return opened.read(CHUNK_BYTES)

    def remove_files(self) -> None:
        """Remove the temporary folder."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _report(self, trial: Trial, number: int, return_mean: float) -> bool:
        import ray

        evaluation = Evaluation(trial_number=trial.number, number=number, return_mean=return_mean)
        return bool(ray.get(self._board.report.remote(evaluation)))

    def _signal_stop(self) -> None:
        """Send this process the signal of a stop when the search requests one."""
        import ray

        with suppress(ray.exceptions.RayError):  # the search has ended, and with it this process
            ray.get(self._board.wait_for_stop.remote())
            os.kill(os.getpid(), signal.SIGTERM)
