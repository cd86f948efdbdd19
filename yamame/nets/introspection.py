"""Attention weights and largest activations of a trajectory encoder on one window.

L layers, H heads, F head width, T tokens, S kept keys of each query, P probe points of a block.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Float32, Int32
from torch import Tensor

from yamame.data.batch import Batch
from yamame.nets.attention import sliding_window_mask

PROBE_POINTS = ("query", "key", "value", "after attention", "after feed-forward")
"""Probe points of a block: its three projections, and the residual stream after each of its halves."""
QUERY_CHUNK = 128
"""Queries per chunk, so that memory is linear in the length."""
MAX_WEIGHTS = 1_000_000
"""Default limit of kept weights: all of a short trial, a few megabytes of a long one."""


@dataclass(frozen=True, kw_only=True)
class AttentionWeights:
    """Largest attention weights of every token in each layer and head."""

    weight_LHTS: Float32[np.ndarray, "L H T S"]
    """In descending order; 0 where a token attends to fewer than S tokens."""
    key_LHTS: Int32[np.ndarray, "L H T S"]
    """Token that each weight belongs to."""
    attention_window: int
    """Tokens that a token attends to, its own included; all weights are kept where there are at most S."""

    def for_query(self, token: int) -> Float32[np.ndarray, "L H keys"]:
        """Return the weights of one token on each token up to itself; 0 for weights that were not kept."""
        weight_LHS, key_LHS = self.weight_LHTS[:, :, token], self.key_LHTS[:, :, token]
        dense = np.zeros((*weight_LHS.shape[:2], token + 1), np.float32)
        layer, head, _ = np.nonzero(weight_LHS)
        dense[layer, head, key_LHS[weight_LHS > 0]] = weight_LHS[weight_LHS > 0]
        return dense


@dataclass(frozen=True, kw_only=True)
class EncoderTrace:
    """States of one window with the attention weights and largest activations that led to them."""

    state_TD: Float[Tensor, "T D"]
    attention: AttentionWeights
    max_abs_LPT: Float32[np.ndarray, "L P T"]
    """Largest absolute value at each of `PROBE_POINTS`. Paper: figure 14."""


@runtime_checkable
class SupportsExplain(Protocol):
    """Trajectory encoder with attention weights. Others, such as recurrent ones, have no `explain`."""

    def explain(self, timestep_TD: Float[Tensor, "T D"], batch: Batch, *, keep: int | None) -> EncoderTrace:
        """Run `forward` on a batch of one window without padding.

        Args:
            timestep_TD: Timestep vectors.
            batch: The window.
            keep: Weights to keep of each token; None: as many as `MAX_WEIGHTS` allows.
        """
        ...


def attend_with_weights(
    query_THF: Float[Tensor, "T H F"],
    key_THF: Float[Tensor, "T H F"],
    value_THF: Float[Tensor, "T H F"],
    *,
    attention_window: int,
    keep: int,
) -> tuple[Float[Tensor, "T H F"], Float32[np.ndarray, "H T S"], Int32[np.ndarray, "H T S"]]:
    """Return the output of `attend` for one window, the `keep` largest weights of each token, and their keys."""
    length, heads, width = query_THF.shape
    kept = min(keep, attention_window, length)
    weights = torch.zeros(heads, length, kept)
    keys = torch.zeros(heads, length, kept, dtype=torch.int32)
    out = torch.empty_like(query_THF)
    query, key, value = (x.transpose(0, 1) for x in (query_THF * width**-0.5, key_THF, value_THF))
    for start in range(0, length, QUERY_CHUNK):
        end, first = min(start + QUERY_CHUNK, length), max(0, start - attention_window + 1)
        visible_CK = sliding_window_mask(end - start, end - first, attention_window, query.device)
        score_HCK = query[:, start:end] @ key[:, first:end].transpose(1, 2)
        weight_HCK = score_HCK.masked_fill(~visible_CK, -torch.inf).softmax(dim=2)
        out[start:end] = (weight_HCK @ value[:, first:end]).transpose(0, 1)
        largest = weight_HCK.topk(min(kept, end - first), dim=2)
        weights[:, start:end, : largest.values.shape[2]] = largest.values
        keys[:, start:end, : largest.values.shape[2]] = largest.indices + first
    return out, weights.numpy(), keys.numpy()
