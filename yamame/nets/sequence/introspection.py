"""Where the tokens of one window looked, and how large numbers grew on the way: a forward that tells.

L layers, H heads, F width of a head, T tokens, S the keys kept of each query, P places of a block.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Float32, Int32
from torch import Tensor

from yamame.data.batch import Batch
from yamame.nets.sequence.attention import sliding_window_mask

PROBE_POINTS = ("query", "key", "value", "after attention", "after feed-forward")
"""Where a block is looked into: its three projections, and the residual stream behind each of its two halves."""
QUERY_CHUNK = 128
"""Queries that look at once, so that memory grows with the length and not with its square."""
MAX_WEIGHTS = 1_000_000
"""Kept where nobody says how many of each token: all of them in short trials, a few megabytes in long ones."""


@dataclass(frozen=True, kw_only=True)
class AttentionWeights:
    """The heaviest attention weights of every token, layer by layer and head by head."""

    weight_LHTS: Float32[np.ndarray, "L H T S"]
    """Heaviest first; 0 where a token has fewer tokens to look at than are kept."""
    key_LHTS: Int32[np.ndarray, "L H T S"]
    """The tokens that these are about."""
    memory_length: int
    """Tokens that a token may look at, itself included; all weights are kept of those that have at most S."""

    def for_query(self, token: int) -> Float32[np.ndarray, "L H keys"]:
        """What one token gives each one up to itself; 0 for those that were not kept."""
        return _spread(self.weight_LHTS[:, :, token], self.key_LHTS[:, :, token], token + 1)

    def dense(self) -> Float32[np.ndarray, "L H T T"]:
        """All of it as whole matrices (layer, head, query, key), for trials short enough for that."""
        return _spread(self.weight_LHTS, self.key_LHTS, self.weight_LHTS.shape[2])


@dataclass(frozen=True, kw_only=True)
class EncoderTrace:
    """What `forward` computes of one window, and what happened on the way."""

    state_TD: Float[Tensor, "T D"]
    attention: AttentionWeights
    max_abs_LPT: Float32[np.ndarray, "L P T"]
    """The largest absolute number at each of `PLACES` (paper, figure 14)."""


@runtime_checkable
class SupportsExplain(Protocol):
    """A trajectory encoder that can tell where it looked. Others, such as recurrent ones, have no `explain`."""

    def explain(self, timestep_TD: Float[Tensor, "T D"], batch: Batch, *, keep: int | None) -> EncoderTrace:
        """`forward` of a batch that is one window without filling.

        `keep` weights are told of each token; None: as many as `MAX_WEIGHTS` allows.
        """
        ...


def max_kept_weights(tokens: int, *, heads: int) -> int:
    """Weights of each token that can be kept of so many heads in all."""
    return max(16, MAX_WEIGHTS // (tokens * heads))


def attend_with_weights(
    query_THF: Float[Tensor, "T H F"],
    key_THF: Float[Tensor, "T H F"],
    value_THF: Float[Tensor, "T H F"],
    *,
    memory_length: int,
    keep: int,
) -> tuple[Float[Tensor, "T H F"], Float32[np.ndarray, "H T S"], Int32[np.ndarray, "H T S"]]:
    """What `attend` gives for one window, with the `keep` heaviest weights of each token and their keys."""
    length, heads, width = query_THF.shape
    kept = min(keep, memory_length, length)
    weights = torch.zeros(heads, length, kept)
    keys = torch.zeros(heads, length, kept, dtype=torch.int32)
    found = torch.empty_like(query_THF)
    query, key, value = (x.transpose(0, 1) for x in (query_THF * width**-0.5, key_THF, value_THF))
    for begin in range(0, length, QUERY_CHUNK):
        end, first = min(begin + QUERY_CHUNK, length), max(0, begin - memory_length + 1)
        visible_CK = sliding_window_mask(end - begin, end - first, memory_length, query.device)
        score_HCK = query[:, begin:end] @ key[:, first:end].transpose(1, 2)
        weight_HCK = score_HCK.masked_fill(~visible_CK, -torch.inf).softmax(dim=2)
        found[begin:end] = (weight_HCK @ value[:, first:end]).transpose(0, 1)
        heaviest = weight_HCK.topk(min(kept, end - first), dim=2)
        weights[:, begin:end, : heaviest.values.shape[2]] = heaviest.values
        keys[:, begin:end, : heaviest.values.shape[2]] = heaviest.indices + first
    return found, weights.numpy(), keys.numpy()


def max_abs(x: Float[Tensor, "T ..."]) -> Float[Tensor, "T"]:
    """The largest absolute number of each token."""
    return x.flatten(1).abs().amax(dim=1).float().cpu()


def _spread(
    weight: Float32[np.ndarray, "*some kept"], key: Int32[np.ndarray, "*some kept"], tokens: int
) -> Float32[np.ndarray, "*some tokens"]:
    spread = np.zeros((*weight.shape[:-1], tokens), np.float32)
    *some, _ = np.nonzero(weight)
    spread[(*some, key[weight > 0])] = weight[weight > 0]
    return spread
