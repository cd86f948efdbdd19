"""Uniform choices among what is allowed."""

import numpy as np
from jaxtyping import Bool, Float64, Int64

from yamame.records.action_spaces import split_mask


def sample_uniform_actions(
    prob_EC: Float64[np.ndarray, "E C"], sizes: tuple[int, ...], mask_EA: Bool[np.ndarray, "E A"] | None
) -> Int64[np.ndarray, "E C"]:
    """The choice of each component that a number in [0, 1) stands for; every component must allow one at least."""
    if mask_EA is None:
        return (prob_EC * np.array(sizes)).astype(np.int64)
    parts = split_mask(mask_EA, sizes)
    return np.stack([_among(chance_E, part) for chance_E, part in zip(prob_EC.T, parts, strict=True)], axis=1)


def _among(chance_E: Float64[np.ndarray, "E"], allowed_EK: Bool[np.ndarray, "E K"]) -> Int64[np.ndarray, "E"]:
    """The k-th allowed choice, k being that part of their number."""
    rank_E = (chance_E * allowed_EK.sum(axis=1)).astype(np.int64)
    return (allowed_EK.cumsum(axis=1) > rank_E[:, None]).argmax(axis=1)
