"""`MovingCopies`: networks that follow others, as target networks and averages of weights do."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn


class MovingCopies:
    """Moves copies of modules towards their originals.

    Make it once their tensors are on their device: it keeps lists of them, whose search takes longer than their update.

    Args:
        copies: The copies.
        originals: Modules with the same parameters and buffers in the same order.
        with_buffers: Copy the buffers.
    """

    def __init__(self, copies: Sequence[nn.Module], originals: Sequence[nn.Module], *, with_buffers: bool) -> None:
        self._copies, self._originals = _parameters(copies), _parameters(originals)
        self._buffer_copies, self._buffers = (
            [buffer for module in modules for buffer in module.buffers() if with_buffers]
            for modules in (copies, originals)
        )

    @torch.no_grad()
    def update(self, rate: Float[Tensor, ""]) -> None:
        """copy <- copy + rate (original - copy)."""
        if rate.is_cuda:  # kernels for all tensors at once, without waiting for the rate
            step = torch._foreach_sub(self._originals, self._copies)
            torch._foreach_mul_(step, rate)
            torch._foreach_add_(self._copies, step)
        else:
            torch._foreach_lerp_(self._copies, self._originals, rate.item())
        if self._buffers:
            torch._foreach_copy_(self._buffer_copies, self._buffers)


def _parameters(modules: Sequence[nn.Module]) -> list[Tensor]:
    return [parameter for module in modules for parameter in module.parameters()]
