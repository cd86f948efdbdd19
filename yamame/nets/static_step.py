"""`StaticStep`: a function of tensors with one transfer to the device, a CUDA graph, and one transfer back."""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor

from yamame.errors import describe_error
from yamame.nets.compute import WARMUP_CALLS, capture_graph

StaticFunction = Callable[[Mapping[str, Shaped[Tensor, "..."]]], Mapping[str, Shaped[Tensor, "..."]]]


class PackedTensors:
    """Tensors side by side in one buffer on the device, and the same buffer on the host, pinned for a GPU.

    Args:
        shapes: Shape and dtype by name.
        device: Device of the tensors.
    """

    ALIGNMENT = 16
    """Of each tensor, in bytes; at least the size of every dtype."""

    def __init__(self, shapes: Mapping[str, tuple[Sequence[int], torch.dtype]], device: torch.device) -> None:
        sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in shapes.values()]
        starts = np.cumsum([0, *(-(-size // self.ALIGNMENT) * self.ALIGNMENT for size in sizes)]).tolist()
        self._device_bytes = torch.empty(starts[-1], dtype=torch.uint8, device=device)
        self._host_bytes = torch.empty(starts[-1], dtype=torch.uint8, pin_memory=device.type == "cuda")

        def views(buffer: Tensor) -> dict[str, Tensor]:
            return {
                name: buffer[start : start + size].view(dtype).view(tuple(shape))
                for start, size, (name, (shape, dtype)) in zip(starts, sizes, shapes.items(), strict=False)
            }

        self.tensors = views(self._device_bytes)
        """Views of the buffer on the device."""
        self.arrays = {name: tensor.numpy() for name, tensor in views(self._host_bytes).items()}
        """Views of the buffer on the host."""

    def copy_to_device(self) -> None:
        """Queue the transfer of `arrays` to `tensors`. `arrays` must not change before the device has made it."""
        self._device_bytes.copy_(self._host_bytes, non_blocking=True)

    def copy_to_host(self) -> None:
        """Transfer `tensors` to `arrays`, and wait for it."""
        self._host_bytes.copy_(self._device_bytes, non_blocking=True)
        if self._device_bytes.is_cuda:
            torch.cuda.current_stream(self._device_bytes.device).synchronize()


class StaticStep:
    """Calls a function on the device from arrays to arrays. Everything runs on the current stream.

    After `WARMUP_CALLS` calls the function is captured as a CUDA graph, and replayed from then on. Inputs of other
    shapes or dtypes start anew. If the capture fails, one line on stderr says so and the function is called as before.

    Args:
        generator: Of the random numbers in the function; on its device.
        captures: Capture a CUDA graph.
    """

    def __init__(self, generator: torch.Generator, *, captures: bool) -> None:
        self._generator = generator
        self._captures = captures
        self._layout: dict[str, tuple[tuple[int, ...], np.dtype]] = {}

    def __call__(
        self, function: StaticFunction, arrays: Mapping[str, Shaped[np.ndarray, "..."]]
    ) -> Mapping[str, Shaped[np.ndarray, "..."]]:
        """Return the results of a function, in memory that the next call overwrites.

        Args:
            function: The same in every call; not kept. Returns tensors of the same names, shapes and dtypes for the
                same shapes of inputs, without waiting for the device. What it remembers is in tensors that it changes
                in place.
            arrays: Its inputs.
        """
        layout = {name: (array.shape, array.dtype) for name, array in arrays.items()}
        if layout != self._layout:
            shapes = {
                name: (shape, torch.from_numpy(np.empty(0, dtype)).dtype) for name, (shape, dtype) in layout.items()
            }
            self._layout, self._inputs = layout, PackedTensors(shapes, self._generator.device)
            self._outputs: PackedTensors | None = None
            self._graph: torch.cuda.CUDAGraph | None = None
            self._num_calls = 0
        for name, array in arrays.items():
            np.copyto(self._inputs.arrays[name], array)
        self._inputs.copy_to_device()
        if self._captures and self._graph is None and self._num_calls >= WARMUP_CALLS:
            self._capture(function)
        if self._graph is not None:
            self._graph.replay()
        else:
            self._run(function)
        self._num_calls += 1
        assert self._outputs is not None
        self._outputs.copy_to_host()
        return self._outputs.arrays

    def _run(self, function: StaticFunction) -> None:
        results = function(self._inputs.tensors)
        if self._outputs is None:
            shapes = {name: (tensor.shape, tensor.dtype) for name, tensor in results.items()}
            self._outputs = PackedTensors(shapes, self._generator.device)
        for name, tensor in results.items():
            self._outputs.tensors[name].copy_(tensor)

    def _capture(self, function: StaticFunction) -> None:
        try:
            self._graph, _ = capture_graph(partial(self._run, function), self._generator)
        except RuntimeError as error:
            self._captures = False
            _report_once(f"acting without a CUDA graph: its capture failed ({describe_error(error)})")


@cache
def _report_once(line: str) -> None:
    """Print a line on stderr, the first time in this process: each evaluation has a policy of its own."""
    print(line, file=sys.stderr)
