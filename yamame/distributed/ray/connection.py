"""Connection to a Ray cluster: started for the run on this machine, or joined."""

import logging
import math
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from yamame.distributed_context import DistributedContext
from yamame.errors import UserError
from yamame.run_config import RunConfig

LOCAL, AUTO = "local", "auto"

_CLIENT = "ray://"
_CLIENT_PORT, _PORT = 10001, 6379
_CONNECT_TIMEOUT_SECONDS = 10.0
_AUTH_MODE_VARIABLE = "RAY_AUTH_MODE"
"""Environment variable that Ray sets when it starts a cluster, and needs to join it."""


@dataclass(frozen=True)
class RayConnection:
    """An open connection."""

    ray: Any
    """The module `ray`."""
    owns_cluster: bool
    """Whether `close` disconnects: False if the program was connected before."""

    def close(self) -> None:
        """Disconnect; stops a cluster that was started for the run."""
        if self.owns_cluster:
            self.ray.shutdown()


def connect_ranks(config: RunConfig, distributed: DistributedContext) -> RayConnection:
    """Connect each learner to the cluster of a run; the main rank starts a `local` one. Collective.

    Raises `UserError` as `connect` does.
    """
    cpus = config.ray.num_collectors * config.ray.num_cpus_per_collector
    connects_first = distributed.is_main or config.ray.address != LOCAL
    connection: RayConnection | None = None
    with distributed.propagate_failure():
        if connects_first:
            connection = connect(config.ray.address, cpus=cpus)
    address = connection.ray.get_runtime_context().gcs_address if connection else ""
    address, auth_mode = distributed.broadcast_object((address, os.environ.get(_AUTH_MODE_VARIABLE, "")))
    with distributed.propagate_failure():
        if connection is None:
            os.environ[_AUTH_MODE_VARIABLE] = auth_mode
            connection = connect(address, cpus=cpus)
    return connection


def connect(address: str, *, cpus: float, flag: str = "--ray.address") -> RayConnection:
    """Join the cluster at `address`; if it is `local`, start one with room for `cpus` cores.

    Raises `UserError`, which names the flag of the address, if Ray is not installed or the address does not answer.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as missing:
        raise UserError(f"{flag} {address} needs Ray: pip install 'yamame[ray]'") from missing
    if ray.is_initialized():
        return RayConnection(ray, owns_cluster=False)
    if address not in (LOCAL, AUTO):
        _check_reachable(address, flag)
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == LOCAL:
        options |= {"num_cpus": max(os.cpu_count() or 1, math.ceil(cpus)), "include_dashboard": False}
    try:
        with _keep_sigterm_handler():
            ray.init(address=address, **options)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as problem:
        reason = str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__
        raise UserError(
            f"{flag} {address} cannot be joined ({reason}): is it running? If it asks for Ray's token, set "
            f"{_AUTH_MODE_VARIABLE}=token; see `ray status`"
        ) from problem
    if address == LOCAL:
        where = ray.get_runtime_context().gcs_address
        print(f"Ray cluster at {where}: its processes listen on all interfaces and require a token", file=sys.stderr)
    return RayConnection(ray, owns_cluster=True)


def first_line(problem: Exception) -> str:
    """Return the type and the first line of one of Ray's long messages."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return f"{type(problem).__name__}: {lines[0] if lines else ''}"


def format_resources(cpus: float, gpus: float) -> str:
    """Return what Ray reserves for a process, such as `2 cores and 1 GPUs`."""
    return f"{cpus:g} cores" + (f" and {gpus:g} GPUs" if gpus else "")


def _check_reachable(address: str, flag: str) -> None:
    """Raise `UserError` if nothing listens at the address: Ray itself would retry for minutes."""
    host, _, port = address.removeprefix(_CLIENT).partition(":")
    default = _CLIENT_PORT if address.startswith(_CLIENT) else _PORT
    if not host or not (port or str(default)).isdigit():
        raise UserError(f"{flag} {address} is no address: give local, auto, HOST:PORT or ray://HOST:PORT")
    try:
        socket.create_connection((host, int(port or default)), timeout=_CONNECT_TIMEOUT_SECONDS).close()
    except (OSError, OverflowError) as problem:
        raise UserError(
            f"{flag} {address} does not answer ({problem}): is it running, and can this machine reach it?"
        ) from problem


@contextmanager
def _keep_sigterm_handler() -> Iterator[None]:
    """Undo Ray's change of the SIGTERM handler."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)
