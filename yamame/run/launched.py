"""What a learner's process does that another process launched: work, say how it ended, and do as it is told."""

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from yamame.ops.ranks import PeerLostError, init_distributed, create_tcp_store
from yamame.records.errors import UserError
from yamame.run.config import RunConfig
from yamame.run.shares import compute_for_rank

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
        with init_distributed(rank, world, local_rank=rank, local_world_size=world, device=device, store=place) as ranks:
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
