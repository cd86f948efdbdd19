"""An update recorded once for every shape of batch and replayed: one launch instead of hundreds."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from yamame.data.batch import Batch

Metrics = dict[str, Float[Tensor, ""]]

WARMUP_CALLS = 3
"""Updates of a shape that run as they are before one is recorded: in them libraries tune and the compiler compiles."""
MAX_GRAPHS = 16
"""Each recording keeps its memory; batches of further shapes are not recorded."""


class CudaGraphUpdate:
    """Wraps an update that never waits for the host; gives what the update itself would give.

    Everything that changes from one update to the next must lie in tensors that stay: parameters, statistics, the
    learning rate, and the state of `generator`, which is registered with each graph.
    """

    def __init__(self, update: Callable[[Batch], Metrics], generator: torch.Generator) -> None:
        self._update = update
        self._generator = generator
        self._stream = torch.cuda.Stream(generator.device)
        self._memory = torch.cuda.graph_pool_handle()
        self._runs: Counter[Any] = Counter()
        self._recordings: dict[Any, _Recording] = {}

    def __call__(self, batch: Batch) -> Metrics:
        """The update."""
        shape = shape_key(batch)
        self._runs[shape] += 1
        if shape not in self._recordings:
            if self._runs[shape] <= WARMUP_CALLS or len(self._recordings) == MAX_GRAPHS:
                return self._run_aside(batch)
            self._recordings[shape] = _Recording(self._update, batch, self._generator, self._memory)
        return self._recordings[shape].replay(batch)

    def _run_aside(self, batch: Batch) -> Metrics:
        """On a stream of its own, as what is recorded later will be."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            metrics = self._update(batch)
        torch.cuda.current_stream().wait_stream(self._stream)
        return metrics


class _Recording:
    def __init__(
        self, update: Callable[[Batch], Metrics], batch: Batch, generator: torch.Generator, memory: Any
    ) -> None:
        self._input = batch.apply(lambda value: value.to(generator.device, copy=True))
        self._graph = torch.cuda.CUDAGraph()
        self._graph.register_generator_state(generator)
        # thread-local: other threads may pin batches or act meanwhile
        with torch.cuda.graph(self._graph, pool=memory, capture_error_mode="thread_local"):
            metrics = update(self._input)
            self._values = torch.stack([value.float() for value in metrics.values()])
        self._names = tuple(metrics)

    def replay(self, batch: Batch) -> Metrics:
        for kept, new in zip(batch_tensors(self._input), batch_tensors(batch), strict=True):
            kept.copy_(new, non_blocking=True)
        self._graph.replay()
        return dict(zip(self._names, self._values.clone().unbind(), strict=True))


def shape_key(batch: Batch) -> Any:
    """What a recording depends on: equal for batches that one recording serves."""
    plain = [getattr(batch, field.name) for field in fields(batch)]
    numbers = tuple(value for value in plain if isinstance(value, int))
    return numbers, tuple((tensor.shape, tensor.dtype) for tensor in batch_tensors(batch))


def batch_tensors(batch: Batch) -> Iterator[Tensor]:
    """All tensors of a batch, in an order that is always the same."""
    for field in fields(batch):
        value = getattr(batch, field.name)
        if isinstance(value, Tensor):
            yield value
    for leaves in (batch.observation, batch.extras):
        yield from (leaves[name] for name in sorted(leaves))
