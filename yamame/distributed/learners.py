"""Learner processes: started, monitored and stopped by one command, or started by torchrun."""

import multiprocessing
import os
import shlex
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from yamame.distributed.sharding import compute_for_rank
from yamame.distributed.signals import StopSignal
from yamame.distributed_context import (
    SINGLE_PROCESS,
    DistributedContext,
    PeerLostError,
    init_distributed,
    open_rendezvous,
)
from yamame.errors import RunFailedError, UserError, describe_error
from yamame.run_config import RunConfig
from yamame.runs.directory import CONFIG, write_status

TrainFn = Callable[..., dict[str, Any]]
"""Function of a `DistributedContext`, the config, the run directory and further arguments."""

_ORPHAN_EXIT_SECONDS = 60.0
"""A learner whose parent process is gone raises SIGTERM, and exits after this time at the latest."""


def learner_main(
    rank: int,
    rendezvous: Path,
    signals: Connection,
    messages: Connection,
    train: TrainFn,
    config: RunConfig,
    directory: Path,
    *arguments: Any,
) -> None:
    """Main function of a learner process.

    Args:
        rank: Index of this process.
        rendezvous: File by which the learners find each other.
        signals: Receives numbers of signals to raise.
        messages: Sends ("started", None), then one of ("done", result), ("user_error", message), ("peer_lost", message)
            and ("failed", message).
        train: Called with the context, `config`, `directory` and `arguments`.
        config: Config of the run.
        directory: Run directory.
        arguments: Further arguments of `train_run`.
    """
    if sys.platform != "win32":  # where `should_launch` refuses
        os.setpgrp()  # only the parent receives the signals of the terminal
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_raise_signals, args=(signals,), daemon=True).start()
    _send(messages, ("started", None))
    world_size = config.num_learners
    code = 1
    try:
        device = torch.device(compute_for_rank(config.compute, rank, world_size).device).type
        store = open_rendezvous(rendezvous)
        with init_distributed(
            rank, world_size, local_rank=rank, local_world_size=world_size, device=device, store=store
        ) as context:
            result = train(context, config, directory, *arguments)
            _send(messages, ("done", result if context.is_main else None))
        code = 0
    except UserError as error:
        _send(messages, ("user_error", str(error)))
    except PeerLostError as error:
        _send(messages, ("peer_lost", str(error)))
    except KeyboardInterrupt:
        code = 130
    except Exception as error:  # reported by the parent
        traceback.print_exc()
        _send(messages, ("failed", describe_error(error)))
    sys.exit(code)


def _send(messages: Connection, message: tuple[str, Any]) -> None:
    with suppress(OSError):  # the parent is gone
        messages.send(message)


def _raise_signals(signals: Connection) -> None:
    """Raise the first signal received; exit if the parent is gone, at once if a signal was received before."""
    try:
        os.kill(os.getpid(), signals.recv())
    except EOFError:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_ORPHAN_EXIT_SECONDS)
        os._exit(1)
    try:
        signals.recv()
    except EOFError:
        os._exit(1)


_GRACE_SECONDS = 10.0
"""If a learner fails, the others detect it and exit; after this time they are killed."""
_TORCHRUN_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def should_launch(config: RunConfig) -> bool:
    """Whether this process must start the learner processes of a run: False under torchrun.

    Raises `UserError` if it must, and this is Windows.
    """
    must_launch = config.num_learners > 1 and not _under_torchrun()
    if must_launch and sys.platform == "win32":
        raise UserError("several learners need Linux or macOS: set num_learners to 1")
    return must_launch


def is_output_process() -> bool:
    """Whether this process prints the results of a run: False on ranks of torchrun other than 0."""
    return not _under_torchrun() or os.environ["RANK"] == "0"


@contextmanager
def current_context(config: RunConfig) -> Iterator[DistributedContext]:
    """Yield the context of this process: a single process, or a rank of torchrun.

    Raises:
        UserError: If the number of processes is not `num_learners`, or if another rank is lost.
    """
    world_size = int(os.environ["WORLD_SIZE"]) if _under_torchrun() else 1
    if world_size != config.num_learners:
        raise UserError(
            f"torchrun started {world_size} processes for a run with {config.num_learners} learners: "
            "pass the same number to both"
        )
    if world_size == 1:
        yield SINGLE_PROCESS
        return
    rank, local_rank, local_world_size = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"))
    device = torch.device(compute_for_rank(config.compute, local_rank, local_world_size).device).type
    try:
        with init_distributed(
            rank, world_size, local_rank=local_rank, local_world_size=local_world_size, device=device
        ) as context:
            yield context
    except PeerLostError as error:
        raise UserError(f"{error}: yamame resume continues from the latest checkpoint") from error


