"""Losses of PPO: the clipped policy objective, and the error of the values."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

ValueErrorKind = Literal["squared", "huber"]
"""Error of the values: (v - y)^2 / 2, or its Huber form, which is linear beyond one standard deviation."""


def policy_loss(
    log_ratio_N: Float[Tensor, "N"], advantage_N: Float[Tensor, "N"], weight_N: Float[Tensor, "N"], clip: float
) -> Float[Tensor, "N"]:
    """Return -w min(r A, clip(r, 1 - clip, 1 + clip) A) of every token.

    Source: Schulman et al. 2017, equation 7, with r the ratio of the present policy to that before the iteration's
    updates. w is the ratio of the latter to the policy that acted (Hilton et al. 2022, equation 5): 1 for trials of
    that policy alone.

    Args:
        log_ratio_N: log r.
        advantage_N: A.
        weight_N: w, without a gradient.
        clip: Half-width of the range of r within which an action's probability is changed.
    """
    ratio_N = log_ratio_N.exp()
    clipped_N = ratio_N.clamp(1.0 - clip, 1.0 + clip)
    return -weight_N * torch.minimum(ratio_N * advantage_N, clipped_N * advantage_N)


def value_loss(
    value_N: Float[Tensor, "N"],
    target_N: Float[Tensor, "N"],
    value_before_N: Float[Tensor, "N"],
    *,
    kind: ValueErrorKind,
    clip: float | None,
) -> Float[Tensor, "N"]:
    """Return the error of every token's value.

    Args:
        value_N: Values.
        target_N: What they are to be.
        value_before_N: Values before the iteration's updates.
        kind: Squared or Huber.
        clip: Change of a value beyond which it gets no gradient unless the error grows; None: no limit.
    """

    def error(prediction_N: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        if kind == "huber":
            return functional.huber_loss(prediction_N, target_N, reduction="none")
        return 0.5 * (prediction_N - target_N).square()

    if clip is None:
        return error(value_N)
    limited_N = value_before_N + (value_N - value_before_N).clamp(-clip, clip)
    return torch.maximum(error(value_N), error(limited_N))
