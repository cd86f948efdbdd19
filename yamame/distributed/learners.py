"""Several learners from one command: their processes, begun, watched and stopped together; or those of torchrun."""

import multiprocessing
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from yamame.config import RunConfig
from yamame.distributed.sharding import compute_for_rank
from yamame.distributed_context import (
    SINGLE_PROCESS,
    DistributedContext,
    PeerLostError,
    create_tcp_store,
    init_distributed,
)
from yamame.errors import RunFailedError, UserError
from yamame.run_dir import CONFIG, write_status
from yamame.signals import StopSignal

TrainFn = Callable[..., dict[str, Any]]
"""Takes `Ranks`, the config, the run's directory and more."""

_LAST_SECONDS = 60.0
"""Without a parent a process stops as by a signal, and ends after so long in any case."""


def learner_main(
    rank: int,
    port: int,
    orders: Connection,
    reports: Connection,
    work: TrainFn,
    config: RunConfig,
    directory: Path,
    *arguments: Any,
) -> None:
    """The whole life of a learner.

    It reports ("begun", None), then one of ("done", what the work gave), ("mistake", the words of a `UserError`),
    ("lost", why another one is not there) and ("failed", why). An order is the number of a signal.
    """
    os.setpgrp()  # the terminal's signals are for the parent
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_obey, args=(orders,), daemon=True).start()
    _report(reports, ("begun", None))
    world = config.num_learners
    code = 1
    try:
        device = torch.device(compute_for_rank(config.compute, rank, world).device).type
        place = create_tcp_store(port)
        with init_distributed(
            rank, world, local_rank=rank, local_world_size=world, device=device, store=place
        ) as ranks:
            done = work(ranks, config, directory, *arguments)
            _report(reports, ("done", done if ranks.is_main else None))
        code = 0
    except UserError as mistake:
        _report(reports, ("mistake", str(mistake)))
    except PeerLostError as lost:
        _report(reports, ("lost", str(lost)))
    except KeyboardInterrupt:
        code = 130
    except Exception as problem:  # the process ends with it, and its parent tells of it
        traceback.print_exc()
        _report(reports, ("failed", " ".join(f"{type(problem).__name__}: {problem}".split())))
    sys.exit(code)


def _report(reports: Connection, what: tuple[str, Any]) -> None:
    with suppress(OSError):  # nobody listens any more: the parent is gone
        reports.send(what)


def _obey(orders: Connection) -> None:
    """Get the signals that are ordered. Where the parent is gone, stop; at once, if that was ordered before."""
    try:
        os.kill(os.getpid(), orders.recv())
    except EOFError:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_LAST_SECONDS)
        os._exit(1)
    try:
        orders.recv()
    except EOFError:
        os._exit(1)


_GRACE_SECONDS = 10.0
"""Where one learner has failed, the others hear of it and end by themselves; after so long they are killed."""
_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def should_launch(config: RunConfig) -> bool:
    """Whether this process is to begin others for a run, since torchrun has not."""
    return config.num_learners > 1 and not _under_torchrun()


def is_output_process() -> bool:
    """Whether what a run comes to is told by this process: by all but further ones of torchrun."""
    return not _under_torchrun() or os.environ["RANK"] == "0"


@contextmanager
def current_context(config: RunConfig) -> Iterator[DistributedContext]:
    """What this process is: alone, or one of those that torchrun began.

    `UserError` where these are not as many as the run's learners, and where another one is lost.
    """
    world = int(os.environ["WORLD_SIZE"]) if _under_torchrun() else 1
    if world != config.num_learners:
        raise UserError(
            f"torchrun began {world} processes for a run with {config.num_learners} learners: give as many to both"
        )
    if world == 1:
        yield SINGLE_PROCESS
        return
    rank, local_rank, local_world = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"))
    device = torch.device(compute_for_rank(config.compute, local_rank, local_world).device).type
    try:
        with init_distributed(rank, world, local_rank=local_rank, local_world_size=local_world, device=device) as ranks:
            yield ranks
    except PeerLostError as lost:
        raise UserError(f"{lost}: yamame resume goes on from the last checkpoint") from lost


