"""Updates that are not finite: their counts, when training has diverged, and what in a batch makes losses overflow."""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Bool, Shaped
from torch import Tensor

from yamame.data.batch import Batch
from yamame.errors import UserError

MAX_ABS_INPUT = 1e15
"""Sums of squares of larger numbers may be infinite in float32."""


class NonfiniteCounter:
    """Counts the updates that were skipped because their loss or gradient was not finite.

    The counts are tensors, which `count` changes in place: an update waits for no device, and can be captured.

    Args:
        device: Device of the updates.
    """

    def __init__(self, device: torch.device) -> None:
        self._total = torch.zeros((), dtype=torch.int64, device=device)
        self._consecutive = torch.zeros_like(self._total)

    @property
    def total(self) -> int:
        """Number of skipped updates. Synchronizes the device."""
        return int(self._total)

    @property
    def consecutive(self) -> int:
        """Number of skipped updates since the last finite one. Synchronizes the device."""
        return int(self._consecutive)

    def count(self, finite: Bool[Tensor, ""]) -> None:
        """Count an update."""
        self._total += ~finite
        self._consecutive.add_(1).mul_(~finite)

    def state_dict(self) -> dict[str, int]:
        """Return both counts, by their names in the state of an algorithm."""
        return {"num_nonfinite": self.total, "consecutive_nonfinite": self.consecutive}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the counts from the state of an algorithm."""
        self._total.fill_(state["num_nonfinite"])
        self._consecutive.fill_(state["consecutive_nonfinite"])


def check_divergence(consecutive_nonfinite: int, maximum: int, last_batch: Batch | None) -> None:
    """Raise `UserError` if `maximum` consecutive updates or more were not finite.

    The message names the observation or reward of the last batch that is too large for float32, if there is one.
    """
    if consecutive_nonfinite >= maximum:
        large = "" if last_batch is None else _describe_large_input(last_batch)
        raise UserError(
            f"{consecutive_nonfinite} consecutive updates had a non-finite loss or gradient; "
            + (f"{large}: scale or replace them" if large else "lower --learner.learning-rate")
        )


def _describe_large_input(batch: Batch) -> str:
    """Name the observation leaf of a batch with the largest numbers, or the reward; "" if none exceeds `MAX_ABS_INPUT`.

    Numbers that are not finite count as the largest.
    """
    tensors = {f"observation {name!r}": leaf for name, leaf in batch.observation.items()} | {"the reward": batch.reward}
    sizes = {name: _max_abs(tensor[batch.token_mask]) for name, tensor in tensors.items()}
    largest = max(sizes, key=lambda name: sizes[name])
    return f"{largest} has numbers of {sizes[largest]:.3g}" if sizes[largest] > MAX_ABS_INPUT else ""


def _max_abs(tensor: Shaped[Tensor, "N ..."]) -> float:
    if not tensor.is_floating_point() or not tensor.numel():
        return 0.0
    return float(torch.nan_to_num(tensor.double().abs(), nan=torch.inf).max())
