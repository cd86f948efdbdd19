"""`DistributedContext`: collective operations of the learner processes."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from jaxtyping import Shaped
from torch import Tensor

_TIMEOUT = timedelta(hours=6)
"""Of collective operations: long, since other ranks wait while one evaluates. A dead rank is detected at once."""

_T = TypeVar("_T")


class PeerLostError(RuntimeError):
    """Another rank has exited or failed."""


class DistributedContext:
    """This process as `rank` of `world_size` learner processes.

    Collective operations must be called by all ranks, in the same order and from one thread; they raise `PeerLostError`
    if another rank is gone. In a single process (`SINGLE_PROCESS`) they return their input unchanged.

    Args:
        rank: Index of this process.
        world_size: Number of processes.
        local_rank: Index of this process on its machine.
        local_world_size: Number of processes on this machine.
        group: Process group for tensors on the learners' device; None: the default one.
    """

    def __init__(
        self, rank: int = 0, world_size: int = 1, *, local_rank: int = 0, local_world_size: int = 1, group: Any = None
    ) -> None:
        self.rank, self.world_size = rank, world_size
        self.local_rank, self.local_world_size = local_rank, local_world_size
        self._group = group

    @property
    def is_single_process(self) -> bool:
        """Whether `world_size` is 1."""
        return self.world_size == 1

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which writes the files of the run and prints."""
        return self.rank == 0

    @torch.no_grad()
    def all_reduce_sum_(self, *tensors: Shaped[Tensor, "..."]) -> None:
        """Replace each tensor by its sum over all ranks, the same bits on every rank, in one operation."""
        if self.is_single_process:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        with _wrap_errors():
            dist.all_reduce(flat, group=self._group)
        for tensor, values in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(values.view_as(tensor))

    @torch.no_grad()
    def broadcast_(self, *tensors: Shaped[Tensor, "..."]) -> None:
        """Replace each tensor by that of the main rank."""
        if self.is_single_process:
            return
        for tensor in tensors:
            contiguous = tensor.contiguous()
            with _wrap_errors():
                dist.broadcast(contiguous, src=0, group=self._group)
            tensor.copy_(contiguous)

    def all_reduce_max(self, number: int) -> int:
        """Return the maximum of a number over all ranks."""
        if self.is_single_process:
            return number
        value = torch.tensor(number)
        with _wrap_errors():
            dist.all_reduce(value, dist.ReduceOp.MAX)
        return int(value)

    def any_rank(self, condition: bool) -> bool:
        """Return whether a condition is true on any rank."""
        return bool(self.all_reduce_max(int(condition)))

    def broadcast_object(self, value: _T) -> _T:
        """Return the value of the main rank; those of other ranks are ignored."""
        if self.is_single_process:
            return value
        values = [value if self.is_main else None]
        with _wrap_errors():
            dist.broadcast_object_list(values, src=0)
        return values[0]  # type: ignore[return-value]

    def gather_object(self, value: _T) -> list[_T]:
        """Return the values of all ranks in order on the main rank, and only their own on other ranks."""
        if self.is_single_process:
            return [value]
        values: list[Any] | None = [None] * self.world_size if self.is_main else None
        with _wrap_errors():
            dist.gather_object(value, values)
        return [value] if values is None else values

    @contextmanager
    def propagate_failure(self) -> Iterator[None]:
        """Raise `PeerLostError` on all other ranks if the body raises on one. The body must not communicate."""
        try:
            yield
        except BaseException:
            with suppress(PeerLostError):
                self.any_rank(True)
            raise
        if self.any_rank(False):
            raise PeerLostError("another learner could not start")


SINGLE_PROCESS = DistributedContext()


@contextmanager
def init_distributed(
    rank: int, world_size: int, *, local_rank: int, local_world_size: int, device: str, store: Any = None
) -> Iterator[DistributedContext]:
    """Join the process group for the duration of the context. Sets PyTorch's global state, and its number of threads.

    Args:
        rank: Index of this process.
        world_size: Number of processes.
        local_rank: Index of this process on its machine.
        local_world_size: Number of processes on this machine, which share its cores.
        device: `cpu` or `cuda`, the same for all.
        store: Rendezvous, from `open_rendezvous`; None: by the environment variables of torchrun.
    """
    torch.set_num_threads(max(1, torch.get_num_threads() // local_world_size))
    if device == "cuda":
        torch.cuda.set_device(local_rank)
    with _wrap_errors():
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=_TIMEOUT)
        group = dist.new_group(backend="nccl") if device == "cuda" else None
    yield DistributedContext(rank, world_size, local_rank=local_rank, local_world_size=local_world_size, group=group)
    dist.destroy_process_group()  # not after a failure: that would wait for the others


def open_rendezvous(path: Path) -> Any:
    """Open the rendezvous of the ranks on one machine: a file, which is created by the first one.

    A store of PyTorch that listens on a port does so on all interfaces, without authentication. The ranks then
    communicate through the loopback interface.
    """
    for _, name in socket.if_nameindex():
        if name in ("lo", "lo0"):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
    return dist.FileStore(str(path), -1)  # type: ignore[attr-defined]


@contextmanager
def _wrap_errors() -> Iterator[None]:
    try:
        yield
    except RuntimeError as problem:
        reason = next(iter(str(problem).splitlines()), type(problem).__name__)
        raise PeerLostError(f"another learner cannot be reached ({reason})") from problem
