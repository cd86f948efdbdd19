"""CUDA graphs of updates: one captured graph per batch shape."""

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
"""Eager calls for each shape before its capture, in which libraries tune and the compiler compiles."""
MAX_GRAPHS = 16
"""Most captured graphs, since each keeps its memory; batches of further shapes run eagerly."""


class CudaGraphUpdate:
    """Capture and replay an update that does not synchronize with the host. Results equal those of the update.

    Everything that changes between updates must be in persistent tensors: parameters, statistics, the learning rate,
    and the state of `generator`, which is registered with each graph.
    """

    def __init__(self, update: Callable[[Batch], Metrics], generator: torch.Generator) -> None:
        self._update = update
        self._generator = generator
        self._stream = torch.cuda.Stream(generator.device)
        self._memory = torch.cuda.graph_pool_handle()
        self._num_calls: Counter[Any] = Counter()
        self._graphs: dict[Any, _CapturedUpdate] = {}

    def __call__(self, batch: Batch) -> Metrics:
        """Run one update and return its metrics."""
        shape = shape_key(batch)
        self._num_calls[shape] += 1
        if shape not in self._graphs:
            if self._num_calls[shape] <= WARMUP_CALLS or len(self._graphs) == MAX_GRAPHS:
                return self._run_eagerly(batch)
            self._graphs[shape] = _CapturedUpdate(self._update, batch, self._generator, self._memory)
        return self._graphs[shape].replay(batch)

    def _run_eagerly(self, batch: Batch) -> Metrics:
        """Run on a side stream, as the later capture does."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            metrics = self._update(batch)
        torch.cuda.current_stream().wait_stream(self._stream)
        return metrics


class _CapturedUpdate:
    def __init__(
        self, update: Callable[[Batch], Metrics], batch: Batch, generator: torch.Generator, memory: Any
    ) -> None:
        self._input = batch.apply(lambda value: value.to(generator.device, copy=True))
        self._graph = torch.cuda.CUDAGraph()
        self._graph.register_generator_state(generator)
        # thread-local: other threads may pin batches or act during the capture
        with torch.cuda.graph(self._graph, pool=memory, capture_error_mode="thread_local"):
            metrics = update(self._input)
            self._metrics = torch.stack([value.float() for value in metrics.values()])
        self._names = tuple(metrics)

    def replay(self, batch: Batch) -> Metrics:
        for captured, new in zip(batch_tensors(self._input), batch_tensors(batch), strict=True):
            captured.copy_(new, non_blocking=True)
        self._graph.replay()
        return dict(zip(self._names, self._metrics.clone().unbind(), strict=True))


def shape_key(batch: Batch) -> Any:
    """Return a key that is equal for batches which share a graph."""
    values = [getattr(batch, field.name) for field in fields(batch)]
    numbers = tuple(value for value in values if isinstance(value, int))
    return numbers, tuple((tensor.shape, tensor.dtype) for tensor in batch_tensors(batch))


def batch_tensors(batch: Batch) -> Iterator[Tensor]:
    """Iterate over all tensors of a batch in a fixed order."""
    for field in fields(batch):
        value = getattr(batch, field.name)
        if isinstance(value, Tensor):
            yield value
    for leaves in (batch.observation, batch.extras):
        yield from (leaves[name] for name in sorted(leaves))
