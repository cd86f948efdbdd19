"""This process and a Ray cluster: begun for the run on this machine, or joined."""

import logging
import math
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from yamame.config import RunConfig
from yamame.distributed_context import DistributedContext
from yamame.errors import UserError

LOCAL, AUTO = "local", "auto"
NAMESPACE = "yamame"
"""Where the collectors' names are unique."""

_CLIENT = "ray://"
_CLIENT_PORT, _PORT = 10001, 6379
_KNOCK_SECONDS = 10.0
_AUTHENTICATION = "RAY_AUTH_MODE"
"""How processes prove to the cluster that they belong to it. Ray sets it where it begins one, and needs it to join."""


@dataclass(frozen=True)
class RayConnection:
    """A connection that lasts until it is closed."""

    ray: Any
    """The package."""
    is_persistent: bool
    """Whether the cluster goes on when this process ends."""
    owns_cluster: bool
    """Whether it was made here; or else the program had one before."""

    @property
    def address(self) -> str:
        """Where others join the cluster."""
        address: str = self.ray.get_runtime_context().gcs_address
        return address

    def close(self) -> None:
        """Leave the cluster; one that was begun for the run ends."""
        if self.owns_cluster:
            self.ray.shutdown()


def connect_ranks(config: RunConfig, ranks: DistributedContext) -> RayConnection:
    """This learner's connection to the cluster of a run: a `local` one is begun by the first for all.

    Raises as `connect` does; all ranks call this together.
    """
    cpus = config.ray.num_collectors * config.ray.num_cpus_per_collector
    begins = ranks.is_main or config.ray.address != LOCAL
    connection: RayConnection | None = None
    with ranks.propagate_failure():
        if begins:
            connection = connect(config.ray.address, cpus=cpus)
    first_address, authentication = ranks.broadcast_object(
        (connection.address if connection else "", os.environ.get(_AUTHENTICATION, ""))
    )
    with ranks.propagate_failure():
        if connection is None:
            os.environ[_AUTHENTICATION] = authentication
            connection = replace(connect(first_address, cpus=cpus), is_persistent=False)
    return connection


def connect(address: str, *, cpus: float) -> RayConnection:
    """Join the cluster at an address, or with `local` begin one that has room for so many cores' work.

    `UserError` where Ray is not installed, and where nobody answers at the address.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as missing:
        raise UserError(f"--ray.address {address} needs Ray: pip install 'yamame[ray]'") from missing
    if ray.is_initialized():
        return RayConnection(ray, is_persistent=True, owns_cluster=False)
    if address not in (LOCAL, AUTO):
        _knock(address)
    options: dict[str, Any] = {"namespace": NAMESPACE, "log_to_driver": False, "logging_level": logging.ERROR}
    if address == LOCAL:
        options |= {"num_cpus": max(os.cpu_count() or 1, math.ceil(cpus)), "include_dashboard": False}
    try:
        with _own_signal_handlers():
            ray.init(address=address, **options)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as problem:
        why = str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__
        raise UserError(
            f"--ray.address {address} cannot be joined ({why}): is it running? If it asks for Ray's token, set "
            f"{_AUTHENTICATION}=token; see `ray status`"
        ) from problem
    return RayConnection(ray, is_persistent=address != LOCAL, owns_cluster=True)


def _knock(address: str) -> None:
    """`UserError` where nobody listens: Ray itself would try for minutes."""
    host, _, port = address.removeprefix(_CLIENT).partition(":")
    default = _CLIENT_PORT if address.startswith(_CLIENT) else _PORT
    if not host or not (port or str(default)).isdigit():
        raise UserError(f"--ray.address {address} is no address: give local, auto, HOST:PORT or ray://HOST:PORT")
    try:
        socket.create_connection((host, int(port or default)), timeout=_KNOCK_SECONDS).close()
    except (OSError, OverflowError) as problem:
        raise UserError(
            f"--ray.address {address} does not answer ({problem}): is it running, and can this machine reach it?"
        ) from problem


@contextmanager
def _own_signal_handlers() -> Iterator[None]:
    """Ray puts a handler of its own in the place of what the process did on SIGTERM."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