def launch(work: TrainFn, config: RunConfig, directory: Path, *arguments: Any) -> dict[str, Any]:
    """What `work(ranks, config, directory, *arguments)` gives on the first of `config.learners` processes.

    A first signal reaches all of them, once; a second one ends all at once. Raises what one process would: `UserError`
    for one that any learner raised, what the signal does where none had begun; and `RunFailedError` where a learner
    died or failed, the others being stopped.
    """
    crew: list[_Member] = []
    try:
        store = create_tcp_store()
        with _deaf_to_the_terminal():
            for rank in range(config.num_learners):
                crew.append(_Member(rank, store.port, work, config, (directory, *arguments)))
        with StopSignal() as stop:
            _watch(crew, stop)
    finally:
        for member in crew:
            member.kill()
        if not (directory / CONFIG).exists():
            shutil.rmtree(directory, ignore_errors=True)
    if crew[0].said == "done":
        summary: dict[str, Any] = crew[0].what
        return summary
    failure = _failure_of(crew, directory)
    if stop.requested and not isinstance(failure, UserError):
        signal.raise_signal(signal.Signals[stop.requested])
    if directory.exists():
        write_status(directory, "failed", str(failure))
    raise failure


class _Member:
    """One learner's process, as its parent knows it."""

    def __init__(self, rank: int, port: int, work: TrainFn, config: RunConfig, arguments: Sequence[Any]) -> None:
        self.rank = rank
        self.said = ""
        self.what: Any = None
        """The last that was heard from it: see `yamame.distributed.learners`."""
        self.was_killed = False
        context = multiprocessing.get_context("spawn")
        orders, self._orders = context.Pipe(duplex=False)
        self.reports, reports = context.Pipe(duplex=False)
        self.process = context.Process(
            target=learner_main, args=(rank, port, orders, reports, work, config, *arguments), name=f"learner {rank}"
        )
        try:
            self.process.start()
        except RuntimeError as problem:
            raise UserError(_NO_GUARD) from problem
        except Exception as problem:  # whatever pickling may raise
            told = " ".join(f"{type(problem).__name__}: {problem}".split())
            raise UserError(
                f"the config cannot be sent to other processes ({told}): define what it holds at the top of a module, "
                "use the command line, or start the script with torchrun"
            ) from problem
        orders.close()
        reports.close()

    @property
    def has_failed(self) -> bool:
        """Whether it has ended otherwise than all do."""
        return self.said in ("mistake", "failed", "lost") or bool(self.process.exitcode)

    def listen(self) -> None:
        """Take what it says."""
        with suppress(EOFError, OSError):
            while self.reports.poll():
                self.said, self.what = self.reports.recv()

    def tell(self, number: int) -> None:
        """Let it get a signal."""
        with suppress(OSError):
            self._orders.send(number)

    def kill(self) -> None:
        """End it now, if it has not ended."""
        if self.process.is_alive():
            self.was_killed = True
            self.process.kill()
        self.process.join()

    def end(self) -> str:
        """How it ended, in words that follow its name."""
        code = self.process.exitcode or 0
        if code < 0 and not self.was_killed:
            return f"was killed by {signal.Signals(-code).name}"
        if self.said == "failed":
            return f"failed ({self.what})"
        return f"ended with code {code}" if self.said else f"could not begin ({_NO_GUARD})"


_NO_GUARD = "a script that trains with several learners needs `if __name__ == '__main__':` around that"


def _watch(crew: Sequence[_Member], stop: StopSignal) -> None:
    """Until all have ended, which they do if one has failed or a signal came."""
    told, patience = False, float("inf")
    while alive := [member.process.sentinel for member in crew if member.process.is_alive()]:
        wait(alive, timeout=0.2)
        for member in crew:
            member.listen()
        if stop.requested and not told:
            told = True
            for member in crew:
                member.tell(signal.Signals[stop.requested])
        if any(member.has_failed for member in crew):
            patience = min(patience, time.monotonic() + _GRACE_SECONDS)
        if time.monotonic() > patience:
            for member in crew:
                member.kill()
    for member in crew:
        member.listen()


def _failure_of(crew: Sequence[_Member], directory: Path) -> Exception:
    """What went wrong first: others are lost because one is."""
    mistakes = [member for member in crew if member.said == "mistake"]
    if mistakes:
        return UserError(mistakes[0].what)
    own = [member for member in crew if member.said != "lost" and not member.was_killed and member.has_failed]
    how = f"learner {own[0].rank} {own[0].end()}" if own else next(str(m.what) for m in crew if m.said == "lost")
    begun = f"; yamame resume {directory} goes on from the last checkpoint" if directory.exists() else ""
    return RunFailedError(f"{how}: all learners were stopped{begun}")


def _under_torchrun() -> bool:
    return all(name in os.environ for name in _TORCHRUN)


def _deaf_to_the_terminal() -> Any:
    """Inside, processes begin that do not hear Ctrl-C: it is for their parent to tell them."""
    return _ignoring_sigint() if threading.current_thread() is threading.main_thread() else nullcontext()


@contextmanager
def _ignoring_sigint() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