def launch(train: TrainFn, config: RunConfig, directory: Path, *arguments: Any) -> dict[str, Any]:
    """Run `train(context, config, directory, *arguments)` in `config.num_learners` processes.

    A first SIGINT or SIGTERM is forwarded to all of them; a second one kills them. Before any learner has started, a
    signal has its default effect.

    Returns:
        The result of the main rank.

    Raises:
        UserError: If any learner raised it.
        RunFailedError: If a learner died or failed; the others are stopped.
    """
    learners: list[_LearnerProcess] = []
    folder = tempfile.TemporaryDirectory(prefix="yamame-", ignore_cleanup_errors=True)  # that only this user can read
    try:
        rendezvous = Path(folder.name) / "rendezvous"
        with _sigint_ignored_in_children():
            for rank in range(config.num_learners):
                learners.append(_LearnerProcess(rank, rendezvous, train, config, (directory, *arguments)))
        with StopSignal() as stop:
            _wait_for_all(learners, stop)
    finally:
        for learner in learners:
            learner.kill()
        folder.cleanup()
        if not (directory / CONFIG).exists():
            shutil.rmtree(directory, ignore_errors=True)
    if learners[0].last_message == "done":
        result: dict[str, Any] = learners[0].content
        return result
    failure = _find_failure(learners, directory)
    if stop.requested and not isinstance(failure, UserError):
        signal.raise_signal(signal.Signals[stop.requested])
    if directory.exists():
        write_status(directory, "failed", str(failure))
    raise failure


class _LearnerProcess:
    """Handle of a learner process."""

    def __init__(
        self, rank: int, rendezvous: Path, train: TrainFn, config: RunConfig, arguments: Sequence[Any]
    ) -> None:
        self.rank = rank
        self.last_message = ""
        self.content: Any = None
        """Content of the last message."""
        self.was_killed = False
        context = multiprocessing.get_context("spawn")
        signals, self._signals = context.Pipe(duplex=False)
        self._messages, messages = context.Pipe(duplex=False)
        self.process = context.Process(
            target=learner_main,
            args=(rank, rendezvous, signals, messages, train, config, *arguments),
            name=f"learner {rank}",
        )
        try:
            self.process.start()
        except RuntimeError as error:
            raise UserError(_NO_GUARD) from error
        except Exception as error:  # raised by pickle
            raise UserError(
                f"the config cannot be pickled for other processes ({describe_error(error)}): define its classes and "
                "functions at the top level of a module, use the command line, or start the script with torchrun"
            ) from error
        signals.close()
        messages.close()

    @property
    def has_failed(self) -> bool:
        """Whether the process has reported a failure or exited with an error."""
        return self.last_message in ("user_error", "failed", "peer_lost") or bool(self.process.exitcode)

    def receive(self) -> None:
        """Receive pending messages."""
        with suppress(EOFError, OSError):
            while self._messages.poll():
                self.last_message, self.content = self._messages.recv()

    def send_signal(self, number: int) -> None:
        """Raise a signal in the process."""
        with suppress(OSError):
            self._signals.send(number)

    def kill(self) -> None:
        """Kill the process if it is alive."""
        if self.process.is_alive():
            self.was_killed = True
            self.process.kill()
        self.process.join()

    def describe_exit(self) -> str:
        """Return a description of the exit, as a predicate."""
        code = self.process.exitcode or 0
        if code < 0 and not self.was_killed:
            return f"was killed by {signal.Signals(-code).name}"
        if self.last_message == "failed":
            return f"failed ({self.content})"
        return f"exited with code {code}" if self.last_message else f"could not start ({_NO_GUARD})"


_NO_GUARD = "a script that trains with several learners must do so inside `if __name__ == '__main__':`"


def _wait_for_all(learners: Sequence[_LearnerProcess], stop: StopSignal) -> None:
    """Wait until all have exited, which they do after a failure of one or after a signal."""
    forwarded, deadline = False, float("inf")
    while alive := [learner.process.sentinel for learner in learners if learner.process.is_alive()]:
        wait(alive, timeout=0.2)
        for learner in learners:
            learner.receive()
        if stop.requested and not forwarded:
            forwarded = True
            for learner in learners:
                learner.send_signal(signal.Signals[stop.requested])
        if any(learner.has_failed for learner in learners):
            deadline = min(deadline, time.monotonic() + _GRACE_SECONDS)
        if time.monotonic() > deadline:
            for learner in learners:
                learner.kill()
    for learner in learners:
        learner.receive()


def _find_failure(learners: Sequence[_LearnerProcess], directory: Path) -> Exception:
    """Return the first cause; other learners then fail because they lose a peer."""
    for learner in learners:
        if learner.last_message == "user_error":
            return UserError(learner.content)
    # one that is killed here after its report has failed by itself, and then hung
    failed = [each for each in learners if each.has_failed and (each.last_message == "failed" or not each.was_killed)]
    causes = [f"learner {each.rank} {each.describe_exit()}" for each in failed if each.last_message != "peer_lost"]
    causes += [str(each.content) for each in learners if each.last_message == "peer_lost"]
    resume = f"yamame resume {shlex.quote(str(directory))}"
    remedy = f"; {resume} continues from the latest checkpoint" if directory.exists() else ""
    cause = causes[0] if causes else "a learner ended without a result"
    return RunFailedError(f"{cause}: all learners were stopped{remedy}")


def _under_torchrun() -> bool:
    return all(name in os.environ for name in _TORCHRUN_VARIABLES)


@contextmanager
def _sigint_ignored_in_children() -> Iterator[None]:
    """Start processes that ignore Ctrl-C, which their parent forwards."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
