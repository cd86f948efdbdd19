"""A CUDA graph for a CPU: the operations of a function, replayed on the tensors that they were recorded with."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map


class RecordedGraph(TorchDispatchMode):
    """Replays every operation of a function and none of its Python code, as a CUDA graph does.

    Unlike a capture, the recording runs the operations. A timestep that is passed twice counts once, so that the
    replay which follows is still right.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[Any, Any, Any, Any]] = []
        self.num_replays = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.operations.append((func, args, kwargs or {}, result))
        return result

    def replay(self) -> None:
        self.num_replays += 1
        now: dict[int, Tensor] = {}

        def present(value: Any) -> Any:
            return now.get(id(value), value) if isinstance(value, Tensor) else value

        for func, args, kwargs, recorded in self.operations:
            result = func(*tree_map(present, args), **tree_map(present, kwargs))
            now |= {
                id(old): new
                for old, new in zip(tree_leaves(recorded), tree_leaves(result), strict=True)
                if isinstance(old, Tensor)
            }


class Recorder:
    """Takes the place of `capture_graph`."""

    def __init__(self) -> None:
        self.graphs: list[RecordedGraph] = []

    def __call__(
        self, function: Callable[[], Any], generator: torch.Generator, *, pool: Any = None
    ) -> tuple[RecordedGraph, Any]:
        state = generator.get_state()
        with RecordedGraph() as graph:
            result = function()
        generator.set_state(state)
        self.graphs.append(graph)
        return graph, result
