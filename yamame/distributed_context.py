"""Processes that learn together: sums over all of them, and what they have to agree on."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from jaxtyping import Shaped
from torch import Tensor

_PATIENCE = timedelta(hours=6)
"""Nothing is waited for longer: others wait while one evaluates. Of one that died the rest hear at once."""

_T = TypeVar("_T")


class PeerLostError(RuntimeError):
    """Another of the processes has ended, or failed at what all were to do."""


class DistributedContext:
    """`world` processes that learn together, of which this one has the number `rank`.

    Whatever takes part in an exchange has to be called by all of them, in the same order and from one thread; it raises
    `PeerLostError` where one of them is gone. A single process (`ALONE`) exchanges nothing: it gets back, to the bit,
    what it gives. `local_rank` counts the processes on this machine, of which there are `local_world`.
    """

    def __init__(
        self, rank: int = 0, world_size: int = 1, *, local_rank: int = 0, local_world_size: int = 1, group: Any = None
    ) -> None:
        self.rank, self.world_size = rank, world_size
        self.local_rank, self.local_world_size = local_rank, local_world_size
        self._group = group
        """Of the device that is learned on."""

    @property
    def is_single_process(self) -> bool:
        """Whether there are no others."""
        return self.world_size == 1

    @property
    def is_main(self) -> bool:
        """Whether this is the one that writes and speaks for all."""
        return self.rank == 0

    @torch.no_grad()
    def all_reduce_sum_(self, *tensors: Shaped[Tensor, "..."]) -> None:
        """Make each tensor its sum over all ranks, in place: one exchange, and the same bits on every rank."""
        if self.is_single_process:
            return
        flat = _flat(tensors)
        with _reaching():
            dist.all_reduce(flat, group=self._group)
        _unflatten(flat, tensors)

    @torch.no_grad()
    def broadcast_(self, *tensors: Shaped[Tensor, "..."]) -> None:
        """Make each tensor what it is on the first rank, in place."""
        if self.is_single_process:
            return
        for tensor in tensors:
            whole = tensor.contiguous()
            with _reaching():
                dist.broadcast(whole, src=0, group=self._group)
            tensor.copy_(whole)

    def all_reduce_sum(self, number: int) -> int:
        """The sum of all ranks' numbers."""
        return number if self.is_single_process else self._reduced(number, dist.ReduceOp.SUM)

    def all_reduce_max(self, number: int) -> int:
        """The largest of all ranks' numbers."""
        return number if self.is_single_process else self._reduced(number, dist.ReduceOp.MAX)

    def any_rank(self, fact: bool) -> bool:
        """Whether it holds on any rank."""
        return bool(self.all_reduce_max(int(fact)))

    def broadcast_object(self, value: _T) -> _T:
        """What the first rank gives; what others give does not matter."""
        if self.is_single_process:
            return value
        values = [value if self.is_main else None]
        with _reaching():
            dist.broadcast_object_list(values, src=0)
        return values[0]  # type: ignore[return-value]

    def gather_object(self, value: _T) -> list[_T]:
        """On the first rank what all ranks give, in their order; on the others what they give themselves."""
        if self.is_single_process:
            return [value]
        values: list[Any] | None = [None] * self.world_size if self.is_main else None
        with _reaching():
            dist.gather_object(value, values)
        return [value] if values is None else values

    @contextmanager
    def propagate_failure(self) -> Iterator[None]:
        """What one rank raises inside ends the others as well, with `PeerLostError`. Nothing is exchanged inside."""
        try:
            yield
        except BaseException:
            with suppress(PeerLostError):
                self.any_rank(True)
            raise
        if self.any_rank(False):
            raise PeerLostError("another learner could not begin")

    def _reduced(self, number: int, operation: Any) -> int:
        value = torch.tensor(number)
        with _reaching():
            dist.all_reduce(value, operation)
        return int(value)


SINGLE_PROCESS = DistributedContext()
"""One process."""


@contextmanager
def init_distributed(
    rank: int, world_size: int, *, local_rank: int, local_world_size: int, device: str, store: Any = None
) -> Iterator[DistributedContext]:
    """The ranks that meet at `store` (None: where the environment's variables say), until the end of the block.

    `device`, cpu or cuda, is what all of them learn on. Each gets its share of the machine's cores. Sets what PyTorch
    knows of the whole process.
    """
    torch.set_num_threads(max(1, torch.get_num_threads() // local_world_size))
    if device == "cuda":
        torch.cuda.set_device(local_rank)
    with _reaching():
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=_PATIENCE)
        group = dist.new_group(backend="nccl") if device == "cuda" else None
    yield DistributedContext(rank, world_size, local_rank=local_rank, local_world_size=local_world_size, group=group)
    dist.destroy_process_group()  # not after a failure: that would wait for the others


def create_tcp_store(port: int | None = None) -> Any:
    """Where the ranks of one machine find each other: begun here, at its `port`, or what another process has begun.

    They then exchange everything through the machine's own loopback, whatever becomes of its networks.
    """
    for _, name in socket.if_nameindex():
        if name in ("lo", "lo0"):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
    return dist.TCPStore("127.0.0.1", port or 0, is_master=port is None, wait_for_workers=False)  # type: ignore[attr-defined]


@contextmanager
def _reaching() -> Iterator[None]:
    try:
        yield
    except RuntimeError as problem:
        reason = next(iter(str(problem).splitlines()), type(problem).__name__)
        raise PeerLostError(f"another learner cannot be reached ({reason})") from problem


def _flat(tensors: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def _unflatten(flat: Tensor, tensors: tuple[Tensor, ...]) -> None:
    for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(part.view_as(tensor))
