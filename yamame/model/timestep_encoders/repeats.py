"""Leaves that stay as they are for many timesteps: what is repeated is encoded once."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn import functional


@torch.compiler.disable  # type: ignore[untyped-decorator]  # the number of rows follows from what is in them
def encode_unique_runs(
    encoder: Callable[[Shaped[Tensor, "M ..."]], Float[Tensor, "M D"]], leaf: Shaped[Tensor, "N ..."]
) -> Float[Tensor, "N D"]:
    """`encoder(leaf)`, computed for the first of each run of equal neighbours.

    Timesteps of a window are neighbours, so that an instruction is encoded as often as it changes. For a CPU: a GPU
    would have to wait for the number of rows, and nothing could be recorded.
    """
    begins_N = functional.pad((leaf[1:] != leaf[:-1]).flatten(1).any(1), (1, 0), value=True)
    return encoder(leaf[begins_N]).index_select(0, begins_N.cumsum(0) - 1)
